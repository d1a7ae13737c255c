"""Several processes with accelerate's files of `examples/`: weights that are cut up, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sharded
import torch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from launched import launch
from tiny_pretraining import tiny_options, weights
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy
from torch.nn import Linear

from hf_dense.errors import InputError
from hf_dense.pretraining.sharding import check_sharding, open_shards

FILES = Path(__file__).parents[2] / "examples" / "accelerate"


@pytest.mark.parametrize("path", sorted(FILES.glob("*.yaml")), ids=lambda path: path.stem)
def test_accelerate_knows_all_that_the_files_say(path: Path) -> None:
    read = load_config_from_file(str(path))
    known = set(vars(launch_command_parser().parse_args(["script.py"])))
    assert set(read.fsdp_config) | set(read.deepspeed_config) <= known | {"deepspeed_multinode_launcher"}
    assert (read.num_machines, read.machine_rank, read.main_process_ip) == (1, 0, None)


def of(fsdp: dict[str, Any] | None = None, stage: int | None = None) -> Any:
    """A trainer of which it is known how its weights are cut up."""
    usual = {"fsdp_version": 2, "auto_wrap_policy": None, "activation_checkpointing": False}
    plugin = SimpleNamespace(**usual | {"state_dict_type": "StateDictType.FULL_STATE_DICT"} | (fsdp or {}))
    state = SimpleNamespace(fsdp_plugin=plugin, deepspeed_plugin=SimpleNamespace(zero_stage=stage))
    accelerator = SimpleNamespace(state=state)
    return SimpleNamespace(
        accelerator=accelerator, is_fsdp_enabled=fsdp is not None, is_deepspeed_enabled=stage is not None
    )


@pytest.mark.parametrize(
    ("trainer", "chunk", "refused"),
    [
        (of(), 2, None),
        (of({}), 2, None),
        (of({"auto_wrap_policy": transformer_auto_wrap_policy}), None, None),
        (of({"auto_wrap_policy": partial(transformer_auto_wrap_policy, transformer_layer_cls={Linear})}), None, None),
        (of({"auto_wrap_policy": size_based_auto_wrap_policy}), None, "TRANSFORMER_BASED_WRAP or NO_WRAP"),
        (of({"fsdp_version": 1}), None, "set fsdp_version to 2"),
        (of({"activation_checkpointing": True}), None, "say --gradient_checkpointing true"),
        (of({"state_dict_type": "StateDictType.SHARDED_STATE_DICT"}), None, "fsdp_state_dict_type to FULL_STATE_DICT"),
        (of(stage=2), None, None),
        (of(stage=2), 2, "leave out --chunk"),
        (of(stage=3), None, "use stage 2"),
    ],
)
def test_what_cannot_be_put_together_is_refused(trainer: Any, chunk: int | None, refused: str | None) -> None:
    with pytest.raises(InputError, match=refused) if refused else nullcontext():
        check_sharding(trainer, chunk)


def test_muon_moves_whole_matrices_alone() -> None:
    check_sharding(of(), muon=True)
    for cut_up in (of({}), of(stage=2)):
        with pytest.raises(InputError, match="leave it out, or use DDP"):
            check_sharding(cut_up, muon=True)


def test_a_whole_model_is_left_alone() -> None:
    model = Linear(2, 2)
    open_shards(model)
    assert type(model) is Linear


def logged(output: Path) -> list[list[float]]:
    """Losses and norms of gradients, of steps and of the evaluation."""
    history = json.loads((output / "trainer_state.json").read_text())["log_history"]
    kept = [{name: row[name] for name in row if name.endswith("loss") or name == "grad_norm"} for row in history]
    return [[row[name] for name in sorted(row)] for row in kept if row and "train_loss" not in row]


def train(directory: Path, cases: list[str]) -> None:
    """Train the cases in this process, then cut up over two."""
    tiny_options(directory)  # writes the corpus
    for case in cases:
        sharded.train(directory, "one", case)
    done = launch(sharded.__file__, directory, "two", *cases, config=FILES / "fsdp.yaml", timeout=900)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_is_cut_up_over_two_processes_learns_what_one_does(tmp_path: Path) -> None:
    cases = [case for case in sharded.CASES if case != "bf16"]
    train(tmp_path, cases)
    for case in cases:
        whole, cut = tmp_path / "one" / case, tmp_path / "two" / case
        for first, second in zip(logged(whole), logged(cut), strict=True):
            assert second == pytest.approx(first, abs=1e-4), case
        ones, twos = weights(whole), weights(cut)
        tied = twos.keys() - ones.keys()  # SimLM's generator: what is gathered shares no memory, so it is there twice
        assert all(any(torch.equal(twos[name], twos[other]) for other in ones) for name in tied), tied
        assert max((ones[name] - twos[name]).abs().max() for name in ones) < 5e-5, case
        assert {path.name for path in cut.glob("*.py")} == {path.name for path in whole.glob("*.py")}
    undisturbed, resumed = (weights(tmp_path / "two" / case) for case in ("retromae", "resumed"))
    assert all(torch.equal(undisturbed[name], resumed[name]) for name in undisturbed)
    loads(tmp_path / "two" / "retromae")


@pytest.mark.slow
def test_in_bfloat16_too(tmp_path: Path) -> None:
    train(tmp_path, ["bf16"])
    for first, second in zip(*(logged(tmp_path / name / "bf16") for name in ("one", "two")), strict=True):
        assert second == pytest.approx(first, abs=2e-2)


LOAD = """
import sys
sys.modules["hf_dense"] = None
from transformers import AutoModel, AutoModelForPreTraining
for kind in (AutoModel, AutoModelForPreTraining):
    print(type(kind.from_pretrained(sys.argv[1], trust_remote_code=True)).__name__)
"""


def loads(checkpoint: Path) -> None:
    """Assert that one process loads encoder and decoders without hf_dense, and exports the encoder."""
    command = [sys.executable, "-c", LOAD, str(checkpoint)]
    environment = {**os.environ, "HF_HOME": str(checkpoint.parent / "home")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["RetroMAEModel", "RetroMAEForPreTraining"], done.stderr
    words = ["export", str(checkpoint), "--out", str(checkpoint.parent / "exported"), "--max_length", "20"]
    done = subprocess.run(
        [sys.executable, "-m", "hf_dense.commands.main", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
