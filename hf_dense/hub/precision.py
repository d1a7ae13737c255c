"""The number format that models compute in: what there is, what this machine is faster in, and a model in it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hf_dense.errors import InputError
from hf_dense.storage.process_group import decide_together

if TYPE_CHECKING:
    import torch
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from torch import nn
    from transformers import TrainingArguments

    Model = TypeVar("Model", SentenceTransformer, CrossEncoder, SentenceTransformer | CrossEncoder)

FP32, BF16, FP16, AUTO = "fp32", "bf16", "fp16", "auto"
PRECISIONS: Final = (FP32, BF16, FP16)
PRODUCTS: Final = ("highest", "high", "medium")  # of float32 matrices, as torch names them

logger = logging.getLogger(__name__)

_NAMES: Final = {FP32: "float32", BF16: "bfloat16", FP16: "float16"}
_SHAPE: Final = (512, 512, 2048)  # rows, inputs and outputs of a linear layer
_TRIALS, _LONGEST = 10, 0.8  # and the seconds after which there are no more
_WORTH: Final = 1.5  # times as fast
_SMALL: Final = 10_000_000  # weights; what is smaller trains alike on processors with bfloat16 and without


@dataclass(frozen=True)
class Reading:
    """How texts are read, as far as the model leaves it open; vectors and scores depend on it.

    Args:
        precision: that a model computes in: `fp32`, `bf16` or `fp16`. Vectors are float32 in each.
        max_length: longest text of a retriever in tokens; None is its own. Pairs of a cross-encoder stay as they are.

    Raises:
        InputError: another precision, or a length that no text has.
    """

    precision: str = FP32
    max_length: int | None = None

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise InputError(f"The precision is {self.precision!r}; choose one of {', '.join(PRECISIONS)}.")
        length = self.max_length
        if length is not None and (not isinstance(length, Integral) or length < 2):
            raise InputError(f"max_length is {length!r}; it must be a whole number, at least 2 tokens.")

    @property
    def settings(self) -> dict[str, Any]:
        """What a manifest says of it."""
        return {"precision": self.precision, **({} if self.max_length is None else {"max_length": self.max_length})}

    @property
    def in_words(self) -> str:
        """How it differs from what everything is measured with; nothing where it does not.

        >>> Reading("bf16", 64).in_words, Reading().in_words
        ('in bf16, of texts cut to 64 tokens', '')
        """
        precision = [] if self.precision == FP32 else [f"in {self.precision}"]
        length = [] if self.max_length is None else [f"of texts cut to {self.max_length} tokens"]
        return ", ".join(precision + length)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Reading:
        """That of a manifest."""
        return cls(settings.get("precision", FP32), settings.get("max_length"))

    def apply(self, model: Model) -> Model:
        """The model as it reads so: itself where it does, else a copy.

        Raises:
            InputError: the model has not so many positions.
        """
        import torch
        from sentence_transformers import SentenceTransformer

        from hf_dense.hub.retriever_settings import length_of, query_length_of, set_lengths

        dtype: torch.dtype = getattr(torch, _NAMES[self.precision])
        length = own = None
        if isinstance(model, SentenceTransformer):
            length, own = self.max_length, length_of(model)
        cast = any(weight.is_floating_point() and weight.dtype != dtype for weight in model.parameters())
        if not cast and length in (None, own):
            return model
        _check_length(model, length)
        read = deepcopy(model).to(dtype)
        if length is not None and isinstance(read, SentenceTransformer):
            queries = query_length_of(read)
            set_lengths(read, length, None if queries is None else min(queries, length))
        return read


def _check_length(model: Any, length: int | None) -> None:
    from hf_dense.modeling.bottleneck_backbones import FAMILIES

    config = getattr(getattr(model, "transformers_model", None), "config", None)
    if length is None or config is None or config.model_type not in FAMILIES:
        return
    positions = FAMILIES[config.model_type].shape(config).positions
    if length > positions:
        raise InputError(f"max_length is {length} tokens; the encoder takes at most {positions}.")


def choose_precision(arguments: TrainingArguments, model: nn.Module, wanted: str, recorded: str | None = None) -> str:
    """Set the precision that a training computes in, and say it in the log where nobody chose it.

    Args:
        arguments: of the training; `bf16`, `fp16`, and what `accelerate launch --mixed_precision` says, choose too.
        model: that is trained.
        wanted: `fp32`, `bf16` or `fp16`; or `auto`: what the arguments choose, else what is recorded, else bfloat16 on
            devices that are faster by it; on processors not for models of less than 10 million weights.
        recorded: that of the run which is gone on with.

    Returns:
        What it is.

    Raises:
        InputError: another precision, two that contradict each other, or float16 on a processor.
    """
    device = arguments.device.type
    if wanted not in (AUTO, *PRECISIONS):
        raise InputError(f"The precision is {wanted!r}; choose one of {', '.join((AUTO, *PRECISIONS))}.")
    chosen = None if arguments.mixed_precision == "no" else str(arguments.mixed_precision)
    if wanted != AUTO and chosen not in (None, wanted):
        raise InputError(
            f"The precision is {wanted}, and the training's arguments say {chosen}; leave one of them out."
        )
    found = chosen if wanted == AUTO else wanted
    if found is None:
        small = device == "cpu" and sum(weight.numel() for weight in model.parameters()) < _SMALL
        found = recorded or decide_together(lambda: BF16 if not small and is_faster_in_bf16(device) else FP32)
        why = "as the run that is gone on with" if recorded else "in which this machine multiplies matrices faster"
        if found != FP32:
            logger.warning("Training computes in %s, %s; --precision fp32 refuses it.", found, why)
    if found == FP16 and device == "cpu":
        raise InputError("No processor trains in fp16; choose bf16 or fp32.")
    arguments.bf16, arguments.fp16 = found == BF16, found == FP16
    arguments.mixed_precision = "no" if found == FP32 else found  # what the Trainer reads, derived before this point
    return found


@contextmanager
def float32_products(precision: str) -> Iterator[None]:
    """Let matrices of float32 be multiplied so (`torch.set_float32_matmul_precision`), inside of this."""
    import torch

    if precision == PRODUCTS[0]:  # as torch has it; to ask for it fails where the Trainer's tf32 was set
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def check_products(precision: str, tf32: bool | None) -> None:
    """Raise `InputError` where matrices cannot be multiplied so, or where the Trainer's `tf32` says it already."""
    if precision not in PRODUCTS:
        raise InputError(f"float32_matmul_precision is {precision!r}; choose one of {', '.join(PRODUCTS)}.")
    if precision != PRODUCTS[0] and tf32 is not None:
        raise InputError("float32_matmul_precision and tf32 say the same thing; leave one of them out.")


