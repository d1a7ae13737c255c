"""What a step must know of its batch on the host: which tokens there are, and which of them are read and scored.

A `Plan` follows from masks and labels. A collator makes it while these lie in the host's memory; it travels to the
device with the batch, and a step with its plan never waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from .bottleneck_declaration import Bag
from .bottleneck_layout import Places, Rows, join_views, tokens_of
from .bottleneck_losses import IGNORED
from .configuration_bottleneck import BottleneckConfig

DRAWN = 0.0  # in `uniform`: the least number by which a generator draws a token; below it the token stays


class BagRows(NamedTuple):
    """What a bag-of-words loss reads of an encoder's view.

    Args:
        read: (n,) rows whose states are read.
        lengths: how many of each text, longest text first.
        sought: (m,) rows of the tokens to be found.
        texts: (m,) the text of each of these, by its number among the longest first.
    """

    read: Tensor
    lengths: Sequence[int]
    sought: Tensor
    texts: Tensor


class Drawn(NamedTuple):
    """Where a generator draws tokens.

    Args:
        at: (n,) places among the batch * length tokens of a view, ascending.
        rows: the same as rows of the view, in their order.
        order: (n,) which of `rows` each place is.
    """

    at: Tensor
    rows: Rows
    order: Tensor


class Reading(NamedTuple):
    """What a step reads of a view.

    Args:
        places: of its tokens.
        scored: rows with a label; None where the view has no labels.
        joined: (rows,) the row of each token among those of all encoders' views; None for a decoder's view.
        last: (rows,) the row of each token among the last states that are computed of these, where they are.
        bag: what a bag-of-words loss reads.
        drawn: where a generator draws.
    """

    places: Places
    scored: Rows | None
    joined: Tensor | None = None
    last: Tensor | None = None
    bag: BagRows | None = None
    drawn: Drawn | None = None


class _Parts(NamedTuple):
    """What a `Plan` gives: see there."""

    joined: Places
    last: Rows | None
    views: Mapping[str, Reading]


class Plan:
    """What a step reads of its views. It travels, between processes and devices, as one tensor.

    Args:
        config: of the method.
        views: as `BottleneckForPreTraining.forward` takes them; on a device they are waited for.
        every: whether all last states of the encoders are computed, whatever is read of them.

    Attributes:
        joined: places of the tokens of all encoders' views, one below the other.
        last: rows of the encoder's last layer that are computed; None = all.
        views: what is read of each view.
    """

    def __init__(
        self, config: BottleneckConfig, views: Mapping[str, Mapping[str, Tensor]], every: bool = False
    ) -> None:
        self.joined, self.last, self.views = _parts(config, views, every)
        self._state: tuple[Tensor, Any] | None = None  # of one that has travelled: what it came as, perhaps pinned

    def __getstate__(self) -> tuple[Tensor, Any]:
        """All tensors one after the other, and everything with their shapes in place of them."""
        if self._state is not None:
            return self._state
        tensors: list[Tensor] = []

        def take(tensor: Tensor) -> torch.Size:
            tensors.append(tensor.flatten())
            return tensor.shape

        form = _each(Tensor, _Parts(self.joined, self.last, self.views), take)
        return torch.cat(tensors), form

    def __setstate__(self, state: tuple[Tensor, Any]) -> None:
        self._state = numbers, form = state
        start = 0

        def give(shape: torch.Size) -> Tensor:
            nonlocal start
            start += shape.numel()
            return numbers[start - shape.numel() : start].view(shape)

        self.joined, self.last, self.views = _each(torch.Size, form, give)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Plan:
        """The same on a device."""
        if self.joined.at.device == torch.device(device):
            return self
        return self._with(lambda numbers: numbers.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Plan:
        """The same in page-locked memory, from which a GPU copies while the host goes on."""
        return self._with(lambda numbers: numbers.pin_memory())

    def _with(self, change: Callable[[Tensor], Tensor]) -> Plan:
        numbers, form = self.__getstate__()
        moved = Plan.__new__(Plan)
        moved.__setstate__((change(numbers), form))
        return moved


def _each(kind: type, value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with all of a kind in it changed."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {name: _each(kind, part, change) for name, part in value.items()}
    if isinstance(value, list):
        return [_each(kind, part, change) for part in value]
    if isinstance(value, tuple):  # all of them are named
        return cast(Any, type(value))(*(_each(kind, part, change) for part in value))
    return value


def _parts(config: BottleneckConfig, views: Mapping[str, Mapping[str, Tensor]], every: bool) -> _Parts:
    """What is read of each view alone, and of the encoders' views together."""
    specs = config.encoder_specs
    readings = {name: read_view(view) for name, view in views.items()}
    wanted = []
    for name, spec in specs.items():
        whole = every or config.bottleneck == "mean" or spec.bag is not None
        wanted.append(_wanted(readings[name].places, None if whole else readings[name].scored))
    joined = readings[next(iter(specs))].places
    if len(specs) > 1:
        joined = Places.of(join_views([views[name] for name in specs])["attention_mask"])
    length, text = joined.where.shape[1], 0
    read = joined.flatten(torch.cat([F.pad(part, (0, length - part.shape[1])) for part in wanted]))
    number = read.cumsum(0) - 1
    for name, spec in specs.items():
        places = readings[name].places
        batch, length = places.where.shape
        rows = places.flatten(joined.where[text : text + batch, :length])
        bag = None if spec.bag is None or every else _bag(spec.bag, places, views[name])
        readings[name] = readings[name]._replace(joined=rows, last=number[rows], bag=bag)
        text += batch
    return _Parts(joined, None if read.all() else joined.rows(read), readings)


def read_view(view: Mapping[str, Tensor]) -> Reading:
    """What is read of any view."""
    places = Places.of(tokens_of(view))
    scored = places.rows(places.flatten(view["labels"]) != IGNORED) if "labels" in view else None
    return Reading(places, scored, drawn=_drawn(view["uniform"], places) if "uniform" in view else None)


def _wanted(places: Places, scored: Rows | None) -> Tensor:
    """(batch, length) bool: first tokens and scored ones, or all where nothing is said of scores."""
    wanted = torch.full_like(places.where, scored is None, dtype=torch.bool)
    if scored is not None:
        wanted.flatten()[places.at[scored.at]] = True
        wanted[:, 0] = True
    return wanted


def _bag(bag: Bag, places: Places, view: Mapping[str, Tensor]) -> BagRows:
    """What a bag-of-words loss reads of a view: all but [CLS], and masked tokens where it is declared so."""
    readable = places.positions > 0
    if not bag.masked:
        readable &= places.flatten(view["labels"]) == IGNORED
    sought = places.inner().nonzero().squeeze(1)
    number = places.order.argsort()
    return BagRows(readable.nonzero().squeeze(1), places.counts(readable), sought, number[places.text[sought]])


def _drawn(uniform: Tensor, places: Places) -> Drawn:
    """Where `uniform` (batch, length) has a number to draw by."""
    chosen = uniform >= DRAWN
    read = places.flatten(chosen)
    at = chosen.flatten().nonzero().squeeze(1)
    return Drawn(at, places.rows(read), (read.cumsum(0) - 1)[places.where.flatten()[at]])
