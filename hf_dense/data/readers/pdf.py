"""PDF files, by pypdf: their words, without headings, which are nothing but large print there."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from hf_dense.data.readers.page import Page, Section, UnreadableError


def read_pdf(path: Path) -> Page:
    """The page of a PDF file.

    Raises:
        UnreadableError: it is none.
    """
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.ERROR)  # its warnings do not say which file they are about
    try:
        reader = PdfReader(path)
        title = str((reader.metadata and reader.metadata.title) or "")
        pages = [page.extract_text() for page in reader.pages]
    except PyPdfError as error:
        raise UnreadableError from error
    # Lines of a page are lines of print: words broken over two are joined, and so are lines of a paragraph.
    text = re.sub(r"(?<=\w)-\n(?=[a-z])", "", "\n\n".join(pages))
    return Page(title.strip(), (Section("", re.sub(r"(?<!\n)\n(?!\n)", " ", text)),))
