"""Mails: the subject, and the text in the plainest of its forms."""

from __future__ import annotations

from email.message import EmailMessage
from pathlib import Path

import pytest

from hf_dense.data.documents import DocumentReader
from hf_dense.data.readers.kinds import read_page
from hf_dense.data.readers.page import UnreadableError


@pytest.mark.parametrize("forms", [("plain",), ("html",), ("plain", "html"), ("empty", "html")])
def test_a_mail(tmp_path: Path, forms: tuple[str, ...]) -> None:
    mail = EmailMessage()
    mail["Subject"], mail["From"] = (
        "Rückfrage zur Pumpe, die nicht mehr läuft und deren Rohr nun verstopft ist",
        "a@b.de",
    )
    said = {"plain": "Sie läuft nicht.\n", "html": "<p>Sie <b>läuft</b> nicht.</p>"}
    if forms[0] == "empty":
        mail.set_content(" \n")
        mail.add_alternative(said["html"], subtype="html")
    else:
        mail.set_content(said[forms[0]], subtype=forms[0], charset="iso-8859-1")
        for form in forms[1:]:
            mail.add_alternative("<p>other</p>", subtype=form)
    mail.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="a.pdf")
    (tmp_path / "a.eml").write_bytes(mail.as_bytes())
    page = read_page(tmp_path / "a.eml")
    assert (page.title, [section.text.strip() for section in page.sections]) == (mail["Subject"], ["Sie läuft nicht."])


def test_mails_that_have_no_text_or_another_than_they_say(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(b"Subject: a\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nl\xe4uft nicht\r\n")
    (tmp_path / "b.eml").write_bytes(b"Subject: b\r\nContent-Type: image/png\r\n\r\nabc\r\n")
    (tmp_path / "c.eml").write_bytes(b"")
    for name in "ac":
        with pytest.raises(UnreadableError):
            read_page(tmp_path / f"{name}.eml")
    reader = DocumentReader(str(tmp_path))
    assert [*reader] == []
    assert reader.counts == {"unreadable": 2, "empty": 1}
