"""Models that say what they are not are refused when they are loaded; those that say nothing are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer
from tiny_retriever import tiny_config, tiny_tokenizer, write_retriever
from transformers import BertForSequenceClassification

from hf_dense.errors import InputError
from hf_dense.hub.loading import is_cross_encoder, load_retriever
from hf_dense.hub.retrievers import build_retriever
from hf_dense.search.cross_encoder import load_reranker


def change(file: Path, **settings: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


@pytest.mark.parametrize("said", ["many", 8])
def test_a_retriever_whose_vectors_are_not_what_it_says(tmp_path: Path, said: object) -> None:
    retriever = write_retriever(tmp_path / "retriever")
    change(tmp_path / "retriever" / "1_Pooling" / "config.json", embedding_dimension=said)
    with pytest.raises(InputError, match=r"Cannot load a retriever from .*"):
        load_retriever(retriever)


def test_a_retriever_that_does_not_say_its_dimensions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = write_retriever(tmp_path / "retriever")
    monkeypatch.setattr(SentenceTransformer, "get_embedding_dimension", lambda _: None)
    assert len(load_retriever(retriever).encode("a")) > 0


@pytest.mark.parametrize("named", [0.5, [{}], "BertModel", {"a": 1}])
def test_architectures_that_are_no_list_of_names(tmp_path: Path, named: object) -> None:
    retriever = write_retriever(tmp_path / "retriever")
    assert not is_cross_encoder(retriever)
    change(tmp_path / "retriever" / "config.json", architectures=named)
    with pytest.raises(InputError, match="architectures"):
        is_cross_encoder(retriever)


def test_a_re_ranker_whose_tokens_are_none_of_its_encoder(tmp_path: Path) -> None:
    BertForSequenceClassification(tiny_config(num_labels=1)).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    load_reranker(tmp_path)
    change(tmp_path / "tokenizer_config.json", sep_token="zebra")
    with pytest.raises(InputError, match="Cannot load a cross-encoder"):
        load_reranker(tmp_path)


def test_a_cross_encoder_is_no_retriever(tmp_path: Path) -> None:
    """Sentence-Transformers would take either for an encoder with mean pooling."""
    BertForSequenceClassification(tiny_config(num_labels=1)).save_pretrained(tmp_path / "plain")
    tiny_tokenizer().save_pretrained(tmp_path / "plain")
    CrossEncoder(str(tmp_path / "plain")).save_pretrained(str(tmp_path / "saved"))
    for name in ("plain", "saved"):
        with pytest.raises(InputError, match=f"{name} is a cross-encoder, which scores pairs and makes no vectors"):
            build_retriever(tmp_path / name)
    with pytest.raises(InputError, match="makes no vectors"):
        load_retriever(tmp_path / "saved")
