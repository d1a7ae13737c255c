"""Packed documents (Word, EPUB, ...): small files may hold much."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile, ZipFile

from hf_dense.data.readers.page import UnreadableError

_MOST: Final = 200_000_000  # bytes of a document when it is unpacked


def check_size(path: Path) -> None:
    """Find out how much a packed file holds.

    Raises:
        UnreadableError: too much, or it is none.
    """
    try:
        with ZipFile(path) as parts:
            if sum(part.file_size for part in parts.infolist()) > _MOST:
                raise UnreadableError
    except BadZipFile as error:
        raise UnreadableError from error


def parsed(parts: ZipFile, name: str) -> Any:
    """The XML of a part; nothing that it names is put in its place."""
    from lxml import etree  # type: ignore[import-untyped]

    return etree.fromstring(parts.read(name), etree.XMLParser(resolve_entities=False, no_network=True))
