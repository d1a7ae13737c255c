"""`torch.compile`: a step of every method is one graph, and its parts are compiled once for texts of any length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_backbones import BACKBONES, MASK, VOCABULARY
from torch import Tensor, fx
from transformers import AutoModelForMaskedLM

from hf_dense.methods import METHODS
from hf_dense.modeling.bottleneck_losses import IGNORED
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.modeling.modeling_simlm import SimLMForPreTraining

LENGTHS = (9, 5, 12, 7)


def make_model(method: str) -> BottleneckForPreTraining:
    torch.manual_seed(0)
    kind = METHODS[method]
    model = kind.pretraining(kind.config(backbone_config=BACKBONES["bert"](0.0))).double().eval()
    if isinstance(model, SimLMForPreTraining):
        model.set_generator(AutoModelForMaskedLM.from_config(BACKBONES["electra"](0.0)).double().eval())
    return model


def make_views(model: BottleneckForPreTraining, lengths: tuple[int, ...] = LENGTHS) -> dict[str, dict[str, Tensor]]:
    """Every third token hidden; where a generator draws, by 0.5."""
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(5, VOCABULARY, mask.shape, generator=torch.Generator().manual_seed(0)) * mask
    hidden = (torch.arange(max(lengths)) % 3 == 1) & mask.bool()
    view = {"input_ids": ids.masked_fill(hidden, MASK), "attention_mask": mask}
    view["labels"] = ids.masked_fill(~hidden, IGNORED)
    view["visible"] = torch.ones(*mask.shape, mask.shape[1], dtype=torch.bool).tril()
    if isinstance(model, SimLMForPreTraining):
        view["uniform"] = torch.where(hidden, 0.5, -1.0)
    return {name: dict(view) for name in model.config.views}


def results(model: BottleneckForPreTraining, loss: Tensor) -> list[Tensor]:
    """The loss and all gradients, of which the model has none left."""
    loss.backward()
    found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    return [loss.detach(), *found]


@pytest.mark.slow  # what is compiled takes ten seconds and more
@pytest.mark.parametrize("method", METHODS)
def test_a_whole_step_is_one_graph(method: str) -> None:
    model = make_model(method)
    views = make_views(model)
    given = views, model.count_scored(views), model.plan(views)
    torch.compiler.reset()
    whole = torch.compile(model, backend="aot_eager", fullgraph=True)  # which raises where it would break
    torch.testing.assert_close(results(model, whole(*given).loss), results(model, model(*given).loss))


def test_parts_are_compiled_once_for_any_lengths_and_compute_the_same() -> None:
    model, plain, graphs = make_model("condenser"), make_model("condenser"), []

    def backend(graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    model.compile_parts(backend=backend)
    counts = []
    for lengths in ((9, 5, 12, 7), (3, 4), (11, 8, 12), (6, 6, 6, 6, 5)):
        views = make_views(model, lengths)
        torch.testing.assert_close(results(model, model(views).loss), results(plain, plain(views).loss))
        counts.append(len(graphs))
    assert 0 < counts[0] == counts[-1]
