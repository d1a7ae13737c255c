"""The index of hybrid vectors finds what equation 12 finds, from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tiny_retriever import random_words, write_hybrid
from watched import Watched

from hf_dense import InputError
from hf_dense.hub.hybrid import load_hybrid
from hf_dense.search import hybrid as hybrid_search
from hf_dense.search.hybrid import HybridIndex, bytes_per_passage, write_hybrid_vectors

DENSE, SPARSE, VOCABULARY = 8, 98, 100  # more words kept than have scores above 0
TEXTS = [f"{word} {word[:2]}" for word in random_words(50)]
QUERIES = [word[:3] for word in random_words(7, seed=1)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformer:
    return load_hybrid(write_hybrid(tmp_path_factory.mktemp("hybrid"), DENSE, SPARSE)).to("cpu")


def expected_scores(model: SentenceTransformer) -> np.ndarray:
    """(queries, passages) of the plain reference, the passages sparsified here."""
    queries, passages = (torch.from_numpy(model.encode_query(texts)) for texts in (QUERIES, TEXTS))
    best = passages[:, DENSE:].topk(SPARSE)
    found = queries[:, DENSE:][:, best.indices]  # (queries, passages, SPARSE)
    return (queries[:, :DENSE] @ passages[:, :DENSE].T + (found * best.values).sum(-1)).numpy()


def written(model: SentenceTransformer, texts: list[str], folder: Path, batch_size: int = 1) -> HybridIndex:
    folder.mkdir()
    write_hybrid_vectors(model, texts, folder, batch_size)
    return HybridIndex.load(folder)


@pytest.mark.parametrize("small", [False, True])
def test_search_is_equation_12(
    model: SentenceTransformer, small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small:  # blocks that do not divide the passages, nor the queries
        monkeypatch.setattr(hybrid_search, "_BLOCK", 13)
        monkeypatch.setattr(hybrid_search, "_QUERIES", 3)
    index = written(model, TEXTS, tmp_path / "index")
    assert isinstance(index.dense, np.memmap)
    assert index.tokens.dtype == np.uint16
    assert (index.values < 0).any()
    queries, expected = model.encode_query(QUERIES), expected_scores(model)
    scores, indices = index.search(queries, len(TEXTS))
    np.testing.assert_allclose(scores, np.take_along_axis(expected, indices, axis=1), rtol=1e-5, atol=1e-5)
    assert (np.sort(indices, axis=1) == np.arange(len(TEXTS))).all()
    best, at = index.search(queries, 5)
    np.testing.assert_array_equal(best, scores[:, :5])
    np.testing.assert_array_equal(at, np.argsort(-expected, axis=1)[:, :5])
    assert index.search(queries, 1000)[0].shape == (len(QUERIES), len(TEXTS))


def test_what_is_stored_takes_the_bytes_that_are_stated(model: SentenceTransformer, tmp_path: Path) -> None:
    index = written(model, TEXTS, tmp_path / "index")
    stated = bytes_per_passage(DENSE, SPARSE, VOCABULARY)
    assert index.bytes_per_passage == stated
    files = sum((tmp_path / "index" / f"{name}.npy").stat().st_size for name in ("dense", "values", "tokens"))
    assert files - 3 * 128 == stated * len(TEXTS) == stated * len(index)
    assert bytes_per_passage(0, 10, 65_536) == 60
    assert bytes_per_passage(0, 10, 65_537) == 80


def test_bad_input_is_one_sentence(model: SentenceTransformer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no index of hybrid vectors"):
        HybridIndex.load(tmp_path / "index")
    with pytest.raises(InputError, match="batch_size is 0; at least one text"):
        write_hybrid_vectors(model, TEXTS[:3], tmp_path, batch_size=0)
    index = written(model, TEXTS[:3], tmp_path / "index")
    with pytest.raises(InputError, match="k is 0"):
        index.search(model.encode_query(QUERIES), 0)
    with pytest.raises(InputError, match="vectors of 20 numbers, the index of 108"):
        index.search(np.zeros((1, 20), dtype=np.float32), 1)


def test_writing_that_was_interrupted_goes_on(
    model: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = written(model, TEXTS, tmp_path / "whole")
    watched = Watched(model, monkeypatch, most=32)
    with pytest.raises(KeyboardInterrupt):
        written(model, TEXTS, tmp_path / "index")
    with pytest.raises(InputError, match="no index of hybrid vectors"):
        HybridIndex.load(tmp_path / "index")
    assert watched.texts == TEXTS[:32]
    watched.go_on()
    write_hybrid_vectors(model, TEXTS, tmp_path / "index", batch_size=1)
    assert watched.texts == TEXTS[32:]
    index = HybridIndex.load(tmp_path / "index")
    for name in ("dense", "values", "tokens"):
        np.testing.assert_array_equal(getattr(index, name), getattr(whole, name))
    assert {file.name for file in (tmp_path / "index").iterdir()} == {
        file.name for file in (tmp_path / "whole").iterdir()
    }
