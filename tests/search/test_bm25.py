from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from hf_dense.search.bm25 import LexicalIndex


@pytest.mark.parametrize("passages", ["NFC", "NFD"])
@pytest.mark.parametrize("queries", ["NFC", "NFD"])
def test_accents_are_found_however_they_are_written(passages: str, queries: str, tmp_path: Path) -> None:
    texts = [unicodedata.normalize(passages, text) for text in ("Müller übt Flöte", "Maller ibt Flate", "mu ller")]
    query = unicodedata.normalize(queries, "müller")
    index = LexicalIndex.build(texts, tmp_path / "index")
    scores, indices = index.search([query], 3)
    assert indices[0, 0] == 0
    assert (scores[0] > 0).tolist() == [True, False, False]
    assert (index.scores(query, indices[0]) == scores[0]).all()
