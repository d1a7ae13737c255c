"""A corpus built here is published and loaded by name, and can be pre-trained on from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from json_lines import write_lines

BUILD = """
import json, sys
from hf_dense.commands.main import main
main(["data", "passages", sys.argv[1], "--out", "out", "--length", "20", "--push_to_hub", "someone/passages"])
print(json.dumps({}))
"""

LOAD = """
import json
from datasets import load_dataset
from hf_dense.data.documents import DocumentReader
from hf_dense.data.corpus import load_passages, stream_passages
rows = load_dataset("someone/passages", "corpus", split="corpus")
streamed = load_dataset("someone/passages", "corpus", split="corpus", streaming=True)
print(json.dumps({
    "columns": rows.column_names,
    "texts": rows["text"][:],
    "streamed": [row["text"] for row in streamed],
    "loaded": load_passages("someone/passages")["text"][:],
    "trained on as a stream": [row["text"] for row in stream_passages("someone/passages")],
    "documents": [document.text for document in DocumentReader("someone/passages:corpus", split="corpus")],
}))
"""


@pytest.mark.slow  # it starts a process of its own
def test_a_corpus_travels_through_the_hub(hub_client: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    source = tmp_path / "docs.jsonl"
    sentences = [f"Sentence number {number} says something." for number in range(12)]
    write_lines(source, ({"id": str(at), "text": text} for at, text in enumerate(sentences)))
    hub_client(BUILD, str(source))
    found = hub_client(LOAD)
    assert found["columns"] == ["id", "title", "text", "document", "position"]
    for name in ("texts", "streamed", "loaded", "trained on as a stream", "documents"):
        assert found[name] == sentences, name
