"""Candidates by small vectors, scores by the float ones: how much is found, with what scores, in how many bytes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy as np
import pytest
from sentence_transformers.util.quantization import quantize_embeddings

from hf_dense.errors import InputError
from hf_dense.search.approximate import KINDS, CandidateIndex, check_index_kind, rescore
from hf_dense.search.dense import Floats, Vectors, search

LEAST = {"hnsw": 0.98, "ivfpq": 0.98, "int8": 0.99, "binary": 0.6}  # shares of the nearest


def write_vectors(folder: Path, passages: Floats, size: int = 1000) -> Vectors:
    for number, start in enumerate(range(0, len(passages), size)):
        np.save(folder / f"vectors-{number:05d}.npy", passages[start : start + size])
    return Vectors.stored(folder)


def clustered(rows: int, dimensions: int, seed: int) -> Floats:
    """Vectors of unit length around a few centres, whose dimensions have different widths."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((12, dimensions))
    found = centres[draw.integers(12, size=rows)] + 0.5 * draw.standard_normal((rows, dimensions))
    found *= np.linspace(0.5, 2, dimensions)
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind == "ivfpq" else kind for kind in KINDS[1:]]
)
def test_a_kind_finds_most_of_the_nearest_with_their_own_scores(kind: str, tmp_path: Path) -> None:
    passages, queries = clustered(4000, 128, seed=1), clustered(20, 128, seed=2)
    vectors = write_vectors(tmp_path, passages)
    CandidateIndex.build(vectors, kind).save(tmp_path)
    for wanted in (10, 100):
        scores, rows = CandidateIndex.load(tmp_path, kind).search(queries, wanted, vectors)
        _, nearest = search(queries, vectors, wanted, "cpu")
        found = np.mean([np.isin(some, other).mean() for some, other in zip(nearest, rows, strict=True)])
        assert found >= LEAST[kind]
        np.testing.assert_allclose(scores, np.take_along_axis(queries @ passages.T, rows, axis=1), rtol=1e-4, atol=1e-4)
        assert (np.diff(scores, axis=1) <= 0).all()


@pytest.mark.parametrize(("kind", "dimensions", "least"), [("int8", 20, 20), ("binary", 20, 3), ("hnsw", 16, 64 + 256)])
def test_bytes_of_a_passage(kind: str, dimensions: int, least: int, tmp_path: Path) -> None:
    """The binary vectors of 20 dimensions fill three bytes."""
    vectors = write_vectors(tmp_path, clustered(1000, dimensions, seed=1))
    CandidateIndex.build(vectors, kind).save(tmp_path)
    assert least <= (tmp_path / "vectors.faiss").stat().st_size / 1000 <= least + 20
    rows = CandidateIndex.load(tmp_path, kind).search(clustered(1, dimensions, seed=2), 5, vectors)[1]
    assert len(set(rows[0].tolist()) - {-1}) == 5


def test_threads_that_want_a_few_and_many_passages_find_as_many_as_they_want(tmp_path: Path) -> None:
    vectors, queries = write_vectors(tmp_path, clustered(2000, 16, seed=1)), clustered(400, 16, seed=2)
    index = CandidateIndex.build(vectors, "hnsw")

    def least(place: int) -> bool:
        rows = index.search(queries[place : place + 1], (1, 400)[place % 2], vectors)[1]
        return bool((rows >= 0).all())

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(least, range(len(queries))))


def test_bytes_and_bits_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    passages = clustered(500, 20, seed=1)
    vectors = write_vectors(tmp_path, passages, 200)
    for kind, precision, width in (("int8", "uint8", 20), ("binary", "ubinary", 3)):
        index = CandidateIndex.build(vectors, kind).index
        codes = faiss.vector_to_array(index.codes if kind == "int8" else index.xb).reshape(500, width)
        expected = quantize_embeddings(passages, precision, np.stack([passages.min(axis=0), passages.max(axis=0)]))
        assert (codes == expected).mean() > 0.999  # a value on the edge of two codes may have either


def test_a_dimension_of_one_value_and_one_passage(tmp_path: Path) -> None:
    vectors = write_vectors(tmp_path, np.ones((1, 8), dtype=np.float32))
    for kind in ("hnsw", "int8", "binary"):
        scores, rows = CandidateIndex.build(vectors, kind).search(np.ones((2, 8), dtype=np.float32), 5, vectors)
        assert (scores.tolist(), rows.tolist()) == ([[8.0]] * 2, [[0]] * 2)


def test_candidates_that_are_none_stay_out(tmp_path: Path) -> None:
    vectors = write_vectors(tmp_path, np.eye(4, dtype=np.float32))
    queries = np.array([[0, 1, 2, 3], [3, 2, 1, 0]], dtype=np.float32)
    scores, rows = rescore(queries, np.array([[-1, 1, 3, -1], [2, -1, -1, -1]]), vectors, 3)
    np.testing.assert_array_equal(rows, [[3, 1, -1], [2, -1, -1]])
    np.testing.assert_array_equal(scores, [[3, 1, -np.inf], [1, -np.inf, -np.inf]])


def test_kinds_that_are_none() -> None:
    with pytest.raises(InputError, match="'flat'; choose one of exact, hnsw, ivfpq, int8, binary"):
        check_index_kind("flat", 1000)
    with pytest.raises(InputError, match="has 40 passages; ivfpq learns from at least 256"):
        check_index_kind("ivfpq", 40)
