from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, concatenate_datasets
from manifests import manifest_of
from sentence_transformers import SentenceTransformer
from tiny_retriever import write_dataset, write_hybrid, write_retriever
from watched import Watched

from hf_dense import InputError
from hf_dense.data.collections import load_corpus
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.evaluation.index_kinds import compare_kinds
from hf_dense.hub.loading import load_retriever
from hf_dense.search import dense, hybrid, index_building
from hf_dense.search import index as index_module
from hf_dense.search.approximate import KINDS
from hf_dense.search.dense import Vectors
from hf_dense.search.first_stage import open_search
from hf_dense.search.fusion import fuse
from hf_dense.search.index import Hit, SearchIndex, Update, build_index, update_index
from hf_dense.storage.output import Output


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load_corpus(write_dataset(tmp_path_factory.mktemp("dataset") / "beir", passages=200))


def found(index: SearchIndex) -> list[list[Hit]]:
    """The hits of some questions, their scores rounded."""
    many = index.search_many(["abc", "q w e r t y", "zzzz zz"], 7)
    return [[Hit(round(hit.score, 3), hit.id, hit.title, hit.text) for hit in hits] for hits in many]


def vectors_in(index: Path) -> np.ndarray:
    return np.concatenate(list(Vectors.stored(index)))


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_hits_are_the_models_own_top_k(similarity: str, corpus: Dataset, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "model", similarity=similarity)
    index = SearchIndex.load(build_index(model, corpus, model / "index"))
    assert repr(index) == f"<exact index of 200 passages in {model / 'index'}>"

    loaded = SentenceTransformer(str(model))
    texts = [f"{row['title']} {row['text']}" for row in corpus]
    for question in ("abc", "q w e r t y", "zzzz zz"):
        scores = loaded.similarity(loaded.encode([question]), loaded.encode(texts))[0].numpy()
        best = np.argsort(-scores)[:7]
        hits = index.search(question, top_k=7)
        assert [hit.id for hit in hits] == [corpus[int(row)]["id"] for row in best]
        assert [hit.score for hit in hits] == pytest.approx(scores[best].tolist(), rel=1e-5)
        assert (hits[0].title, hits[0].text) == (corpus[int(best[0])]["title"], corpus[int(best[0])]["text"])


def test_index_may_live_elsewhere_and_top_k_may_exceed_it(corpus: Dataset, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "model")
    build_index(model, corpus.select(range(3)), tmp_path / "elsewhere")
    index = SearchIndex.load(tmp_path / "elsewhere", model)
    assert len(index) == 3
    assert len(index.search("abc", top_k=50)) == 3


def test_it_is_opened_by_places_too(corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_retriever(tmp_path / "model")
    build_index(model, corpus, tmp_path / "index")
    monkeypatch.chdir(tmp_path)
    index = SearchIndex("model", "index")
    assert index.directory == tmp_path / "index"
    assert json.dumps(vars(index.search("abc", top_k=1, weight=np.float32(0.5))[0]))  # plain numbers
    with pytest.raises(InputError, match="not an object of the type int"):
        SearchIndex("model", 3)  # type: ignore[arg-type]


def test_bad_input_is_one_sentence_and_leaves_nothing(corpus: Dataset, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "model")
    for bad, message in (
        (corpus.remove_columns("text"), "no column 'text'"),
        (corpus.select([]), "no passages"),
        (corpus.to_iterable_dataset(), "Passages are given as a Dataset"),
        (corpus.to_list(), "Passages are given as a Dataset"),
        (corpus.to_pandas(), "Passages are given as a Dataset; .* of a DataFrame by from_pandas"),
        (concatenate_datasets([corpus, corpus.select([3])]), "The id 'p3' is that of more than one passage"),
        (corpus.map(lambda row: {"id": None if row["id"] == "p3" else row["id"]}), "A passage has no id"),
    ):
        with pytest.raises(InputError, match=message):
            build_index(model, bad, tmp_path / "index")
    assert not (tmp_path / "index").exists()
    with pytest.raises(InputError, match="is the model, and would replace it"):
        build_index(model, corpus, model)
    for nowhere, name in ((None, "NoneType"), (["index"], "list"), (b"index", "bytes")):
        with pytest.raises(InputError, match=f"A path is wanted, not an object of the type {name}; give a text"):
            build_index(model, corpus, nowhere)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=f"A path is wanted, not an object of the type {name}; give a text"):
            SearchIndex.load(nowhere, model)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Hybrid vectors are searched exactly, not by 'hnsw'; leave the kind out"):
        build_index(write_hybrid(tmp_path / "dupmae", 8, 20), corpus, tmp_path / "index", kind="hnsw")
    with pytest.raises(
        InputError, match=r"no search index in .* with --corpus CORPUS, in Python build_index of hf_dense"
    ):
        SearchIndex.load(tmp_path / "index", model)


