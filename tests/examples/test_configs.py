"""Every ready configuration can be read and declares a model that can be built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from hf_dense.methods import METHODS

CONFIGS = sorted((Path(__file__).parents[2] / "examples" / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_a_configuration_declares_its_method(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import TrainingArguments

    from hf_dense.commands.options import parse_options
    from hf_dense.pretraining.pretrain import PretrainingOptions

    options, training = parse_options(
        PretrainingOptions, TrainingArguments, argv=["--config", str(path), "--use_cpu", "true"]
    )
    assert path.stem in (options.method, f"{options.method}_demo", f"{options.method}_one_gpu")
    method = METHODS[options.method]
    given = (options.backbone_config, options.encoders, options.decoders)  # a mapping arrives as JSON, as from a flag
    sizes, encoders, decoders = (json.loads(value) if isinstance(value, str) else value for value in given)
    config = method.config(backbone_config=sizes, encoders=encoders, decoders=decoders)
    assert options.max_length <= config.backbone.max_position_embeddings
    assert training.output_dir == f"build/{path.stem.removesuffix('_one_gpu')}"
    if config.contrasts:
        assert training.gradient_accumulation_steps == 1


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_its_configurations(method: str) -> None:
    found = {path.stem for path in CONFIGS}
    assert {method, f"{method}_one_gpu", f"{method}_demo"} <= found


def test_one_gpu_reads_as_much_per_step_as_the_paper() -> None:
    for path in CONFIGS:
        if not path.stem.endswith("_one_gpu"):
            continue
        paper = path.with_name(path.name.replace("_one_gpu", "")).read_text()
        processes = int(paper.split("--num_processes ")[1].split(")")[0])
        sizes = [yaml.safe_load(text) for text in (paper, path.read_text())]
        steps = [size["per_device_train_batch_size"] * size["gradient_accumulation_steps"] for size in sizes]
        assert steps[0] * processes == steps[1], path.stem
