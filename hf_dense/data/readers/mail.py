"""Mails (.eml): the subject is the title; of the text in several forms the plain one is read, attachments are not."""

from __future__ import annotations

from email import policy
from email.parser import BytesParser
from pathlib import Path

from hf_dense.data.readers.html import read_html
from hf_dense.data.readers.page import CodeOption, Page, Section, UnreadableError


def read_mail(path: Path, code: CodeOption) -> Page:
    """The page of a mail.

    Raises:
        UnreadableError: it is none.
        Exception: of its text, which is not in the encoding that it declares.
    """
    with path.open("rb") as stream:
        message = BytesParser(policy=policy.default).parse(stream)
    if not message.keys():
        raise UnreadableError
    title = " ".join(str(message.get("subject", "")).split())
    body = message.get_body(("plain", "html"))
    if body is None:
        return Page(title, ())
    payload = body.get_payload(decode=True)
    assert isinstance(payload, bytes)
    content = payload.decode(body.get_content_charset("utf-8")).replace("\r\n", "\n")
    is_html = body.get_content_type() == "text/html"
    sections = read_html(content, code).sections if is_html else (Section("", content),)
    return Page(title, sections)
