"""Mails (.eml): the subject is the title; of the text in several forms the plain one is read, attachments are not."""

from __future__ import annotations

from email import policy
from email.message import MIMEPart
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
    for form in ("plain", "html"):
        body = message.get_body((form,))
        content = "" if body is None else _text(body)
        if content.strip():
            return Page(title, read_html(content, code).sections if form == "html" else (Section("", content),))
    return Page(title, ())


def _text(body: MIMEPart) -> str:
    payload = body.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode(body.get_content_charset("utf-8")).replace("\r\n", "\n")
