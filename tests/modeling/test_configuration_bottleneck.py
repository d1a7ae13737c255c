from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_backbones import BACKBONES, HIDDEN
from transformers import AutoConfig, AutoModel, AutoModelForPreTraining, BertConfig

from hf_dense import (
    METHODS,
    BottleneckConfig,
    CoTMAEConfig,
    CoTMAEForPreTraining,
    Decoder,
    DupMAEConfig,
    Encoder,
    MASTERConfig,
    RetroMAEConfig,
    SEEDConfig,
    SimLMConfig,
    View,
)


def test_declarations_are_complete_without_overrides() -> None:
    config = RetroMAEConfig()
    assert config.encoder_specs == {"encoder": Encoder(View(rate=0.30))}
    assert config.decoder_specs["decoder"].attention == "sampled:0.5"
    assert isinstance(config.backbone_config, BertConfig)
    assert config.crop == "head"
    assert (config.bottleneck, config.retriever) == ("cls", None)


def test_overrides_change_what_they_name_and_nothing_else() -> None:
    config = CoTMAEConfig(
        backbone_config={"hidden_size": 32, "vocab_size": 100},
        encoders={"encoder": {"view": {"rate": 0.4}}},
        decoders={"decoder": {"layers": 1}},
        crop="head",
    )
    assert config.encoder_specs["encoder"] == Encoder(View(sources=("text", "neighbour"), rate=0.4))
    assert config.decoder_specs["decoder"] == Decoder(View(sources=("neighbour", "text"), rate=0.45), layers=1)
    assert config.crop == "head"
    assert (config.hidden_size, config.vocab_size) == (32, 100)


def test_overrides_do_not_leak_into_the_declaration_or_into_another_configuration() -> None:
    changed = RetroMAEConfig(encoders={"encoder": {"view": {"rate": 0.4}}})
    changed.encoders["encoder"]["view"]["rate"] = 0.5
    assert RetroMAEConfig().encoder_specs["encoder"].view.rate == 0.30
    assert RetroMAEConfig.declared_encoders["encoder"].view.rate == 0.30


def first_decoder(method: str) -> str:
    return next(iter(METHODS[method].config().decoder_specs))


@pytest.mark.parametrize("method", METHODS)
def test_json_round_trip(method: str) -> None:
    cls = METHODS[method].config
    config = cls(
        backbone_config=BertConfig(hidden_size=32, num_attention_heads=2, layer_norm_eps=1e-5),
        encoders={"encoder": {"view": {"rate": 0.25, "fill": "mask"}, "weight": 2.0}},
        decoders={first_decoder(method): {"weight": 0.5}},
        crop="random",
        bottleneck="mean",
        retriever={"pooling": "mean", "prompts": {"query": "query: "}},
    )
    again = cls.from_dict(json.loads(config.to_json_string(use_diff=False)))
    assert again.to_dict() == config.to_dict()
    assert again.encoder_specs == config.encoder_specs
    assert again.decoder_specs == config.decoder_specs
    assert again.encoder_specs["encoder"].view.rate == 0.25
    assert again.crop == "random"
    assert again.bottleneck == "mean"
    assert again.retriever == {"pooling": "mean", "prompts": {"query": "query: "}}
    assert again.backbone_config.to_dict() == config.backbone_config.to_dict()


@pytest.mark.parametrize("method", METHODS)
def test_the_short_json_round_trips_too(method: str) -> None:
    cls = METHODS[method].config
    config = cls(decoders={first_decoder(method): {"weight": 0.5}})
    assert cls.from_dict(json.loads(config.to_json_string())).to_dict() == config.to_dict()


def test_views_and_sources() -> None:
    assert CoTMAEConfig().sources == ["text", "neighbour"]
    assert SEEDConfig().sources == ["text"]
    assert {name: view.labels for name, view in SEEDConfig().views.items()} == {"encoder": "hidden", "decoder": "next"}


