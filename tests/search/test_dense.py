"""Corpora in vectors: exact search against numpy, indexes of FAISS, and vectors that are never stale."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tiny_retriever import random_words, write_retriever
from watched import Watched

import hf_dense.search.dense as vectors_module
from hf_dense.errors import InputError
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.retriever_settings import set_lengths
from hf_dense.search.dense import (
    Floats,
    Known,
    Vectors,
    check_kind,
    devices_for,
    encode_corpus,
    encode_queries,
    search,
    searcher,
)

TEXTS = [" ".join(random_words(1 + at % 5, seed=at)) for at in range(50)]


def random_vectors(rows: int, seed: int, dimensions: int = 16) -> Floats:
    return np.random.default_rng(seed).standard_normal((rows, dimensions), dtype=np.float32)


def write_blocks(folder: Path, corpus: Floats, size: int) -> Vectors:
    files = []
    for start in range(0, len(corpus), size):
        files.append(folder / f"{start}.npy")
        np.save(files[-1], corpus[start : start + size])
    return Vectors(tuple(files))


def retriever_of(folder: Path, seed: int = 0, similarity: str = "dot") -> SentenceTransformer:
    return load_retriever(write_retriever(folder, seed, similarity))


@pytest.mark.parametrize("block", [1, 7, 100, 1000])
@pytest.mark.parametrize(("rows_at_once", "queries_at_once"), [(3, 2), (64, 5), (20_000, 1024)])
@pytest.mark.parametrize("k", [1, 10])
def test_exact_search_is_that_of_numpy(
    block: int, rows_at_once: int, queries_at_once: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors_module, "BLOCK", rows_at_once)
    monkeypatch.setattr(vectors_module, "_QUERIES", queries_at_once)
    corpus, queries = random_vectors(150, 0), random_vectors(11, 1)
    scores, indices = search(queries, [corpus[start : start + block] for start in range(0, 150, block)], k, "cpu")
    expected = np.argsort(-(queries @ corpus.T), axis=1)[:, :k]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(scores, np.take_along_axis(queries @ corpus.T, expected, axis=1), rtol=1e-5)


def test_a_corpus_smaller_than_k_is_found_whole() -> None:
    corpus, queries = random_vectors(5, 0), random_vectors(3, 1)
    scores, indices = search(queries, [corpus[:2], corpus[2:]], 9)
    assert scores.shape == indices.shape == (3, 5)
    assert (np.sort(indices, axis=1) == np.arange(5)).all()


@pytest.mark.parametrize(("kind", "least"), [("flat", 1.0), ("hnsw", 0.9), ("ivfpq", 0.3)])
def test_indexes_find_what_exact_search_finds(tmp_path: Path, kind: str, least: float) -> None:
    vectors, queries = write_blocks(tmp_path, random_vectors(1500, 0), 400), random_vectors(20, 1)
    scores, indices = searcher(vectors)(queries, 10)
    other_scores, other_indices = searcher(vectors, kind)(queries, 10)
    shared = np.mean([np.isin(found, other).mean() for found, other in zip(indices, other_indices, strict=True)])
    assert shared >= least
    if kind == "flat":
        np.testing.assert_array_equal(indices, other_indices)
        np.testing.assert_allclose(scores, other_scores, rtol=1e-5)


@pytest.mark.parametrize("kind", ["exact", "flat"])
def test_more_may_be_asked_for_than_memory_holds(tmp_path: Path, kind: str) -> None:
    vectors, queries = write_blocks(tmp_path, random_vectors(50, 0), 20), random_vectors(3, 1)
    scores, indices = searcher(vectors, kind)(queries, 10**20)
    assert scores.shape == (3, 50)
    assert (np.sort(indices, axis=1) == np.arange(50)).all()


def test_kinds_that_cannot_be_searched() -> None:
    with pytest.raises(InputError, match="'bm25'; choose one of exact, flat, ivfpq, hnsw"):
        check_kind("bm25", 1000)
    with pytest.raises(InputError, match="has 40 passages; ivfpq learns from at least 256"):
        check_kind("ivfpq", 40)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_inner_products_are_the_models_similarity(
    tmp_path: Path, similarity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors_module, "BLOCK", 20)
    retriever = retriever_of(tmp_path / "model", similarity=similarity)
    vectors = encode_corpus(retriever, TEXTS, tmp_path / "vectors", batch_size=4)
    assert [len(block) for block in vectors] == [20, 20, 10]
    queries = encode_queries(retriever, TEXTS[:3])
    expected = retriever.similarity(retriever.encode_query(TEXTS[:3]), retriever.encode_document(TEXTS))
    np.testing.assert_allclose(queries @ np.concatenate(list(vectors)).T, expected, atol=1e-4)
    indices = np.array([49, 0, 21, 20])
    np.testing.assert_array_equal(vectors.take(indices), np.concatenate(list(vectors))[indices])


def test_other_similarities_are_refused(tmp_path: Path) -> None:
    retriever = retriever_of(tmp_path / "model")
    retriever.similarity_fn_name = "euclidean"
    with pytest.raises(InputError, match="similarity is 'euclidean'; search needs dot or cosine"):
        encode_corpus(retriever, TEXTS, tmp_path / "vectors")
    assert not (tmp_path / "vectors").exists()


def test_vectors_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    retriever = retriever_of(tmp_path / "model")
    with torch.no_grad():
        next(retriever.parameters()).fill_(torch.nan)
    with pytest.raises(InputError, match="numbers that are none"):
        encode_queries(retriever, TEXTS[:1])


def test_a_killed_run_goes_on_after_the_last_whole_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors_module, "BLOCK", 10)
    retriever = retriever_of(tmp_path / "model")
    whole = np.concatenate(list(encode_corpus(retriever, TEXTS, tmp_path / "whole")))
    watched = Watched(retriever, monkeypatch, most=30)
    with pytest.raises(KeyboardInterrupt):
        encode_corpus(retriever, TEXTS, tmp_path / "cut")
    assert sorted(watched.texts) == sorted(TEXTS[:30])
    watched.go_on()
    resumed = encode_corpus(retriever, TEXTS, tmp_path / "cut")
    assert sorted(watched.texts) == sorted(TEXTS[30:])
    np.testing.assert_array_equal(np.concatenate(list(resumed)), whole)


def test_known_vectors_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = retriever_of(tmp_path / "model")
    whole = np.concatenate(list(encode_corpus(retriever, TEXTS, tmp_path / "whole")))
    other = write_blocks(tmp_path, random_vectors(30, 0, dimensions=32), 7)
    monkeypatch.setattr(vectors_module, "BLOCK", 20)
    rows = np.full(50, -1)
    rows[20:40] = np.arange(20)[::-1]  # a whole block,
    rows[45] = 29  # one of several, and none
    found = np.concatenate(list(encode_corpus(retriever, TEXTS, tmp_path / "some", known=Known(other, rows))))
    copied = rows >= 0
    np.testing.assert_array_equal(found[copied], other.take(rows[copied]))
    np.testing.assert_allclose(found[~copied], whole[~copied], atol=1e-5)


def test_texts_of_as_many_tokens_are_encoded_together(tmp_path: Path) -> None:
    retriever = retriever_of(tmp_path / "model")
    texts = [
        "a" * 9,
        "a a",
        "a " * 9,
        "a" * 8 + " a",
        "a a a",
        "a " * 30,
    ]  # a letter is a token, and so is a word's part
    shapes: list[tuple[int, ...]] = []
    hook = retriever[0].register_forward_pre_hook(lambda _, given: shapes.append(given[0]["input_ids"].shape))
    found = np.concatenate(list(encode_corpus(retriever, texts, tmp_path / "vectors", batch_size=2)))
    hook.remove()
    assert shapes == [(2, shapes[0][1]), (2, 11), (2, 5)]
    np.testing.assert_allclose(found, retriever.encode_document(texts), atol=1e-5)


@pytest.mark.parametrize(("longest", "said"), [(16, True), (28, False), (10**30, False)])
def test_what_a_model_does_not_read_of_passages_is_said(
    longest: int, said: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    retriever = retriever_of(tmp_path / "model")
    retriever.max_seq_length = longest
    encode_corpus(retriever, ["a " * 28, "a a", "a " * 10], tmp_path / "vectors")  # 30, 4 and 12 tokens
    sentence = "The model reads 16 tokens of a text, and 1 of 3 passages are longer: 30 % of all tokens are not read."
    assert (sentence in caplog.text) == said == ("not read" in caplog.text)


def test_what_a_model_does_not_read_of_queries_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    retriever = retriever_of(tmp_path / "model")
    encode_queries(retriever, ["a " * 14])
    assert "not read" not in caplog.text
    set_lengths(retriever, 64, 8)
    encode_queries(retriever, ["a " * 14, "a a"])  # 16 and 4 tokens
    sentence = "The model reads 8 tokens of a text, and 1 of 2 queries are longer: 40 % of all tokens are not read."
    assert sentence in caplog.text


@pytest.mark.slow
def test_several_devices_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = retriever_of(tmp_path / "model")
    monkeypatch.setattr(vectors_module, "BLOCK", 30)
    found = []
    for devices in ([], ["cpu", "cpu"]):
        monkeypatch.setattr(vectors_module, "devices_for", lambda *_, devices=devices: devices)
        found.append(np.concatenate(list(encode_corpus(retriever, TEXTS, tmp_path / str(len(devices)), 4))))
    np.testing.assert_allclose(*found, atol=1e-6)


@pytest.mark.parametrize(
    ("count", "texts", "world", "expected"),
    [(2, 20_000, "1", ["cuda:0", "cuda:1"]), (2, 19_999, "1", []), (1, 20_000, "1", []), (2, 20_000, "2", [])],
)
def test_all_gpus_encode_where_that_is_worth_it(
    count: int, texts: int, world: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setenv("WORLD_SIZE", world)
    on_gpu, on_cpu = (SimpleNamespace(device=torch.device(name)) for name in ("cuda", "cpu"))
    assert devices_for(on_gpu, texts) == expected  # type: ignore[arg-type]
    assert devices_for(on_cpu, texts) == []  # type: ignore[arg-type]