def is_faster_in_bf16(device: str) -> bool:
    """Whether a device computes faster in bfloat16 than in float32.

    GPUs that have it do. Processors that have it (AMX, AVX512-BF16) are tried out, in at most two seconds; the others
    would emulate it, and be slower.

    Args:
        device: its type, as torch has it.
    """
    import torch

    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    has_it = device == "cpu" and any("bf16" in name and has for name, has in torch.cpu.get_capabilities().items())
    return has_it and speed_in_bf16() >= _WORTH


@cache
def speed_in_bf16() -> float:
    """How many times as fast as in float32 this processor multiplies matrices in bfloat16."""
    import torch

    return _seconds(torch.float32) / _seconds(torch.bfloat16)


def _seconds(dtype: torch.dtype) -> float:
    """Of a linear layer, the best of some trials, which take a second together."""
    import torch
    from torch.nn import functional

    rows, inputs, outputs = _SHAPE
    texts, weights = torch.ones(rows, inputs, dtype=dtype), torch.ones(outputs, inputs, dtype=dtype)
    taken: list[float] = []
    with torch.inference_mode():
        while len(taken) < _TRIALS and sum(taken) < _LONGEST:
            started = time.perf_counter()
            functional.linear(texts, weights)
            taken.append(time.perf_counter() - started)
    return min(taken)