def test_one_source_may_be_a_plain_string() -> None:
    assert View(sources="text") == View(sources=("text",))


@pytest.mark.parametrize(
    ("attention", "kind", "value"),
    [("full", "full", 0), ("causal", "causal", 0), ("causal:12", "causal", 12), ("sampled:.25", "sampled", 0.25)],
)
def test_attention_is_read_apart(attention: str, kind: str, value: float) -> None:
    decoder = Decoder(attention=attention)
    assert (decoder.attention_kind, decoder.attention_value) == (kind, value)


def test_a_method_may_declare_further_decoders() -> None:
    config = RetroMAEConfig(decoders={"second": {"view": {"rate": 0.4}, "layers": 1, "weight": 0.1}})
    assert list(config.views) == ["encoder", "decoder", "second"]


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (View, {"select": "some"}, r"View\.select is 'some'; allowed: none, random"),
        (View, {"fill": "zero"}, r"View\.fill is 'zero'; allowed: mask, bert"),
        (View, {"labels": "all"}, r"View\.labels is 'all'; allowed: hidden, every, next"),
        (View, {"sources": ()}, r"View\.sources is \(\); name at least one"),
        (View, {"rate": 0.0}, r"View\.rate is 0\.0"),
        (View, {"rate": 1.1}, r"View\.rate is 1\.1"),
        (View, {"labels": "replaced"}, "set fill='generator'"),
        (View, {"select": "none"}, "scores nothing"),
        (Decoder, {"layers": 0}, r"Decoder\.layers is 0"),
        (Decoder, {"inputs": "words"}, r"Decoder\.inputs is 'words'; allowed: embeddings, own_embeddings"),
        (Decoder, {"stream": "x"}, r"Decoder\.stream is 'x'; allowed: inputs, bottleneck, bottleneck_embedded"),
        (Decoder, {"entry": "last"}, r"Decoder\.entry is 'last'; allowed: first, cross_attention"),
        (Decoder, {"norm": "mid"}, r"Decoder\.norm is 'mid'; allowed: backbone, pre, gpt2"),
        (Decoder, {"head": "own"}, r"Decoder\.head is 'own'; allowed: mlm, tied"),
        (Decoder, {"attention": "window"}, r"Decoder\.attention is 'window'; allowed: full, causal, causal:k"),
        (Decoder, {"attention": "causal:0"}, r"Decoder\.attention is 'causal:0'"),
        (Decoder, {"attention": "sampled:1.5"}, r"Decoder\.attention is 'sampled:1\.5'"),
        (Decoder, {"attention": "sampled:0.0"}, r"Decoder\.attention is 'sampled:0\.0'"),
        (Decoder, {"stream": "bottleneck", "layers": 2}, "one layer, norm='backbone'"),
        (Decoder, {"stream": "bottleneck", "layers": 1, "norm": "pre"}, "one layer, norm='backbone'"),
        (Decoder, {"entry": "cross_attention"}, r"has norm='pre'"),
    ],
)
def test_bad_declarations_are_refused(cls: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"encoders": {"encoder": {"view": {"rate": "3e-1"}}}}, "rate is '3e-1'"),
        ({"decoders": {"decoder": {"layers": "1"}}}, "layers is '1'"),
        ({"encoders": {"encoder": {"view": None}}}, "View of 'encoder' is None"),
        ({"crop": "tail"}, "crop is 'tail'; allowed: head, random"),
        ({"bottleneck": "max"}, "bottleneck is 'max'; allowed: cls, mean"),
        ({"encoders": {"encoder": {"depth": 3}}}, "Encoder of 'encoder' has no field 'depth'; it has: view, weight"),
        ({"decoders": {"decoder": {"rate": 0.3}}}, "Decoder of 'decoder' has no field 'rate'; it has: view, encoder, "),
        ({"decoders": {"decoder": {"view": {"mask": 1}}}}, "View of 'decoder' has no field 'mask'; it has: sources, "),
        ({"decoders": {"decoder": {"encoder": "other"}}}, "reads encoder 'other'; there is: encoder"),
        ({"encoders": {"encoder": {"view": {"fill": "generator"}}}}, "a generator, which retromae has not; simlm has"),
        ({"decoders": {"encoder": {"view": {}}}}, "both named 'encoder'"),
        ({"decoders": {"a.b": {"view": {}}}}, r"cannot be named 'a\.b'; give it another name"),
        ({"decoders": {"keys": {"view": {}}}}, "cannot be named 'keys'"),
        ({"decoders": {1: {"view": {}}}}, "cannot be named 1;"),
        (
            {"encoders": {"encoder": {"bag": {}}}, "decoders": {"encoder_bag": {"view": {}}}},
            "The loss of an encoder is named 'encoder_bag' already",
        ),
        ({"decoders": {"decoder": {"view": {"sources": ["text", "neighbour"]}}}}, "equally many sources"),
        (
            {"decoders": {"decoder": {"weight": float("nan")}}},
            "weight is nan; a loss weight is finite and not negative",
        ),
        ({"encoders": {"encoder": {"bag": {"weight": float("inf")}}}}, r"Bag\.weight is inf; a loss weight is finite"),
        (
            {"backbone_config": {"num_hiden_layers": 6}},
            "'num_hiden_layers', which a 'bert' configuration does not have",
        ),
        ({"num_hidden_layers": 2}, "RetroMAEConfig has no argument 'num_hidden_layers': .* say it in backbone_config"),
        ({"hidden_size": 768}, "no argument 'hidden_size': it is of the backbone"),
        ({"backbone_config": {"model_type": "distilbert"}, "num_hidden_layers": 2}, "no argument 'num_hidden_layers'"),
        ({"backbone_config": {"model_type": "distilbert"}, "dim": 32}, "no argument 'dim': it is of the backbone"),
        ({"backbone_config": {"is_decoder": True}}, "a backbone with is_decoder=True does not; set it to False"),
        ({"backbone_config": {"is_decoder": True, "add_cross_attention": True}}, "set it to False"),
    ],
)
def test_bad_configurations_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RetroMAEConfig(**values)


