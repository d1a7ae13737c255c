"""Hard negatives: found by the model's own similarity, nothing that may be relevant among them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from manifests import manifest_of
from pyarrow import parquet
from sentence_transformers import CrossEncoder, SentenceTransformer
from tiny_retriever import random_words, write_cross_encoder, write_retriever
from watched import Watched

import hf_dense.search.dense as vectors_module
from hf_dense.data.schemas import ANSWERED, TRAINING
from hf_dense.errors import InputError
from hf_dense.finetuning import mining
from hf_dense.finetuning.lists import load_entries
from hf_dense.finetuning.mining import mine_negatives
from hf_dense.hub.loading import load_retriever
from hf_dense.storage.output import Output

WORDS = random_words(200)
# p1 says the same as p0, and p2 nearly.
LONG = " ".join(random_words(60, seed=1))
TEXTS = [
    LONG,
    ". " + LONG.upper(),
    "zzzz " + LONG.split(maxsplit=1)[1],
    *(f"{first} {second}" for first, second in pairwise(WORDS)),
][:60]
QUERIES = {"q0": " ".join(LONG.split()[:4]), "q1": TEXTS[5], "q2": TEXTS[9]}
JUDGED = [("q0", "p0", 1), ("q1", "p5", 1), ("q1", "p6", 2), ("q1", "p7", 0), ("q2", "p9", 1)]


def write_collection(
    folder: Path, answers: dict[str, list[str]] | None = None, judged: list[tuple[str, str, int]] = JUDGED
) -> Path:
    for name in ("corpus", "queries", "qrels"):
        (folder / name).mkdir(parents=True)
    ids = [f"p{at}" for at in range(len(TEXTS))]
    documents = [f"d{at // 2}" for at in range(len(TEXTS))]
    corpus = {"id": ids, "title": [""] * len(ids), "text": TEXTS, "document": documents}
    parquet.write_table(pa.table(corpus), folder / "corpus" / "part.parquet")
    rows = [{"id": name, "text": text, "answers": (answers or {}).get(name, [])} for name, text in QUERIES.items()]
    table = pa.Table.from_pylist(rows, schema=ANSWERED.arrow_schema)
    parquet.write_table(table if answers else table.drop_columns("answers"), folder / "queries" / "part.parquet")
    query, passage, score = zip(*judged, strict=True)
    table = pa.table({"query-id": query, "corpus-id": passage, "score": pa.array(score, pa.int32())})
    parquet.write_table(table, folder / "qrels" / "train.parquet")
    return folder


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    return write_collection(tmp_path / "data")


@pytest.fixture
def retriever(tmp_path: Path) -> SentenceTransformer:
    return load_retriever(write_retriever(tmp_path / "model"))


def mine(model: Any, collection: Path, out: Path, **named: Any) -> dict[str, dict[str, Any]]:
    assert mine_negatives(model, collection, out, **named) == out
    assert not Path(f"{out}.partial").exists()
    table = parquet.read_table(out / "negatives" / "train.parquet")
    assert table.schema.names == list(TRAINING)
    return {row["query_id"]: row for row in table.to_pylist()}


def similarities(retriever: SentenceTransformer, query: str) -> np.ndarray:
    return retriever.similarity(retriever.encode_query([query]), retriever.encode_document(TEXTS))[0].numpy()


def left_out(out: Path, reason: str) -> int:
    line = next(line for line in (out / "README.md").read_text().splitlines() if f"hits left out: {reason}" in line)
    return int(line.split("|")[2].replace(",", ""))


@pytest.mark.parametrize("kind", ["exact", "flat"])
def test_negatives_are_the_best_hits_without_positives_and_their_copies(
    retriever: SentenceTransformer, collection: Path, tmp_path: Path, kind: str
) -> None:
    rows = mine(retriever, collection, tmp_path / "out", depth=20, kind=kind)
    forbidden = {"q0": {0, 1, 2}, "q1": {5, 6}, "q2": {9}}
    assert list(rows) == list(forbidden)
    for name, row in rows.items():
        scores = similarities(retriever, QUERIES[name])
        expected = [at for at in np.argsort(-scores) if at not in forbidden[name]][:20]
        assert row["negatives"] == [f"p{at}" for at in expected]
        np.testing.assert_allclose(row["negative_scores"], scores[expected], rtol=1e-4)
        assert row["positive_scores"] == []
    assert rows["q1"]["positives"] == ["p5", "p6"]
    assert [entry.id for entry in load_entries(tmp_path / "out")] == list(forbidden)


def test_a_dot_product_model_is_mined_by_dot_product(
    retriever: SentenceTransformer, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passage p30 is made far longer than the others, and far from the query by angle."""
    encode = retriever.encode_document
    query = retriever.encode_query([QUERIES["q2"]])[0]
    across = np.roll(query, 1) - query * (np.roll(query, 1) @ query) / (query @ query)
    long = 100 * (query + 3 * across / np.linalg.norm(across) * np.linalg.norm(query))

    def stretched(texts: list[str], **named: Any) -> np.ndarray:
        rows = [long if text == TEXTS[30] else row for text, row in zip(texts, encode(texts), strict=True)]
        return np.stack(rows)

    monkeypatch.setattr(retriever, "encode_document", stretched)
    by_product = mine(retriever, collection, tmp_path / "dot", depth=5)
    retriever.similarity_fn_name = "cosine"
    by_angle = mine(retriever, collection, tmp_path / "cosine", depth=5)
    assert by_product["q2"]["negatives"][0] == "p30"
    assert by_angle["q2"]["negatives"][0] != "p30"
    assert max(by_angle["q2"]["negative_scores"]) <= 1.0001


