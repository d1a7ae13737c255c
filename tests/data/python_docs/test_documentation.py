from __future__ import annotations

from pathlib import Path

from hf_dense.data.collections import load_corpus
from hf_dense.data.passages import pretoken_counter
from hf_dense.data.python_docs.collection import collect, write_tables
from hf_dense.data.python_docs.docstrings import Document, Reading
from hf_dense.data.python_docs.documentation import read_documentation
from hf_dense.data.python_docs.prose import Prose


def test_every_summary_is_a_passage_of_its_documents(tmp_path: Path) -> None:
    body = "The body of number {} says something of its own."
    documents = [
        Document("p.Timer", "p", Prose("Call a function after some seconds.", (body.format(1), body.format(2)))),
        Document("p.alike", "p", Prose("Call a function after some seconds", (body.format(3),))),
        Document("p.short", "p", Prose("Here.", (body.format(4),))),  # too short for a query: it stays in its passage
    ]
    write_tables(tmp_path, collect(Reading(documents, files=1, unreadable_files=0), 64, pretoken_counter()))
    passages, documentation = load_corpus(tmp_path), read_documentation(tmp_path)
    assert not any("Call" in text for text in passages["text"])
    assert documentation["id"][: len(passages)] == passages["id"][:]
    assert documentation.select(range(len(passages), len(documentation))).to_list() == [
        {"id": f"{name}#summary", "title": name, "text": "Call a function after some seconds."}
        for name in ("p.Timer", "p.alike")
    ]
