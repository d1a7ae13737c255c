"""The table of methods: names, exports and registration follow from its rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoConfig, AutoModel, AutoModelForPreTraining

import hf_dense
from hf_dense import METHODS, BottleneckConfig, BottleneckForPreTraining, BottleneckModel, InputError, get_method
from hf_dense.methods import Method

MODELING = Path(hf_dense.__file__).parent / "modeling"


@pytest.mark.parametrize("name", METHODS)
def test_names_follow_from_the_row(name: str) -> None:
    method = get_method(name)
    assert method.config.model_type == name
    for found, base in (
        (method.config, BottleneckConfig),
        (method.encoder, BottleneckModel),
        (method.pretraining, BottleneckForPreTraining),
    ):
        assert issubclass(found, base)
        assert found.__name__ in hf_dense.__all__
        assert found is getattr(hf_dense, found.__name__)
        assert found.__module__ == f"hf_dense.modeling.{method.module}"
        assert found.__doc__
    assert method.encoder.config_class is method.pretraining.config_class is method.config


@pytest.mark.parametrize("name", METHODS)
def test_auto_classes_know_the_method(name: str) -> None:
    method = get_method(name)
    config = AutoConfig.for_model(name, backbone_config={"hidden_size": 32, "num_attention_heads": 2, "vocab_size": 50})
    assert type(config) is method.config
    assert type(AutoModel.from_config(config)) is method.encoder
    assert type(AutoModelForPreTraining.from_config(config)) is method.pretraining


def test_every_declaration_is_in_the_table() -> None:
    declared = {
        (path.stem, line.removeprefix("class ").partition("Config(")[0])
        for path in MODELING.glob("modeling_*.py")
        for line in path.read_text().splitlines()
        if line.endswith("Config(BottleneckConfig):")
    }
    assert declared == {tuple(method) for method in METHODS.values()}


@pytest.mark.parametrize("row", [("modeling_retromae", "RetroMae"), ("modeling_retro", "RetroMAE")])
def test_a_row_that_names_what_is_not_there_is_said_in_a_sentence(row: tuple[str, str]) -> None:
    with pytest.raises(InputError, match=f"There is no {row[1]}Config in hf_dense.modeling.{row[0]}, where its row"):
        _ = Method(*row).config


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"Unknown method 'retromee'; choose one of: condenser, .*, simlm\."):
        get_method("retromee")
    for name, key in (("SEED-Encoder", "seed_encoder"), ("RetroMAE", "retromae"), ("CoT-MAE", "cotmae")):
        with pytest.raises(InputError, match=rf"Unknown method '{name}'; did you mean {key}\?"):
            get_method(name)