@pytest.mark.parametrize("width", [8, 0])
def test_hybrid_vectors_are_found_as_evaluation_finds_them(
    width: int, corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_hybrid(tmp_path / "dupmae", width, 20)
    few, questions = corpus.select(range(60)), ["abc", "q w e r t y", "zzzz zz"]
    index = SearchIndex.load(build_index(model, few, model / "index"))
    find = open_search(model, PassageTexts(few), tmp_path, 64)
    scores, rows = find(questions, 7)
    for hits, best, at in zip(index.search_many(questions, 7), scores, rows, strict=True):
        assert [hit.id for hit in hits] == [few[int(row)]["id"] for row in at]
        assert [hit.score for hit in hits] == pytest.approx(best.tolist())
    assert index.search("abc", weight=0.5)
    manifest = manifest_of(model / "index")
    assert manifest.facts["dimensions"] == width + index.hybrid.vocabulary
    assert manifest.facts["bytes per passage"]["hybrid vectors"] == width * 4 + 20 * 6
    with pytest.raises(InputError, match="has hybrid vectors, which have one kind"):
        compare_kinds(index, "any", "dev")

    encoded: list[str] = []
    encode = hybrid._encode
    monkeypatch.setattr(hybrid, "_encode", lambda *given: encoded.extend(given[2]) or encode(*given))
    after = concatenate_datasets([corpus.select(range(60, 70)), few.select(range(20, 60))])
    assert update_index(model, after, model / "index") == Update(40, 10, 20)
    assert len(encoded) == 10
    anew = SearchIndex.load(build_index(model, after, tmp_path / "anew"), model)
    assert found(SearchIndex.load(model / "index")) == found(anew)


def test_questions_are_read_as_the_passages_were_unless_that_is_said(
    corpus: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = write_retriever(tmp_path / "model")
    plain = build_index(model, corpus, tmp_path / "plain")
    place = build_index(model, corpus, tmp_path / "index", precision="bf16", max_length=6)
    manifest = manifest_of(place)
    assert (manifest.made_from["precision"], manifest.made_from["max_length"]) == ("bf16", 6)
    assert vectors_in(place).dtype == np.float32
    assert np.abs(vectors_in(place) - vectors_in(plain)).max() > 1e-3
    index = SearchIndex.load(place, model)
    assert (index.reading.precision, index.reading.max_length) == ("bf16", 6)
    assert "Questions" not in caplog.text
    other = SearchIndex.load(place, model, precision="fp32")
    assert "Questions are encoded in fp32; the passages were in bf16" in caplog.text
    assert other.search("q w e r t y")[0].score != index.search("q w e r t y")[0].score


def test_vectors_of_two_precisions_are_never_in_one_index(corpus: Dataset, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "model")
    place = build_index(model, corpus.select(range(50)), tmp_path / "index", precision="bf16")
    for change in (build_index, update_index):
        with pytest.raises(InputError, match=r"another precision \(bf16, now fp32\)"):
            change(model, corpus.select(range(50)), place, precision="fp32")
    with pytest.raises(InputError, match=r"another max_length \(none, now 4\)"):
        update_index(model, corpus, place, max_length=4)
    with pytest.raises(InputError, match=r"another precision \(bf16, now fp32\)"):
        build_index(model, corpus, tmp_path / "other", like=place)
    assert update_index(model, corpus, place) == Update(50, 150, 0)  # as the index has it
    np.testing.assert_allclose(
        vectors_in(place), vectors_in(build_index(model, corpus, tmp_path / "anew", precision="bf16")), atol=2e-2
    )


def test_bad_question_is_refused(corpus: Dataset, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "model")
    index = SearchIndex.load(build_index(model, corpus.select(range(3)), model / "index"))
    with pytest.raises(InputError, match="question is empty"):
        index.search("  ")
    with pytest.raises(InputError, match="top_k is 0"):
        index.search("abc", top_k=0)
    with pytest.raises(InputError, match=r"top_k is 2\.0; it must be a whole number"):
        index.search("abc", top_k=2.0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="The question 7 is no text"):
        index.search(7)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="weight is x"):
        index.search("abc", weight="x")  # type: ignore[arg-type]


def test_an_index_of_another_model_or_corpus_is_not_used(corpus: Dataset, tmp_path: Path) -> None:
    mine, other = write_retriever(tmp_path / "mine"), write_retriever(tmp_path / "other", seed=1)
    some, out = corpus.select(range(3)), tmp_path / "index"
    build_index(mine, some, out)
    with pytest.raises(InputError, match=r"made by another model \(.*mine\), or by that one as it was before"):
        SearchIndex.load(out, other)
    with pytest.raises(InputError, match="was made from another model"):
        build_index(other, some, out)
    with pytest.raises(InputError, match="was made from another corpus"):
        build_index(mine, corpus.select(range(1, 4)), out)
    loaded = load_retriever(mine)
    loaded.prompts = {"query": "find ", "document": ""}
    with pytest.raises(InputError, match="made by another model"):
        SearchIndex.load(out, loaded)
    build_index(other, some, Output(out, overwrite=True))
    assert len(SearchIndex.load(out, other)) == 3


def test_the_same_index_is_built_once_wherever_its_model_lies(
    corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = write_retriever(tmp_path / "mine")
    build_index(mine, corpus, tmp_path / "index")
    shutil.copytree(mine, tmp_path / "copy")
    monkeypatch.setattr(index_building, "encode_corpus", None)
    build_index(tmp_path / "copy", corpus, tmp_path / "index")
    assert len(SearchIndex.load(tmp_path / "index", tmp_path / "copy")) == len(corpus)


def test_a_killed_build_goes_on_with_its_vectors(
    corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "BLOCK", 80)
    model = load_retriever(write_retriever(tmp_path / "model"))
    watched = Watched(model, monkeypatch, most=160)
    with pytest.raises(KeyboardInterrupt):
        build_index(model, corpus, tmp_path / "index")
    assert not (tmp_path / "index").exists()
    assert watched.counts == [64, 16, 64, 16]  # batches of two blocks
    watched.go_on()
    build_index(model, corpus, tmp_path / "index")
    assert watched.counts == [40]
    assert not (tmp_path / "index.partial").exists()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_other_kinds_show_the_models_own_scores(kind: str, corpus: Dataset, tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model", similarity="cosine"))
    more = concatenate_datasets([corpus, corpus.map(lambda row: {"id": row["id"] + "b", "title": row["text"]})])
    index = SearchIndex.load(build_index(model, more, tmp_path / kind, kind=kind), model)
    exact = SearchIndex.load(build_index(model, more, tmp_path / "exact"), model)
    similarities = {hit.id: hit.score for hit in exact.search("abc def", top_k=400)}
    hits = index.search("abc def", top_k=10)
    assert len(similarities) == 400
    assert [hit.score for hit in hits] == pytest.approx([similarities[hit.id] for hit in hits], abs=1e-5)
    assert len(hits) == 10
    manifest = manifest_of(tmp_path / kind)
    assert manifest.facts["bytes per passage"].keys() == {"float vectors", "words", kind}
    assert manifest.facts["bytes per passage"]["float vectors"] == 4 * 32


def test_settings_are_checked_before_the_model_is_loaded(corpus: Dataset, tmp_path: Path) -> None:
    for settings, message in (
        ({"kind": "flat"}, "kind of index is 'flat'"),
        ({"kind": "ivfpq"}, "has 200 passages; ivfpq learns from at least 256"),
        ({"weight": 2}, "weight is 2"),
        ({"weight": "0.5"}, "weight is 0.5"),
        ({"kind": ""}, "kind of index is ''"),
        ({"precision": ""}, "precision is ''"),
        ({"max_length": 0}, "max_length is 0"),
    ):
        with pytest.raises(InputError, match=message):
            build_index(tmp_path / "no model", corpus, tmp_path / "index", **settings)  # type: ignore[arg-type]


def test_settings_are_those_of_the_index_that_is_there(corpus: Dataset, tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    build_index(model, corpus, tmp_path / "index", kind="int8", weight=0.5)
    build_index(model, corpus, tmp_path / "index")
    index = SearchIndex.load(tmp_path / "index", model)
    assert (index.kind, index.weight) == ("int8", 0.5)
    with pytest.raises(InputError, match=r"another kind \(int8, now binary\)"):
        build_index(model, corpus, tmp_path / "index", kind="binary")
    with pytest.raises(InputError, match=r"another weight \(0.5, now 1.0\)"):
        build_index(model, corpus, tmp_path / "index", weight=1)


def test_words_and_vectors_are_fused(corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    index = SearchIndex.load(build_index(model, corpus, tmp_path / "index", weight=0.5), model)
    word, other = corpus[150]["title"], corpus[3]["text"].split()[0]
    question = f"{word} {other} {word}"
    dense = {hit.id: hit.score for hit in index.search(question, 100, weight=1)}
    lexical = {hit.id: hit.score for hit in index.search(question, 100, weight=0)}
    assert list(lexical) == [corpus[150]["id"], corpus[3]["id"]]
    assert max(lexical.values()) == 1
    expected = list(fuse(dense, lexical, 0.5).items())[:50]
    hits = index.search(question, 50)
    assert [hit.id for hit in hits] == [name for name, _ in expected]
    assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected], abs=1e-6)
    assert index.search(question, 5, weight=0.5) == hits[:5]
    monkeypatch.setattr(index_module, "encode_queries", None)
    assert index.search("of the", weight=0) == index.search("zzzz", weight=0) == []


def test_more_hits_begin_with_those_of_fewer(corpus: Dataset, tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    index = SearchIndex.load(build_index(model, corpus, tmp_path / "index"), model)
    similar = [hit.id for hit in index.search(corpus[150]["title"], 200, weight=1)]
    question = f"{corpus[150]['title']} {corpus[int(similar[-1][1:])]['title']}"
    similar = [hit.id for hit in index.search(question, 200, weight=1)]
    few, all_ = index.search(question, 50, weight=0.5), index.search(question, 200, weight=0.5)
    assert all_[:50] == few
    assert {hit.id for hit in all_} == {*similar}
    assert [hit.score for hit in all_] == sorted((hit.score for hit in all_), reverse=True)
    deeper = [hit.id for hit in all_ if hit.score < 0]
    assert deeper == [name for name in similar if name in deeper]
    assert 95 < len(deeper) < 101


@pytest.mark.parametrize("weight", [0, 0.3, 1])
def test_many_questions_are_answered_as_each_of_them(weight: float, corpus: Dataset, tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    index = SearchIndex.load(build_index(model, corpus, tmp_path / "index"), model)
    questions = ["the", "abc", corpus[7]["title"], "q w e r t y", "abc"]
    many = index.search_many(questions, 4, weight, batch_size=2)
    for question, hits in zip(questions, many, strict=True):
        alone = index.search(question, 4, weight)
        assert [hit.id for hit in hits] == [hit.id for hit in alone]
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in alone], abs=1e-4)
    assert index.search_many([]) == []
    once = index.search_many((question for question in questions), 4, weight)
    assert [[hit.id for hit in hits] for hits in once] == [[hit.id for hit in hits] for hits in many]
    assert [len(hits) for hits in index.search_many(np.array(questions), 4, weight)] == [len(hits) for hits in many]


def test_passages_without_a_word_are_found_by_their_vectors(tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    passages = Dataset.from_dict({"id": ["1", "2"], "title": ["", ""], "text": ["the of", "."]})
    index = SearchIndex.load(build_index(model, passages, tmp_path / "index", weight=0.5), model)
    assert len(index.search("abc")) == 2
    assert index.search("abc", weight=0) == []


@pytest.mark.parametrize("kind", ["exact", "int8"])
def test_an_updated_index_is_that_which_is_built_anew(
    kind: str, corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "BLOCK", 70)
    model = load_retriever(write_retriever(tmp_path / "model"))
    build_index(model, corpus.select(range(150)), tmp_path / "index", kind=kind)
    rows = [{**row, "id": f"new {row['id']}"} for row in corpus.select(range(20, 200)).shuffle(seed=1)]
    rows[0]["text"] += " b"
    changed, before = Dataset.from_list(rows), {row["text"] for row in corpus.select(range(150))}
    new = [f"{row['title']} {row['text']}" for row in rows if row["text"] not in before]
    assert len(new) in (50, 51)

    watched = Watched(model, monkeypatch)
    update = update_index(model, changed, tmp_path / "index")
    assert sorted(watched.texts) == sorted(new)
    assert update == Update(180 - len(new), len(new), len(new) - 30)
    assert update_index(model, changed, tmp_path / "index") == Update(180, 0, 0)

    build_index(model, changed, tmp_path / "fresh", kind=kind)
    np.testing.assert_allclose(vectors_in(tmp_path / "index"), vectors_in(tmp_path / "fresh"), atol=1e-6)
    updated, fresh = (SearchIndex.load(tmp_path / name, model) for name in ("index", "fresh"))
    assert updated.passages.to_list() == fresh.passages.to_list()
    assert found(updated) == found(fresh)
    assert updated.search("abc", weight=0.5)[0].id == fresh.search("abc", weight=0.5)[0].id
    assert len(list((tmp_path / "index").iterdir())) == len(list((tmp_path / "fresh").iterdir()))


def test_an_update_to_another_kind_encodes_nothing(
    corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    build_index(model, corpus, tmp_path / "index", weight=0.5)
    before = vectors_in(tmp_path / "index")
    monkeypatch.setattr(model, "encode_document", None)
    assert update_index(model, corpus, tmp_path / "index", kind="hnsw") == Update(200, 0, 0)
    index = SearchIndex.load(tmp_path / "index", model)
    assert (index.kind, index.weight) == ("hnsw", 0.5)
    np.testing.assert_array_equal(vectors_in(tmp_path / "index"), before)


def test_a_killed_update_leaves_the_old_index_and_goes_on(
    corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "BLOCK", 80)
    model = load_retriever(write_retriever(tmp_path / "model"))
    build_index(model, corpus.select(range(0, 200, 2)), tmp_path / "index")
    old = found(SearchIndex.load(tmp_path / "index", model))
    watched = Watched(model, monkeypatch, most=1)
    with pytest.raises(KeyboardInterrupt):
        update_index(model, corpus, tmp_path / "index")
    assert found(SearchIndex.load(tmp_path / "index", model)) == old
    assert watched.counts == [40]
    watched.go_on()
    assert update_index(model, corpus, tmp_path / "index") == Update(100, 100, 0)
    assert watched.counts == [40, 20]
    build_index(model, corpus, tmp_path / "fresh")
    np.testing.assert_allclose(vectors_in(tmp_path / "index"), vectors_in(tmp_path / "fresh"), atol=1e-6)


def test_only_an_index_of_the_same_model_is_updated(corpus: Dataset, tmp_path: Path) -> None:
    mine, other = write_retriever(tmp_path / "mine"), write_retriever(tmp_path / "other", seed=1)
    with pytest.raises(InputError, match="no search index in"):
        update_index(mine, corpus, tmp_path / "index")
    build_index(mine, corpus.select(range(9)), tmp_path / "index")
    with pytest.raises(InputError, match=r"made by another model \(.*mine\)"):
        update_index(other, corpus, tmp_path / "index")
    assert len(SearchIndex.load(tmp_path / "index", mine)) == 9
    assert not (tmp_path / "index.partial").exists()


def test_passages_are_added_and_removed(corpus: Dataset, tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    index = SearchIndex.load(build_index(model, corpus.select(range(50)), tmp_path / "index"), model)
    changed = Dataset.from_list([{"id": "p3", "text": "zzzz zz", "title": "other", "section": "of the corpus"}])
    more = index.add(concatenate_datasets([changed, corpus.select_columns(["id", "title", "text"]).select([60])]))
    assert len(more) == 51
    assert [passage["text"] for passage in more.passages if passage["id"] == "p3"] == ["zzzz zz"]
    with pytest.raises(InputError, match="was replaced since it was opened; open it again"):
        index.search("abc")
    with pytest.raises(InputError, match="was replaced since it was opened"):
        index.remove(["p1"])
    fewer = more.remove(name for name in ("p3", "p60"))
    assert set(fewer.passages["id"]) == {f"p{row}" for row in range(50) if row != 3}
    build_index(model, corpus.select([row for row in range(50) if row != 3]), tmp_path / "fresh")
    assert found(fewer) == found(SearchIndex.load(tmp_path / "fresh", model))
    with pytest.raises(InputError, match="no passage with the id 'p3'"):
        fewer.remove(["p3"])
    with pytest.raises(InputError, match="has no passages"):
        fewer.remove(fewer.passages["id"][:])


def test_what_another_process_adds_meanwhile_is_not_lost(
    corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, plan = load_retriever(write_retriever(tmp_path / "model")), index_building._plan
    index = SearchIndex.load(build_index(model, corpus.select(range(9)), tmp_path / "index"), model)
    more = corpus.select_columns(["id", "title", "text"]).select([60])

    def planned_late(*given: Any) -> Any:
        monkeypatch.setattr(index_building, "_plan", plan)
        SearchIndex.load(tmp_path / "index", model).add(more)
        return plan(*given)

    monkeypatch.setattr(index_building, "_plan", planned_late)
    with pytest.raises(InputError, match="was replaced since it was opened; open it again"):
        index.remove(["p1"])
    assert len(SearchIndex.load(tmp_path / "index", model)) == 10
    assert not (tmp_path / "index.partial").exists()


@pytest.mark.parametrize("kind", KINDS[:2])
def test_an_index_that_became_smaller_says_that_it_was_replaced(kind: str, corpus: Dataset, tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    index = SearchIndex.load(build_index(model, corpus, tmp_path / "index", kind=kind), model)
    update_index(model, corpus.select(range(9)), tmp_path / "index")
    with pytest.raises(InputError, match="was replaced since it was opened; open it again"):
        index.search("abc")


def test_an_index_that_lacks_a_file_is_not_said_to_be_replaced(corpus: Dataset, tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    build_index(model, corpus, tmp_path / "index")
    (tmp_path / "index" / "vectors-00000.npy").unlink()
    with pytest.raises(InputError, match=r"cannot be read, so move it away .*: .*No such file"):
        SearchIndex.load(tmp_path / "index", model)


def test_a_text_is_no_list_of_ids_or_of_questions(corpus: Dataset, tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    numbered = corpus.select(range(20)).select_columns(["title", "text"]).add_column("id", list(map(str, range(20))))
    index = SearchIndex.load(build_index(model, numbered, tmp_path / "index"), model)
    with pytest.raises(InputError, match=r"give \['12'\] for a single one"):
        index.remove("12")  # not those called 1 and 2
    with pytest.raises(InputError, match=r"remove takes a list of ids; give \[12\] for a single one"):
        index.remove(12)  # type: ignore[arg-type]
    for strange in ("abc", {"q1": "abc"}, None):
        with pytest.raises(InputError, match="takes a list of questions"):
            index.search_many(strange)  # type: ignore[arg-type]
    for size in (0, "8"):
        with pytest.raises(InputError, match=f"batch_size is {size!r}; at least one text"):
            index.search_many(["abc"], batch_size=size)  # type: ignore[arg-type]
    assert len(SearchIndex.load(tmp_path / "index", model)) == 20


def test_passages_that_are_added_have_ids_of_their_own(corpus: Dataset, tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    index = SearchIndex.load(build_index(model, corpus.select(range(9)), tmp_path / "index"), model)
    for ids, message in ((["a", "a"], "The id 'a' is that of more than one"), (["a", None], "A passage has no id")):
        with pytest.raises(InputError, match=message):
            index.add(Dataset.from_dict({"id": ids, "title": ["", ""], "text": ["abc", "def"]}))
    assert len(index.search("abc", 20)) == 9


def test_ids_that_are_numbers_become_texts(corpus: Dataset, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "model")
    rows = [{"id": number, "title": "", "text": f"text {number}"} for number in range(3)]
    index = SearchIndex.load(build_index(model, Dataset.from_list(rows), model / "index"))
    index = index.add(
        Dataset.from_list([{"id": 2, "title": "", "text": "another"}, {"id": 3, "title": "", "text": "abc"}])
    )
    assert sorted(hit.id for hit in index.search("abc")) == ["0", "1", "2", "3"]
    with pytest.raises(InputError, match="no passage with the id 2"):
        index.remove([2])  # type: ignore[list-item]
    assert len(index.remove(["2"])) == 3
    with pytest.raises(InputError, match=r"make one by Dataset\.from_list"):
        index.add(rows)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"The column 'text' holds list"):
        index.add(Dataset.from_dict({"id": ["9"], "title": [""], "text": [["a", "b"]]}))


@pytest.mark.parametrize("absent", ["title", "text"])
def test_a_title_or_a_text_that_is_absent_is_empty(absent: str, corpus: Dataset, tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    given = {"id": ["1", "2"], "title": ["abc", "none"], "text": ["def", "nothing"]}
    without, empty = (Dataset.from_dict({**given, absent: [what, what]}) for what in (None, ""))
    index = SearchIndex.load(build_index(model, without, tmp_path / "without"), model)
    assert found(index) == found(SearchIndex.load(build_index(model, empty, tmp_path / "empty"), model))
    assert all(getattr(hit, absent) == "" for hit in index.search("abc"))
    more = index.add(Dataset.from_dict({"id": ["3"], "title": ["x"], "text": ["y"], absent: [None]}))
    assert more.passages[absent] == ["", "", ""]


def test_an_index_that_vanished_says_so(corpus: Dataset, tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    index = SearchIndex.load(build_index(model, corpus, tmp_path / "index"), model)
    (tmp_path / "index").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="was replaced"):
        index.search("abc")
    assert found(SearchIndex.load(tmp_path / "elsewhere", model))


def test_an_index_that_is_broken_says_how_it_is_built_again(corpus: Dataset, tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    path = build_index(model, corpus, tmp_path / "index")
    (path / "passages.parquet").write_bytes(b"cut")
    with pytest.raises(InputError, match="cannot be read, so move it away and build it again with"):
        SearchIndex.load(path, model)


def _headless(content: bytes) -> bytes:
    return content.replace(b"'shape': (", b"'shape': \x7f")


@pytest.mark.parametrize("spoil", [_headless, lambda content: content[:-8]], ids=["its head", "its end"])
def test_an_index_whose_vectors_are_broken_is_neither_read_nor_updated(
    corpus: Dataset, tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    path = build_index(model, corpus, tmp_path / "index")
    vectors = path / "vectors-00000.npy"
    vectors.write_bytes(spoil(vectors.read_bytes()))
    with pytest.raises(InputError, match="cannot be read, so move it away and build it again with"):
        SearchIndex.load(path, model)
    with pytest.raises(InputError, match=r"cannot be replaced: vectors-00000\.npy is not as hf_dense wrote it"):
        build_index(model, corpus.select(range(3)), Output(path, overwrite=True))
    with pytest.raises(InputError, match=r"cannot be replaced: vectors-00000\.npy is not as hf_dense wrote it"):
        update_index(model, corpus.select(range(3)), path)
    with pytest.raises(InputError, match="cannot be read, so move it away and build it again with"):
        build_index(model, corpus.select(range(3)), tmp_path / "other", like=path)


def test_an_index_of_an_earlier_version_is_built_again(corpus: Dataset, tmp_path: Path) -> None:
    model, path = load_retriever(write_retriever(tmp_path / "model")), tmp_path / "index"
    with Output(path).stage("index", {}) as work:
        (work.result / "vectors.faiss").write_text("of one file")
    for use in (build_index, update_index):
        with pytest.raises(InputError, match=r"by an earlier version of hf_dense; build it again .*--overwrite"):
            use(model, corpus, path)
    with pytest.raises(InputError, match="by an earlier version"):
        SearchIndex.load(path, model)
    build_index(model, corpus, Output(path, overwrite=True))
    assert len(SearchIndex.load(path, model)) == 200


def test_an_index_whose_words_were_read_otherwise_is_brought_up_to_date(
    corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path = load_retriever(write_retriever(tmp_path / "model")), tmp_path / "index"
    with monkeypatch.context() as earlier:
        earlier.setattr("hf_dense.search.index_building.lexical_fingerprint", lambda: "words between spaces")
        build_index(model, corpus, path)
    for use in (lambda: SearchIndex.load(path, model), lambda: build_index(model, corpus, path)):
        with pytest.raises(InputError, match=r"as an earlier version of hf_dense did; .* --corpus CORPUS --update"):
            use()
    assert update_index(model, corpus, path) == Update(kept=200, encoded=0, removed=0)
    assert len(SearchIndex.load(build_index(model, corpus, path), model)) == 200


def test_its_blocks_are_those_of_encode_corpus(
    corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the same model and passages finds them encoded."""
    model = load_retriever(write_retriever(tmp_path / "model"))
    path = build_index(model, corpus, tmp_path / "index")
    monkeypatch.setattr(model, "encode_document", None)
    vectors = dense.encode_corpus(model, PassageTexts(corpus), path)
    assert vectors == Vectors.stored(path)


def test_the_vectors_of_another_index_are_taken_over(
    corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_retriever(tmp_path / "model")
    build_index(model, corpus.select(range(150)), tmp_path / "part")
    expected = build_index(model, corpus, tmp_path / "anew", weight=0.3)
    read: list[int] = []
    encode = dense._encode_block
    monkeypatch.setattr(dense, "_encode_block", lambda *given: (read.append(len(given[1])), encode(*given))[1])
    made = build_index(model, corpus, tmp_path / "whole", weight=0.3, like=tmp_path / "part")
    assert read == [50]
    assert vectors_in(made) == pytest.approx(vectors_in(expected), abs=1e-6)
    other = write_retriever(tmp_path / "other", seed=1)
    with pytest.raises(InputError, match="made by another model"):
        build_index(other, corpus, tmp_path / "others", like=tmp_path / "part")
    assert not (tmp_path / "others").exists()


@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_an_index_answers_after_the_process_went_elsewhere(
    kind: str, corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    monkeypatch.chdir(tmp_path)
    index = SearchIndex.load(build_index(model, corpus, "index", kind=kind), model)
    expected = found(SearchIndex.load("index", model))
    monkeypatch.chdir(tmp_path / "model")
    assert index.is_current
    assert found(index) == expected
    assert index.search("abc", weight=0.5)  # whose words are read when they are first needed
    assert len(index.remove(["p1"])) == len(corpus) - 1


def test_a_length_of_numpy_makes_an_index_that_opens(corpus: Dataset, tmp_path: Path) -> None:
    model = load_retriever(write_retriever(tmp_path / "model"))
    build_index(model, corpus, tmp_path / "index", max_length=np.int64(8))  # type: ignore[arg-type]
    assert SearchIndex.load(tmp_path / "index", model).reading.max_length == 8


def test_threads_that_share_a_model_read_one_after_the_other(
    corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer cuts as it was told last: where one thread counted, another one read beyond the positions."""
    model = load_retriever(write_retriever(tmp_path / "model"))
    first, second = (SearchIndex(model, build_index(model, corpus, tmp_path / name)) for name in ("first", "second"))
    long = "abc " * 300
    expected, lengths, at_once = first.search(long), dense._lengths, Counter[str]()

    def counted(*given: Any) -> Any:
        at_once["now"] += 1
        at_once["most"] = max(at_once["most"], at_once["now"])
        sleep(0.05)
        found = lengths(*given)
        at_once["now"] -= 1
        return found

    monkeypatch.setattr(dense, "_lengths", counted)
    with ThreadPoolExecutor(4) as threads:
        assert all(hits == expected for hits in threads.map(lambda index: index.search(long), [first, second] * 2))
    assert at_once["most"] == 1


def test_what_is_added_is_asked_in_the_precision_that_was_chosen(corpus: Dataset, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "model")
    index = SearchIndex.load(build_index(model, corpus, model / "index"), precision="bf16")
    assert index.remove(["p1"]).reading.precision == "bf16"
