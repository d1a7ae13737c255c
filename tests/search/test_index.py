from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from tiny_retriever import write_dataset, write_hybrid, write_retriever

from hf_dense import InputError
from hf_dense.data.collections import load_corpus
from hf_dense.hub.loading import load_retriever
from hf_dense.search import dense
from hf_dense.search import index as index_module
from hf_dense.search.index import SearchIndex, build_index
from hf_dense.storage.output import Output


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load_corpus(write_dataset(tmp_path_factory.mktemp("dataset") / "beir", passages=200))


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_hits_are_the_models_own_top_k(similarity: str, corpus: Dataset, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "model", similarity=similarity)
    index = SearchIndex.load(build_index(model, corpus, model / "index"))

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


def test_bad_input_is_one_sentence_and_leaves_nothing(corpus: Dataset, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "model")
    for bad, message in ((corpus.remove_columns("text"), "no column 'text'"), (corpus.select([]), "no passages")):
        with pytest.raises(InputError, match=message):
            build_index(model, bad, tmp_path / "index")
    assert not (tmp_path / "index").exists()
    with pytest.raises(InputError, match="is the model, and would replace it"):
        build_index(model, corpus, model)
    with pytest.raises(InputError, match="gives hybrid vectors"):
        build_index(write_hybrid(tmp_path / "dupmae", 8, 20), corpus, tmp_path / "index")
    with pytest.raises(InputError, match="no search index"):
        SearchIndex.load(tmp_path / "index", model)


def test_bad_question_is_refused(corpus: Dataset, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "model")
    index = SearchIndex.load(build_index(model, corpus.select(range(3)), model / "index"))
    with pytest.raises(InputError, match="question is empty"):
        index.search("  ")
    with pytest.raises(InputError, match="top_k is 0"):
        index.search("abc", top_k=0)


def test_an_index_of_another_model_or_corpus_is_not_used(corpus: Dataset, tmp_path: Path) -> None:
    mine, other = write_retriever(tmp_path / "mine"), write_retriever(tmp_path / "other", seed=1)
    some, out = corpus.select(range(3)), tmp_path / "index"
    build_index(mine, some, out)
    with pytest.raises(InputError, match=r"made by another model \(.*mine\)"):
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
    monkeypatch.setattr(index_module, "encode_corpus", None)
    build_index(tmp_path / "copy", corpus, tmp_path / "index")
    assert len(SearchIndex.load(tmp_path / "index", tmp_path / "copy")) == len(corpus)


def test_a_killed_build_goes_on_with_its_vectors(
    corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "BLOCK", 80)
    model, encoded = load_retriever(write_retriever(tmp_path / "model")), []
    encode, killed = model.encode_document, True

    def counted(texts: list[str], **rest: Any) -> Any:
        if killed and len(encoded) == 2:
            raise KeyboardInterrupt
        encoded.append(len(texts))
        return encode(texts, **rest)

    monkeypatch.setattr(model, "encode_document", counted)
    with pytest.raises(KeyboardInterrupt):
        build_index(model, corpus, tmp_path / "index")
    assert not (tmp_path / "index").exists()
    killed = False
    build_index(model, corpus, tmp_path / "index")
    assert encoded == [80, 80, 40]
    assert not (tmp_path / "index.partial").exists()
