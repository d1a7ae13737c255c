"""The bottleneck gap: how much worse a decoder rebuilds a text from another text's bottleneck than from its own.

It says what a decoder's loss cannot: whether anything comes through the bottleneck. A decoder that has learnt which
words are frequent, or reads what it needs from the words around, has a falling loss and no gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from hf_dense.modeling.bottleneck_layout import FlatRows
from hf_dense.modeling.bottleneck_plan import Plan
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.pretraining.collator import Views, cut

if TYPE_CHECKING:
    from hf_dense.pretraining.trainer import PreTrainer

SUFFIX: Final = "_gap"  # of the names that are logged, behind the decoder's
EVERY: Final = 50  # steps, once in which a log has the gap at most: to look takes up to 0.75 of a step
LEAST_SHARE: Final = 0.01  # of a decoder's loss: below it nothing comes through; docs/evidence.md
_LOGS: Final = 5  # whose mean is judged: one batch says little


def is_due(before: int, step: int) -> bool:
    """Whether the log after `step` has the gap, when the log before it came after step `before`.

    >>> is_due(0, 10), is_due(40, 50), is_due(50, 99), is_due(90, 110), is_due(100, 200)
    (False, True, False, True, True)
    """
    return step // EVERY > before // EVERY


def row_group(config: BottleneckConfig) -> int:
    """How many consecutive rows of a batch come from one row of the corpus, or from one document."""
    if config.siblings:
        return 2
    return max(len(spec.view.sources) for spec in config.encoder_specs.values())


@torch.no_grad()
def gap_sums(model: BottleneckForPreTraining, views: Views, plan: Plan | None = None) -> Tensor:
    """What decoders lose when every text gets the bottleneck of the one before it in the batch.

    Where rows come in groups of one corpus row or document, they get those of the group before. Of what a decoder reads
    nothing else changes: Condenser's early states stay the text's own.

    Args:
        model: in evaluation mode, so that both losses are of the same computation.
        views, plan: see `BottleneckForPreTraining.forward`.

    Returns:
        (decoders, 2), float64: the rise of the summed loss in nats, and the scored tokens; 0 where the batch holds no
        other text.
    """
    plan = model.plan(views) if plan is None else plan
    shown, group = model.shown(views, plan), row_group(model.config)
    counts, encoded = model.count_scored(shown), model.encode(shown, plan)
    found = []
    for name, spec in model.decoder_specs.items():
        view, own = model.scored[name], encoded[spec.encoder]
        layout, labels, read = FlatRows(shown[view], plan.views[view].places), shown[view]["labels"], plan.views[view]
        other = own._replace(bottleneck=own.bottleneck.roll(group, dims=0))
        before, after = (model.score_decoder(name, layout, part, labels, read) for part in (own, other))
        defined = len(own.bottleneck) > group
        found.append(torch.stack([(after - before).double(), counts[name].double()]) * defined)
    return torch.stack(found) if found else torch.zeros(0, 2, dtype=torch.float64)


class BottleneckGap:
    """Measures the gap of every decoder on the batch that was trained on last, after its step.

    Training goes on as if nobody had looked: nothing is changed, and random draws are put back.
    """

    def __init__(self) -> None:
        self._batch: tuple[Views, Plan] | None = None

    def read(self, batch: Mapping[str, Any], chunk: int | None) -> None:
        """Remember a batch of `ViewCollator`, or of one that is read in chunks the first."""
        if "chunks" in batch:
            assert chunk is not None
            self._batch = cut(batch["views"], chunk)[0], batch["chunks"][0]
        else:
            self._batch = batch["views"], batch["plan"]

    def measure(self, trainer: PreTrainer) -> dict[str, float]:
        """The gaps by the names they are logged under, in nats per scored token, over all processes.

        A gap that is not defined is left out: a batch of one text on every process, or an encoder that FSDP or
        DeepSpeed may have cut up.
        """
        if self._batch is None or trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            return {}
        model, device = trainer.model, trainer.args.device
        was_training, drawing = model.training, [device] if device.type == "cuda" else []
        model.train(False)
        with torch.random.fork_rng(drawing), trainer.accelerator.autocast():
            sums = gap_sums(model, *self._batch).to(device)
        model.train(was_training)
        rows = trainer.accelerator.reduce(sums, "sum").tolist()
        return {
            f"{name}{SUFFIX}": rise / count
            for name, (rise, count) in zip(model.decoder_specs, rows, strict=True)
            if count
        }


def find_idle(decoders: Sequence[str], history: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """The decoders that got next to nothing from the bottleneck when a training ended.

    Args:
        decoders: their names.
        history: what was logged.

    Returns:
        By name the gap and the loss, means over the last five logs that have both, where the gap is below 1 % of it.

    >>> find_idle(["a", "b"], [{"a_gap": 0.01, "a_loss": 6.0, "b_gap": 0.2, "b_loss": 5.0}])
    {'a': (0.01, 6.0)}
    """
    found = {}
    for name in decoders:
        keys = f"{name}{SUFFIX}", f"{name}_loss"
        rows = [[row[key] for key in keys] for row in history if all(key in row for key in keys)][-_LOGS:]
        if rows:
            gap, loss = (sum(column) / len(rows) for column in zip(*rows, strict=True))
            if gap < LEAST_SHARE * loss:
                found[name] = (gap, loss)
    return found


def describe_idle(idle: Mapping[str, tuple[float, float]]) -> str:
    """The sentences that say so, and what to do."""
    parts = [f"{name} loses {gap:.3f} of {loss:.2f} nats" for name, (gap, loss) in idle.items()]
    return (
        f"The bottleneck carries nothing yet: with another text's bottleneck {', '.join(parts)}. Train for more steps, "
        "or take another method; docs/evidence.md has when the bottlenecks of some were filled."
    )
