"""What is taken over from the checkpoint a run starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Dense
from tiny_pretraining import METHODS, same_weights, tiny_model
from tiny_retriever import tiny_config, write_embedder
from transformers import BertForMaskedLM, BertModel, GPT2Config, GPT2Model, T5Config, T5EncoderModel
from transformers.utils import logging

from hf_dense import RetroMAEConfig
from hf_dense.errors import InputError
from hf_dense.methods import get_method
from hf_dense.pretraining.start import start_from


def start(method: str, path: Path, **changes: Any) -> Any:
    return start_from(get_method(method), str(path), {"encoders": None, "decoders": None, **changes})


@pytest.mark.parametrize("method", METHODS)
def test_the_same_methods_checkpoint_is_continued_decoders_included(tmp_path: Path, method: str) -> None:
    first = tiny_model(method, crop="random")
    first.save_pretrained(tmp_path)
    model = start(method, tmp_path)
    assert same_weights(first.state_dict(), model.state_dict())
    assert any(name.startswith("decoders.") for name in model.state_dict())
    assert model.config.crop == "random"


def test_declarations_of_the_checkpoint_stay_under_the_changes(tmp_path: Path) -> None:
    tiny_model("retromae", encoders={"encoder": {"view": {"rate": 0.4}, "weight": 0.5}}).save_pretrained(tmp_path)
    model = start("retromae", tmp_path, encoders={"encoder": {"view": {"fill": "mask"}}})
    spec = model.config.encoder_specs["encoder"]
    assert (spec.view.rate, spec.view.fill, spec.weight) == (0.4, "mask", 0.5)


def test_a_change_to_the_checkpoint_that_has_no_effect_is_refused(tmp_path: Path) -> None:
    tiny_model("retromae").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"View.rate of 'decoder' would have no effect"):
        start("retromae", tmp_path, decoders={"decoder": {"view": {"rate": 0.9}}})
    with pytest.raises(InputError, match=r"init='last_layers' of 'decoder' would have no effect: .*; leave it out"):
        start("retromae", tmp_path, decoders={"decoder": {"init": "last_layers"}})
    model = start("retromae", tmp_path, decoders={"decoder": {"view": {"rate": 0.30}, "init": "random"}})
    assert model.config.decoder_specs == RetroMAEConfig().decoder_specs


@pytest.mark.parametrize("method", ["cotmae", "retromae"])
def test_the_bottleneck_of_the_checkpoint_stays_unless_another_is_named(tmp_path: Path, method: str) -> None:
    first = tiny_model("cotmae", bottleneck="mean")
    first.save_pretrained(tmp_path)
    assert start(method, tmp_path).config.bottleneck == "mean"
    assert start(method, tmp_path, bottleneck="cls").config.bottleneck == "cls"


@pytest.mark.parametrize("layers", [1, 3])
def test_decoders_that_do_not_fit_are_refused(tmp_path: Path, layers: int) -> None:
    tiny_model("cotmae").save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"The decoders in .* do not fit the configuration"):
        start("cotmae", tmp_path, decoders={"decoder": {"layers": layers}})


def test_another_methods_checkpoint_gives_encoder_and_head(tmp_path: Path) -> None:
    other = tiny_model("cotmae", seed=1)
    torch.nn.init.normal_(other.head.bias)
    other.save_pretrained(tmp_path)
    model = start("retromae", tmp_path)
    assert model.config.model_type == "retromae"
    assert model.config.crop == "head"
    assert same_weights(other.encoder.state_dict(), model.encoder.state_dict())
    assert same_weights(other.head.state_dict(), model.head.state_dict())
    assert len(model.decoders["decoder"].layers) == 1


def test_a_bert_with_its_head_gives_both(tmp_path: Path) -> None:
    torch.manual_seed(0)
    bert = BertForMaskedLM(tiny_config())
    torch.nn.init.normal_(bert.cls.predictions.bias)
    bert.save_pretrained(tmp_path)
    model = start("retromae", tmp_path)
    assert same_weights(bert.bert.state_dict(), model.encoder.backbone.state_dict())
    assert torch.equal(model.head.bias, bert.cls.predictions.bias)
    assert torch.equal(model.head.dense.weight, bert.cls.predictions.transform.dense.weight)
    assert torch.equal(model.head.norm.bias, bert.cls.predictions.transform.LayerNorm.bias)


def test_what_is_initialised_is_said_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    BertModel(tiny_config(), add_pooling_layer=False).save_pretrained(tmp_path / "bert")
    logging.enable_propagation()
    start("retromae", tmp_path / "bert")
    logging.disable_propagation()
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"Newly initialised, not in {tmp_path / 'bert'}: decoders.decoder, head."]


def test_an_encoder_with_weights_missing_is_refused(tmp_path: Path) -> None:
    bert = BertModel(tiny_config(), add_pooling_layer=False)
    weights = {name: value for name, value in bert.state_dict().items() if "layer.1.attention.self.query" not in name}
    bert.save_pretrained(tmp_path / "bert", state_dict=weights)
    with pytest.raises(ValueError, match=r"has no weights for bert\.encoder\.layer\.1\.attention\.self\.query\.bias"):
        get_method("retromae").pretraining.from_backbone(str(tmp_path / "bert"))


def test_a_bert_without_head_gives_the_encoder(tmp_path: Path) -> None:
    torch.manual_seed(0)
    bert = BertModel(tiny_config(), add_pooling_layer=False)
    bert.save_pretrained(tmp_path)
    model = start("seed_encoder", tmp_path, decoders={"decoder": {"layers": 2}})
    assert same_weights(bert.state_dict(), model.encoder.backbone.state_dict())
    assert len(model.decoders["decoder"].layers) == 2
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_ready_embedder_keeps_its_settings_from_start_to_start(tmp_path: Path, pooling: str) -> None:
    embedder = write_embedder(tmp_path / "embedder", pooling=pooling)
    model = start("cotmae", embedder)
    prompts = {"query": "ask ", "document": ""}
    expected = {"pooling": pooling, "normalize": True, "similarity": "cosine", "prompts": prompts, "max_length": 20}
    expected |= {"query_length": None, "include_prompt": None}
    assert (model.config.bottleneck, model.config.retriever) == (pooling, expected)
    model.save_pretrained(tmp_path / "cotmae")
    for method in ("cotmae", "retromae"):
        assert start(method, tmp_path / "cotmae").config.retriever == expected
        changed = start(method, tmp_path / "cotmae", bottleneck="cls").config
        assert (changed.bottleneck, changed.retriever) == ("cls", expected), "its pooling stays its own"


def test_an_embedder_that_would_lose_a_part_of_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"more than pooling and a norm \(Dense\), which pre-training would lose; start"
    ):
        start("retromae", write_embedder(tmp_path / "dense", Dense(32, 8)))
    pooled = write_embedder(tmp_path / "pooled", pooling="max")
    with pytest.raises(InputError, match="pools by 'max', where no bottleneck can be; say --bottleneck cls or mean"):
        start("retromae", pooled)
    assert start("retromae", pooled, bottleneck="mean").config.retriever["pooling"] == "max"
    with pytest.raises(ValueError, match="bottleneck is 'last'; allowed: cls, mean"):
        start("retromae", pooled, bottleneck="last")


def test_a_family_that_is_not_supported_is_refused(tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=60, n_embd=32, n_layer=1, n_head=2, n_positions=32)
    GPT2Model(config).save_pretrained(tmp_path / "gpt2")
    encoder = T5Config(vocab_size=60, d_model=32, d_ff=64, num_layers=1, num_heads=2)
    T5EncoderModel(encoder).save_pretrained(tmp_path / "t5")  # without the decoder that `AutoModel` would look for
    for name in ("gpt2", "t5"):
        with pytest.raises(ValueError, match=f"Backbones of type '{name}' are not supported; use: bert, roberta"):
            start("retromae", tmp_path / name)


def test_a_missing_checkpoint_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        start("retromae", tmp_path / "missing")