def test_passages_with_an_answer_are_left_out(retriever: SentenceTransformer, tmp_path: Path) -> None:
    answers = {"q1": [TEXTS[20].upper()], "q2": [TEXTS[30].split()[0], "nowhere"]}
    rows = mine(retriever, write_collection(tmp_path / "data", answers), tmp_path / "out", depth=100)
    plain = mine(retriever, write_collection(tmp_path / "plain"), tmp_path / "all", depth=100)
    gone = {name: set(plain[name]["negatives"]) - set(row["negatives"]) for name, row in rows.items()}
    assert gone == {"q0": set(), "q1": {"p20"}, "q2": {"p29", "p30"}}
    assert left_out(tmp_path / "out", "passages with an answer") == 3


def test_the_highest_are_skipped(retriever: SentenceTransformer, collection: Path, tmp_path: Path) -> None:
    whole = mine(retriever, collection, tmp_path / "whole", depth=12)
    rows = mine(retriever, collection, tmp_path / "out", depth=8, skip=4)
    assert {name: row["negatives"] for name, row in rows.items()} == {
        name: row["negatives"][4:] for name, row in whole.items()
    }
    assert left_out(tmp_path / "out", "the 4 highest") == 12


def test_a_margin_leaves_out_what_is_as_similar_as_a_positive(
    retriever: SentenceTransformer, collection: Path, tmp_path: Path
) -> None:
    whole = mine(retriever, collection, tmp_path / "whole", depth=100)
    positives = {"q0": [0], "q1": [5, 6], "q2": [9]}
    best = {name: similarities(retriever, QUERIES[name])[places].max() for name, places in positives.items()}
    margin = float(best["q2"] - np.mean(whole["q2"]["negative_scores"]))
    rows = mine(retriever, collection, tmp_path / "out", depth=100, margin=margin)
    gone = 0
    for name, row in rows.items():
        pairs = zip(whole[name]["negatives"], whole[name]["negative_scores"], strict=True)
        assert row["negatives"] == [passage for passage, score in pairs if score <= best[name] - margin]
        gone += len(whole[name]["negatives"]) - len(row["negatives"])
    assert len(rows["q2"]["negatives"]) < len(whole["q2"]["negatives"])
    assert left_out(tmp_path / "out", "similarity above the best positive's") == gone