@pytest.mark.parametrize("kind", ["bert", "distilbert", "electra"])
@pytest.mark.parametrize("layers", [0, -1])
def test_a_backbone_without_layers_is_refused(kind: str, layers: int) -> None:
    with pytest.raises(ValueError, match=f"num_hidden_layers={layers}; an encoder has at least one"):
        RetroMAEConfig(backbone_config={"model_type": kind, "num_hidden_layers": layers})


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (RetroMAEConfig, {"decoders": {"decoder": {"view": {"rate": 0.7}}}}, "View.rate of 'decoder' .*sampled:0.x"),
        (SEEDConfig, {"decoders": {"decoder": {"view": {"fill": "mask"}}}}, "View.fill of 'decoder' would have no"),
        (RetroMAEConfig, {"decoders": {"decoder": {"view": {"select": "complement", "rate": 0.7}}}}, "'complement'"),
        (SimLMConfig, {"encoders": {"encoder": {"view": {"select": "none", "rate": 0.7}}}}, "View.rate of 'encoder'"),
    ],
)
def test_a_change_without_effect_is_refused(cls: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls(**values)


def test_what_a_checkpoint_stores_is_not_a_change() -> None:
    stored = RetroMAEConfig().to_dict()
    stored["decoders"]["decoder"]["view"]["rate"] = 0.7  # as one may have been written before changes were checked
    assert RetroMAEConfig(**stored).decoder_specs["decoder"].view == View(rate=0.7, select="none", labels="every")


@pytest.mark.parametrize(
    ("field", "value", "others"),
    [
        ("layers", 1, {}),
        ("norm", "pre", {}),
        ("entry", "cross_attention", {"norm": "pre"}),
        ("init", "last_layers", {}),
        ("inputs", "own_embeddings", {}),
    ],
)
def test_decoders_that_share_layers_say_the_same_of_them(field: str, value: Any, others: dict[str, Any]) -> None:
    sharing, owner = {"shares": "keywords", **others}, {"keywords": others}
    message = (
        f"Decoder 'queries' has {field}='?{value}'?, but shares the layers of 'keywords', which has .*both the same"
    )
    with pytest.raises(ValueError, match=message):
        MASTERConfig(decoders={**owner, "queries": {**sharing, field: value}})
    with pytest.raises(ValueError, match=f"Decoder 'queries' has {field}="):
        MASTERConfig(decoders={"keywords": {**others, field: value}, "queries": sharing})
    changed = {**others, field: value}
    config = MASTERConfig(decoders={"keywords": changed, "queries": {**sharing, **changed}})
    assert getattr(config.decoder_specs["queries"], field) == value


def test_a_complement_of_everything_is_refused() -> None:
    encoder, decoder = {"view": {"rate": 1.0}}, {"view": {"select": "complement", "labels": "hidden"}}
    with pytest.raises(ValueError, match=r"Decoder 'decoder' hides what its encoder is shown, which at .* is nothing"):
        RetroMAEConfig(encoders={"encoder": encoder}, decoders={"decoder": decoder})
    RetroMAEConfig(encoders={"encoder": {"view": {"rate": 0.9}}}, decoders={"decoder": decoder})


def test_a_decoder_may_read_hidden_states_by_layers_that_it_shares() -> None:
    hidden = {"shares": "keywords", "inputs": "hidden:half", "view": None}
    for inputs in ("embeddings", "own_embeddings"):
        config = MASTERConfig(decoders={"keywords": {"inputs": inputs}, "queries": hidden})
        assert config.hidden_layers == {"queries": 6}


def stored(folder: Path) -> str:
    """A checkpoint of CoT-MAE whose declaration is not the method's own."""
    config = CoTMAEConfig(
        backbone_config=BACKBONES["bert"](0.0), encoders={"encoder": {"view": {"rate": 0.4}}}, bottleneck="mean"
    )
    CoTMAEForPreTraining(config).save_pretrained(folder)
    return str(folder)


def test_arguments_of_loading_are_laid_over_what_is_stored(tmp_path: Path) -> None:
    path = stored(tmp_path / "first")
    changes = {"encoders": {"encoder": {"weight": 0.5}}, "decoders": {"decoder": {"weight": 2.0}}, "crop": "random"}
    model = AutoModelForPreTraining.from_pretrained(path, **changes)
    config, unused = AutoConfig.from_pretrained(path, **changes, some=1, return_unused_kwargs=True)
    model.save_pretrained(tmp_path / "second")
    for found in (model.config, config, AutoConfig.from_pretrained(tmp_path / "second")):
        assert found.encoder_specs["encoder"] == Encoder(View(sources=("text", "neighbour"), rate=0.4), weight=0.5)
        assert found.decoder_specs["decoder"] == Decoder(View(sources=("neighbour", "text"), rate=0.45), weight=2.0)
        assert (found.crop, found.bottleneck) == ("random", "mean")
    assert unused == {"some": 1}


def test_loading_may_take_a_part_out_and_change_the_backbone(tmp_path: Path) -> None:
    path = stored(tmp_path)
    config = AutoConfig.from_pretrained(path, decoders={"decoder": None}, backbone_config={"hidden_dropout_prob": 0.3})
    assert (config.decoder_specs, config.decoders) == ({}, {"decoder": None})
    assert (config.backbone.hidden_dropout_prob, config.hidden_size) == (0.3, HIDDEN)
    again = CoTMAEConfig.from_dict(config.to_dict(), crop="head")
    assert again.decoder_specs == {}
    again = CoTMAEConfig.from_dict(config.to_dict(), decoders={"decoder": {"weight": 2.0}})
    assert again.decoder_specs["decoder"] == Decoder(View(sources=("neighbour", "text"), rate=0.45), weight=2.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bottleneck": "max"}, "bottleneck is 'max'; allowed: cls, mean"),
        ({"crop": "sideways"}, "crop is 'sideways'; allowed: head, random"),
        ({"decoders": {"decodr": {"weight": 2.0}}}, "There is no Decoder 'decodr' to change; there is: decoder"),
        ({"decoders": {"decoder": {"wieght": 2.0}}}, "Decoder of 'decoder' has no field 'wieght'"),
        ({"encoders": {"encoder": None}}, "reads encoder 'encoder'; there is: none"),
        ({"encoders": {"encoder": {"view": {"select": "none", "rate": 0.7}}}}, "View.rate of 'encoder'"),
        (
            {"backbone_config": {"num_hiden_layers": 6}},
            "'num_hiden_layers', which a 'bert' configuration does not have",
        ),
        ({"hidden_dropout_prob": 0.5}, "no argument 'hidden_dropout_prob': .* say it in backbone_config"),
    ],
)
@pytest.mark.parametrize("load", [AutoConfig, AutoModel, AutoModelForPreTraining])
def test_arguments_of_loading_are_checked(load: Any, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = stored(tmp_path)
    with pytest.raises(ValueError, match=message):
        load.from_pretrained(path, **changes)


def test_settings_that_earlier_code_took_are_loaded_from_a_checkpoint(tmp_path: Path) -> None:
    config = RetroMAEConfig(backbone_config={"hidden_size": HIDDEN})
    config.num_hidden_layers = 6  # as an argument of this name was stored
    config.backbone.num_hiden_layers = 3
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert (loaded.num_hidden_layers, loaded.backbone.num_hidden_layers, loaded.hidden_size) == (6, 12, HIDDEN)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_backbone_may_be_given_as_a_dictionary_with_the_names_that_transformers_takes(backbone: str) -> None:
    config = BACKBONES[backbone](0.1)
    assert RetroMAEConfig(backbone_config=config.to_dict()).backbone.to_dict() == config.to_dict()
    sizes = {"model_type": config.model_type, "hidden_size": HIDDEN, "num_hidden_layers": 2, "num_labels": 3}
    built = RetroMAEConfig(backbone_config={**sizes, "attn_implementation": "eager", "torch_dtype": "float32"}).backbone
    assert (built.hidden_size, built.num_hidden_layers, built.num_labels) == (HIDDEN, 2, 3)


def test_what_a_checkpoint_stores_of_a_decoder_is_read_to_both_sides(tmp_path: Path) -> None:
    model = CoTMAEForPreTraining(CoTMAEConfig(backbone_config=BACKBONES["bert"](0.0))).eval()
    model.config.backbone.is_decoder = True  # as one may have been written before backbones were checked
    model.save_pretrained(tmp_path)
    texts = torch.tensor([[5, 6, 7], [5, 8, 9]])
    vectors = [loaded(texts).pooler_output for loaded in (model.encoder, AutoModel.from_pretrained(tmp_path).eval())]
    torch.testing.assert_close(*vectors)
    assert AutoConfig.from_pretrained(tmp_path).backbone.is_decoder is False


def test_the_base_configuration_declares_nothing() -> None:
    assert BottleneckConfig().views == {}


def test_the_classes_property_is_documented() -> None:
    assert BottleneckConfig.views.__doc__.startswith("The views a batch holds")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The views, encoders and decoders that are made, by the name of their class."""
    made: list[str] = []
    for kind in (View, Encoder, Decoder):

        def check(self: Any, kind: Any = kind, original: Any = kind.__post_init__) -> None:
            made.append(kind.__name__)
            original(self)

        monkeypatch.setattr(kind, "__post_init__", check)
    return made


@pytest.mark.parametrize("method", METHODS)
def test_a_training_step_resolves_no_declaration(method: str, built: list[str]) -> None:
    config = METHODS[method].config(backbone_config=BACKBONES["bert"](0.1))
    model = METHODS[method].pretraining(config)
    ids = torch.randint(5, 100, (4, 9))
    view = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids, "visible": torch.ones(4, 9, 9)}
    assert built
    built.clear()
    model(dict.fromkeys(model.config.views, view)).loss.backward()
    assert built == []


def changed(config: RetroMAEConfig, way: str) -> RetroMAEConfig:
    """`config` with the decoder's weight 0.5, by one of the ways in which configurations change."""
    if way == "inside":
        config.decoders["decoder"]["weight"] = 0.5
    elif way == "set":
        config.decoders = {"decoder": {**config.decoders["decoder"], "weight": 0.5}}
    elif way == "from_dict":
        return RetroMAEConfig.from_dict(config.to_dict() | {"decoders": {"decoder": {"weight": 0.5}}})
    else:
        config = copy.deepcopy(config)
        config.decoders["decoder"]["weight"] = 0.5
    return config


@pytest.mark.parametrize("way", ["inside", "set", "from_dict", "copy"])
def test_what_follows_from_a_declaration_follows_its_changes(way: str) -> None:
    config = RetroMAEConfig()
    assert config.weights == {"encoder": 1.0, "decoder": 1.0}
    assert config.decoder_specs["decoder"].weight == 1.0
    other = changed(config, way)
    assert other.weights == {"encoder": 1.0, "decoder": 0.5}
    assert other.decoder_specs["decoder"].weight == 0.5
    assert config.weights["decoder"] == (0.5 if other is config else 1.0)


def test_what_follows_from_a_declaration_is_not_part_of_the_configuration(tmp_path: Path) -> None:
    used, fresh = DupMAEConfig(backbone_config={"hidden_size": HIDDEN}), DupMAEConfig()
    fresh.backbone_config = used.backbone_config
    assert list(used.views) == ["encoder", "decoder"]
    assert used.sources == ["text"]
    assert used == fresh
    assert used.to_dict() == fresh.to_dict()
    assert vars(used) == vars(fresh)
    for again in (pickle.loads(pickle.dumps(used)), copy.deepcopy(used), copy.copy(used)):
        assert again.to_dict() == fresh.to_dict()
        assert not hasattr(again, "_resolved")
        assert again.views == used.views
    used.save_pretrained(tmp_path)
    assert "_resolved" not in (tmp_path / "config.json").read_text()


def test_what_a_caller_does_to_a_result_stays_with_the_caller() -> None:
    config = RetroMAEConfig()
    config.views.clear()
    config.sources.append("other")
    assert list(config.views) == ["encoder", "decoder"]
    assert config.sources == ["text"]


@pytest.mark.parametrize(
    ("cls", "slip", "meant"),
    [
        (RetroMAEConfig, "enocders", "encoders"),
        (RetroMAEConfig, "encoder", "encoders"),
        (RetroMAEConfig, "decoder", "decoders"),
        (RetroMAEConfig, "backbone_conifg", "backbone_config"),
        (RetroMAEConfig, "backbone", "backbone_config"),
        (SimLMConfig, "generator", "generator_config"),
    ],
)
def test_a_slip_in_an_argument_is_refused(cls: type[BottleneckConfig], slip: str, meant: str, tmp_path: Path) -> None:
    message = f"^{cls.__name__} has no argument '{slip}'; did you mean '{meant}'\\?$"
    with pytest.raises(ValueError, match=message):
        cls(**{slip: {}})
    cls().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        AutoConfig.from_pretrained(tmp_path, **{slip: {}})


def test_arguments_of_every_configuration_are_taken() -> None:
    given = {"num_labels": 3, "is_decoder": False, "output_attentions": False, "tokenizer_class": "BertTokenizer"}
    config = RetroMAEConfig(
        **given, name_or_path="somewhere", torch_dtype="float32", attn_implementation="sdpa", seed=1
    )
    assert {name: getattr(config, name) for name in given} == given
    assert (config.dtype, config.seed, config.name_or_path) == (torch.float32, 1, "somewhere")
