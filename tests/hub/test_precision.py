"""Precisions: what a machine is faster in is tried out, and a model in one is a copy that computes in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tiny_retriever import random_words, write_embedder, write_retriever
from torch import nn
from transformers import TrainingArguments

from hf_dense.errors import InputError
from hf_dense.hub import precision
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.precision import (
    Reading,
    check_products,
    choose_precision,
    float32_products,
    is_faster_in_bf16,
    speed_in_bf16,
)
from hf_dense.hub.retriever_settings import settings_of
from hf_dense.search.fingerprints import retriever_source


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    speed_in_bf16.cache_clear()
    yield
    speed_in_bf16.cache_clear()


@pytest.mark.parametrize(("ratio", "faster"), [(0.3, True), (0.6, True), (0.7, False), (3.0, False)])
def test_it_has_to_be_worth_it(ratio: float, faster: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True, "amx_bf16": True})
    monkeypatch.setattr(precision, "_seconds", {torch.float32: 1.0, torch.bfloat16: ratio}.__getitem__)
    assert is_faster_in_bf16("cpu") is faster


def test_it_is_tried_once_and_only_where_it_could_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    first = speed_in_bf16()
    monkeypatch.setattr(precision, "_seconds", None)
    assert speed_in_bf16() == first
    speed_in_bf16.cache_clear()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False, "amx_bf16": False})
    assert not is_faster_in_bf16("cpu")


@pytest.mark.parametrize("has", [True, False])
def test_a_gpu_says_whether_it_has_it(has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has and not including_emulation)
    assert is_faster_in_bf16("cuda") is has
    assert not is_faster_in_bf16("mps")


def test_a_model_is_read_by_a_copy(tmp_path: Path) -> None:
    retriever = load_retriever(write_retriever(tmp_path / "model", similarity="cosine"))
    before = retriever_source(retriever)
    texts = [" ".join(random_words(20, seed=at)) for at in range(8)]
    own = retriever.encode_document(texts, normalize_embeddings=True)
    assert Reading().apply(retriever) is retriever
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        read = Reading(name, 8).apply(retriever)
        assert {weight.dtype for weight in read.parameters()} == {dtype}
        assert read.max_seq_length == 8
        assert Reading(name).apply(read) is read
    cut = Reading(max_length=8).apply(retriever).encode_document(texts, normalize_embeddings=True)
    assert np.abs((own * cut).sum(1) - 1).max() > 1e-3  # what follows is not read
    near = Reading("bf16").apply(retriever).encode_document(texts, normalize_embeddings=True)
    assert near.dtype == np.float32
    assert 1e-6 < np.abs((own * near).sum(1) - 1).max() < 1e-2
    assert retriever_source(retriever) == before


@pytest.mark.parametrize("length", [8, 20])
def test_a_length_of_passages_alone_gives_way(length: int, tmp_path: Path) -> None:
    plain = Reading(max_length=length).apply(load_retriever(write_embedder(tmp_path / "embedder")))
    model = SentenceTransformer(str(tmp_path / "embedder"), device="cpu")
    model[0].document_length = 5
    model.save_pretrained(str(tmp_path / "short"), create_model_card=False)
    short = load_retriever(tmp_path / "short")
    assert (settings_of(short).max_length, settings_of(short).query_length) == (5, 20)
    exported = load_retriever(export_sentence_transformer(tmp_path / "short", tmp_path / "out", max_length=length))
    texts = [" ".join(random_words(20, seed=at)) for at in range(4)]
    for read in (Reading(max_length=length).apply(short), exported):
        for one, other in ((read.encode_document, plain.encode_document), (read.encode_query, plain.encode_query)):
            np.testing.assert_allclose(one(texts), other(texts), atol=1e-6)


def test_a_model_that_is_kept_in_bf16_computes_in_fp32(tmp_path: Path) -> None:
    retriever = load_retriever(write_retriever(tmp_path / "model")).to(torch.bfloat16)
    assert {weight.dtype for weight in Reading().apply(retriever).parameters()} == {torch.float32}


def test_what_cannot_be_read_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="precision is 'tf32'; choose one of fp32, bf16, fp16"):
        Reading("tf32")
    for length in (1, "64", 2.5):
        with pytest.raises(InputError, match=f"max_length is {length!r}; it must be a whole number, at least 2"):
            Reading(max_length=length)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="max_length is 100000 tokens; the encoder takes at most"):
        Reading(max_length=100_000).apply(load_retriever(write_retriever(tmp_path / "model")))


def arguments(folder: Path, **changes: object) -> TrainingArguments:
    return TrainingArguments(output_dir=str(folder), use_cpu=True, report_to="none", **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "recorded", "faster", "expected"),
    [
        ("auto", None, True, "bf16"),
        ("auto", None, False, "fp32"),
        ("auto", "fp32", True, "fp32"),
        ("auto", "bf16", False, "bf16"),
        ("fp32", "bf16", True, "fp32"),
        ("bf16", None, False, "bf16"),
    ],
)
def test_a_training_takes_what_is_wanted_or_recorded_or_faster(
    tmp_path: Path,
    wanted: str,
    recorded: str | None,
    faster: bool,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(precision, "is_faster_in_bf16", lambda device: faster)
    monkeypatch.setattr(precision, "_SMALL", 6)
    training = arguments(tmp_path)
    assert choose_precision(training, nn.Linear(2, 2), wanted, recorded) == expected
    assert (training.bf16, training.mixed_precision) == ((True, "bf16") if expected == "bf16" else (False, "no"))
    assert ("--precision fp32 refuses it" in caplog.text) == (wanted == "auto" and expected == "bf16")


def test_a_small_model_trains_in_float32_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "is_faster_in_bf16", lambda device: True)
    assert choose_precision(arguments(tmp_path), nn.Linear(2, 2), "auto") == "fp32"
    assert choose_precision(arguments(tmp_path), nn.Linear(2, 2), "bf16") == "bf16"


def test_what_the_trainer_was_told_is_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "is_faster_in_bf16", lambda device: False)
    model = nn.Linear(2, 2)
    assert choose_precision(arguments(tmp_path, bf16=True), model, "auto", "fp32") == "bf16"
    with pytest.raises(InputError, match="is fp32, and the training's arguments say bf16; leave one"):
        choose_precision(arguments(tmp_path, bf16=True), model, "fp32")
    with pytest.raises(InputError, match="No processor trains in fp16"):
        choose_precision(arguments(tmp_path), model, "fp16")
    with pytest.raises(InputError, match="'int8'; choose one of auto, fp32, bf16, fp16"):
        choose_precision(arguments(tmp_path), model, "int8")


def test_products_of_float32_are_as_before_afterwards() -> None:
    with float32_products("medium"):
        assert torch.get_float32_matmul_precision() == "medium"
    assert torch.get_float32_matmul_precision() == "highest"
    with pytest.raises(InputError, match="'low'; choose one of highest, high, medium"):
        check_products("low", None)
    with pytest.raises(InputError, match="say the same thing"):
        check_products("high", True)