def test_a_cross_encoder_leaves_out_what_it_finds_relevant(
    retriever: SentenceTransformer, collection: Path, tmp_path: Path
) -> None:
    reader = write_cross_encoder(tmp_path / "reader")
    whole = mine(retriever, collection, tmp_path / "whole", depth=100)
    model = CrossEncoder(str(reader))
    kept = {}
    for name, row in whole.items():
        read = [*row["negatives"], *row["positives"]]
        pairs = [(QUERIES[name], TEXTS[int(passage[1:])]) for passage in read]
        scores = model.predict(pairs, activation_fn=torch.nn.Identity())
        bound = scores[len(row["negatives"]) :].max() - 0.01
        kept[name] = [passage for passage, score in zip(row["negatives"], scores, strict=False) if score < bound]
    rows = mine(retriever, collection, tmp_path / "out", depth=100, filter_by=reader, filter_margin=0.01)
    assert {name: row["negatives"] for name, row in rows.items()} == kept
    total = sum(len(row["negatives"]) for row in whole.values())
    assert 0 < left_out(tmp_path / "out", "cross-encoder's score") == total - sum(map(len, kept.values())) < total


def test_a_cross_encoder_that_gives_no_number_ends_it(
    retriever: SentenceTransformer, collection: Path, tmp_path: Path
) -> None:
    broken = CrossEncoder(str(write_cross_encoder(tmp_path / "reader")))
    torch.nn.init.constant_(broken.model.classifier.bias, float("nan"))
    broken.save_pretrained(str(tmp_path / "broken"))
    with pytest.raises(InputError, match="is no number; train it again"):
        mine_negatives(retriever, collection, tmp_path / "out", filter_by=tmp_path / "broken")
    assert not (tmp_path / "out").exists()


def test_a_judgement_may_name_a_document(retriever: SentenceTransformer, tmp_path: Path) -> None:
    data = write_collection(tmp_path / "data", judged=[("q1", "d5", 1)])
    rows = mine(retriever, data, tmp_path / "out", depth=100, margin=0.0)
    assert rows["q1"]["positives"] == ["p10"]
    assert not {"p10", "p11"} & set(rows["q1"]["negatives"])
    scores = similarities(retriever, QUERIES["q1"])
    assert max(rows["q1"]["negative_scores"]) <= scores[[10, 11]].max()


