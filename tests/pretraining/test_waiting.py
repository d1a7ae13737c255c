"""On a GPU no step waits: what would be waited for is known on the host. Tested where nothing can be read back, on
PyTorch's device "meta", whose tensors have shapes but no values: what asks for one raises."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.utils import send_to_device
from datasets import Dataset
from tiny_pretraining import BACKBONE, tiny_arguments, tiny_keywords, tiny_vocabulary, token_rows
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hf_dense.methods import METHODS
from hf_dense.modeling.bottleneck_plan import Plan
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.soundness import Soundness
from hf_dense.pretraining.throughput import Throughput
from hf_dense.pretraining.trainer import PreTrainer

DEVICE = torch.device("meta")
VOCABULARY = tiny_vocabulary()
SIZES = {"vocab_size": VOCABULARY.size, "pad_token_id": VOCABULARY.pad, **BACKBONE}
MODERN = {"model_type": "modernbert", "local_attention": 4, **SIZES, "num_hidden_layers": 3}
MPNET = {"model_type": "mpnet", **SIZES}
CHANGES: dict[str, dict[str, Any]] = {
    "simlm": {"generator_config": {"model_type": "electra", **SIZES}, "generator_weight": 0.2}
}


@pytest.fixture(autouse=True)
def _no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "meta" has no mixed precision, and does not say so but raises."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())


class NoNumbers(TorchFunctionMode):
    """Refuses tensors of the host's numbers, for which a GPU is waited for."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert function not in (torch.tensor, torch.as_tensor), f"{function} waits for the device."
        return function(*args, **(kwargs or {}))


class NoCopies(TorchDispatchMode):
    """Refuses copies between host and device, where the host waits; that a value is asked for, "meta" refuses."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        devices = {
            leaf.device.type
            for leaf in tree_leaves((args, kwargs, made))
            if isinstance(leaf, Tensor) and (leaf.dim() or leaf.device == DEVICE)  # a number goes with the operation
        }
        assert len(devices) < 2, f"{function} waits for the device."
        return made


def make_model(method: str, **changes: Any) -> BottleneckForPreTraining:
    kind = METHODS[method]
    return kind.pretraining(kind.config(**{"backbone_config": SIZES, **CHANGES.get(method, {}), **changes}))


def step(directory: Path, model: BottleneckForPreTraining, chunk: int | None = None, planned: bool = True) -> Tensor:
    """A step of the Trainer on the device, up to the optimiser; returns the loss."""
    training = tiny_arguments(directory)
    training.remove_unused_columns = False
    collator = ViewCollator(model.config, VOCABULARY, 32, 0, tiny_keywords())
    rows = Dataset.from_list([{**dict.fromkeys(model.config.sources), "length": 1, "document": 0}])
    trainer = PreTrainer(model=model, args=training, collator=collator, train_dataset=rows, chunk=chunk)
    batch = collator(token_rows(8))
    if not planned:
        batch["plan"] = None
    model.to(DEVICE).train()
    soundness, trainer._throughput = Soundness(DEVICE), Throughput(list(model.encoder_specs), DEVICE)
    batch = send_to_device(batch, DEVICE)
    with NoNumbers(), NoCopies():
        (read,), counts = trainer.get_batch_samples(iter([batch]), 1, DEVICE)
        loss = trainer.compute_loss(model, read, num_items_in_batch=counts)
        loss.backward()
        soundness.watch(loss, 1)
    assert all(parameter.grad is not None for parameter in model.encoder.parameters())
    return loss


@pytest.mark.parametrize("bottleneck", ["cls", "mean"])
@pytest.mark.parametrize("method", METHODS)
def test_a_step_of_every_method_waits_for_nothing(method: str, bottleneck: str, tmp_path: Path) -> None:
    assert step(tmp_path, make_model(method, bottleneck=bottleneck)).device == DEVICE


@pytest.mark.parametrize("backbone", [MODERN, MPNET], ids=lambda sizes: sizes["model_type"])
@pytest.mark.parametrize("method", ["simlm", "retromae", "condenser"])
def test_nor_where_positions_are_relative(method: str, backbone: dict[str, Any], tmp_path: Path) -> None:
    assert step(tmp_path, make_model(method, backbone_config=backbone)).device == DEVICE


def test_without_its_plan_a_step_waits(tmp_path: Path) -> None:
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        step(tmp_path, make_model("retromae"), planned=False)


@pytest.mark.parametrize(
    "wait",
    [
        lambda tensor: tensor.tolist(),
        lambda tensor: tensor.sum().item(),
        lambda tensor: bool((tensor > 0).any()),
        lambda tensor: tensor[tensor > 0],
        lambda tensor: tensor.nonzero(),
        lambda tensor: tensor.bincount(),
        lambda tensor: tensor.cpu(),
        lambda tensor: torch.tensor([1, 2], device=tensor.device),
        lambda tensor: torch.ones(2).to(tensor.device),
    ],
)
def test_the_guard_sees_what_waits(wait: Callable[[Tensor], object]) -> None:
    numbers = torch.ones(3, dtype=torch.long, device=DEVICE)
    with pytest.raises((NotImplementedError, RuntimeError, AssertionError)), NoNumbers(), NoCopies():
        wait(numbers)


def test_a_plan_travels_as_one_tensor_and_comes_back_equal() -> None:
    model = make_model("master")
    batch = ViewCollator(model.config, VOCABULARY, 32, 0, tiny_keywords())(token_rows(8))
    plan: Plan = batch["plan"]
    moved: list[Tensor] = []

    class Copies(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function.overloadpacket is torch.ops.aten._to_copy:
                moved.append(args[0])
            return function(*args, **(kwargs or {}))

    with Copies():
        there = plan.to(DEVICE)
    assert len(moved) == 1
    assert there.joined.at.shape == plan.joined.at.shape
    assert there.views.keys() == plan.views.keys()
    again: Plan = pickle.loads(pickle.dumps(plan))
    for name, reading in plan.views.items():
        assert torch.equal(again.views[name].places.where, reading.places.where)
        assert torch.equal(again.views[name].scored.at, reading.scored.at)
    for before, after in zip(plan.joined.groups, again.joined.groups, strict=True):
        assert before[:4] == after[:4]
    numbers, _ = again.__getstate__()
    assert numbers.data_ptr() == again.joined.order.data_ptr(), "it would be packed anew, out of pinned memory"
