"""Ready embedders that an adaptation cannot pre-train are refused before anything else is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tiny_retriever import tiny_tokenizer, write_embedder, write_static, write_two_encoders
from transformers import T5Config, T5EncoderModel

from hf_dense.errors import InputError
from hf_dense.experiments.adaptation.base import check_base
from hf_dense.experiments.adaptation.options import AdaptOptions
from hf_dense.experiments.adaptation.run import adapt
from hf_dense.hub.retrievers import build_retriever


def refused(place: Path, sentence: str, advice: str = ".*With --method none it is adapted") -> None:
    with pytest.raises(InputError, match=sentence + advice):
        check_base(build_retriever(place), str(place), pretrained=True)


def changed(place: Path, **changes: str | None) -> Path:
    model = SentenceTransformer(str(write_embedder(place)), device="cpu")
    for name, value in changes.items():
        setattr(model if hasattr(type(model), name) else model.tokenizer, name, value)
    model.save_pretrained(str(place))
    return place


def test_parts_and_poolings_that_pretraining_would_lose(tmp_path: Path) -> None:
    refused(write_embedder(tmp_path / "max", pooling="max"), "pools by 'max', ")
    refused(write_two_encoders(tmp_path / "two"), "more than pooling and a norm .Router")
    refused(write_static(tmp_path / "static"), "Static embeddings are not fine-tuned here", "")


def test_similarities_and_tokens_that_are_needed(tmp_path: Path) -> None:
    refused(changed(tmp_path / "far", similarity_fn_name="euclidean"), "'euclidean', .* --similarity", "")
    refused(changed(tmp_path / "maskless", mask_token=None), "has no mask token")


def test_encoders_of_other_kinds(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    config = T5Config(vocab_size=len(tokenizer), d_model=32, d_ff=32, d_kv=16, num_layers=1, num_heads=2)
    T5EncoderModel(config).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    modules = [Transformer(str(tmp_path / "encoder"), max_seq_length=16), Pooling(32, "mean")]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "t5"))
    refused(tmp_path / "t5", "is a t5, .*that is: bert, ")


def test_nothing_is_written_before(tmp_path: Path) -> None:
    base, out = write_embedder(tmp_path / "base", pooling="max"), tmp_path / "out"
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "a.txt").write_text("Words of a document that stands alone.")
    with pytest.raises(InputError, match="pools by 'max'"):
        adapt(AdaptOptions(str(tmp_path / "documents"), str(out), base=str(base), keep="none"))
    assert not out.exists()