def test_a_killed_run_goes_on(
    retriever: SentenceTransformer, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors_module, "BLOCK", 25)
    whole = mine(retriever, collection, tmp_path / "whole")
    watched = Watched(retriever, monkeypatch, most=50)
    with pytest.raises(KeyboardInterrupt):
        mine_negatives(retriever, collection, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    watched.go_on()
    with pytest.raises(InputError, match="holds unfinished work made from another depth"):
        mine_negatives(retriever, collection, tmp_path / "out", depth=5)
    assert not watched.texts
    rows = mine(retriever, collection, tmp_path / "out")
    assert sorted(watched.texts) == sorted(TEXTS[50:])
    assert rows == whole


def test_the_same_again_is_done_and_something_else_refused(
    retriever: SentenceTransformer, collection: Path, tmp_path: Path
) -> None:
    first = mine(retriever, collection, tmp_path / "out", depth=5)
    before = (tmp_path / "out" / "README.md").stat().st_mtime_ns
    assert mine(load_retriever(tmp_path / "model"), collection, tmp_path / "out", depth=5, batch_size=3) == first
    assert (tmp_path / "out" / "README.md").stat().st_mtime_ns == before
    other = write_retriever(tmp_path / "other", seed=1)
    with pytest.raises(InputError, match="was made from another retriever"):
        mine_negatives(other, collection, tmp_path / "out", depth=5)
    with pytest.raises(InputError, match=r"was made from another skip \(0, now 1\)"):
        mine_negatives(retriever, collection, tmp_path / "out", depth=5, skip=1)
    with pytest.raises(InputError, match=r"was made from another precision \(fp32, now bf16\)"):
        mine_negatives(retriever, collection, tmp_path / "out", depth=5, precision="bf16")
    with pytest.raises(InputError, match=r"was made from another max_length \(none, now 4\)"):
        mine_negatives(retriever, collection, tmp_path / "out", depth=5, max_length=4)
    moved = write_collection(tmp_path / "moved", judged=JUDGED[1:])
    with pytest.raises(InputError, match="was made from another collection"):
        mine_negatives(retriever, moved, tmp_path / "out", depth=5)
    mine_negatives(other, collection, Output(tmp_path / "out", overwrite=True), depth=5)
    manifest = manifest_of(tmp_path / "out")
    assert manifest.sources["retriever"] == str(other)
    assert manifest.facts["counts"]["queries"] == 3
    assert manifest.facts["seconds"] > 0


@pytest.mark.parametrize("place", ["data", "model", "thesis"])
def test_what_is_read_and_what_is_foreign_is_not_replaced(
    retriever: SentenceTransformer, collection: Path, tmp_path: Path, place: str
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "README.md").write_text("years of work")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=r"would replace it|was not written by hf_dense"):
        mine_negatives(tmp_path / "model", collection, Output(tmp_path / place, overwrite=True))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_bad_input_leaves_nothing(retriever: SentenceTransformer, collection: Path, tmp_path: Path) -> None:
    unknown = write_collection(tmp_path / "unknown", judged=[("q1", "p99", 1)])
    several = write_cross_encoder(tmp_path / "several", labels=3)
    bare = tmp_path / "model-encoder"
    before = set(tmp_path.iterdir())
    for data, named, sentence in [
        (collection, {"kind": "bm25"}, "kind of search is 'bm25'"),
        (collection, {"kind": "ivfpq"}, "has 60 passages; ivfpq learns from at least 256"),
        (collection, {"depth": 0}, "depth is 0; ask for at least one negative"),
        (collection, {"skip": -1}, "skip is -1"),
        (collection, {"filter_margin": 0.9}, "filter_margin is of the cross-encoder that filter_by names"),
        (collection, {"split": "dev"}, "no relevance judgements for split 'dev'"),
        (unknown, {}, "name the passage 'p99' for query 'q1', which the corpus lacks; complete the"),
        (collection, {"filter_by": tmp_path / "nowhere"}, "There is no model directory"),
        (collection, {"filter_by": several}, "gives 3 scores to a pair"),
        (collection, {"filter_by": bare}, "has no head that scores pairs"),
    ]:
        with pytest.raises(InputError, match=sentence) as caught:
            mine_negatives(retriever, data, tmp_path / "out", **named)
        assert "\n" not in str(caught.value)
        assert set(tmp_path.iterdir()) == before


def test_compressed_vectors_find_and_the_vectors_themselves_decide(
    retriever: SentenceTransformer, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors_module, "_TRAINED_ON", 16)

    def blurred(vectors: vectors_module.Vectors, kind: str) -> Any:
        noise = np.random.default_rng(0)

        def find(queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
            scores, indices = vectors_module.search(queries, vectors, k)
            rough = scores + noise.normal(0, 1, scores.shape).astype(np.float32)
            order = np.argsort(-rough, axis=1)
            return np.take_along_axis(rough, order, 1), np.take_along_axis(indices, order, 1)

        return find

    monkeypatch.setattr(mining, "searcher", blurred)
    rows = mine(retriever, collection, tmp_path / "out", depth=20, kind="ivfpq")
    for name, row in rows.items():
        scores = similarities(retriever, QUERIES[name])
        at = [int(passage.removeprefix("p")) for passage in row["negatives"]]
        np.testing.assert_allclose(row["negative_scores"], scores[at], rtol=1e-4)
        assert row["negative_scores"] == sorted(row["negative_scores"], reverse=True)
