"""Sections of a pipeline's file: which keys they may have, and their values as the trainers take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, Final, TypeVar, get_args, get_type_hints

from hf_dense.errors import InputError
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments
from hf_dense.finetuning.reranker import RerankerTrainingArguments
from hf_dense.finetuning.training import check_tuning
from hf_dense.storage.batch_size import AUTO
from hf_dense.storage.training_values import check_training

Arguments = TypeVar("Arguments", BiencoderTrainingArguments, RerankerTrainingArguments)

MINING: Final = (
    "depth",
    "kind",
    "skip",
    "margin",
    "filter_by",
    "filter_margin",
    "precision",
    "max_length",
    "batch_size",
)
LENGTHS: Final = ("max_length", "query_length")
OF_RETRIEVER: Final = ("passages", "depth", "start", "refresh", "with_bm25", *LENGTHS)  # beside the trainer's arguments
OF_RERANKER: Final = ("base", "max_length", "depth")
_WHOLE: Final = (int, "int", "int | None")  # types of options, as dataclasses have them
_LEAST: Final = {
    **dict.fromkeys(("passages", "depth", "refresh", "batch_size"), 1),
    "skip": 0,
    "max_length": 4,
    "query_length": 3,
}
_SHARED: Final = {"seed": "seed", "output_dir": "out", "overwrite": "overwrite"}  # by the pipeline's own names
_PLAIN: Final = {str: "text", int: "whole number", float: "number", bool: "truth value"}
_SAVING: Final = {"report_to": "none", "save_strategy": "steps", "save_total_limit": 1}
_CHOOSING: Final = {"eval_strategy": "steps", "eval_steps": 0.2}


def option_names(kind: type[Any]) -> set[str]:
    """The names of a dataclass's fields."""
    return {option.name for option in fields(kind)}


def check_types(values: Any, name: str) -> None:
    """Raise `InputError` where a text, a number or a truth value of a dataclass, by its type, is none."""
    for key, kind in get_type_hints(type(values)).items():
        value, allowed = getattr(values, key), get_args(kind) if isinstance(kind, UnionType) else (kind,)
        for of, words in _PLAIN.items():
            right = (int, float) if of is float else of
            if of in allowed and not isinstance(value, right) and not (value is None and type(None) in allowed):
                raise InputError(f"The {name} has {key}: {value!r}, which is no {words}.")


def check_section(name: str, values: Mapping[str, Any] | None, known: set[str]) -> None:
    """Pass when a section is one of known keys, or is not there.

    Raises:
        InputError: it is not, a key is of what all stages share, or one of our own numbers is out of range.
    """
    if values is not None and not isinstance(values, Mapping):
        raise InputError(f"The section {name} must hold 'option: value' lines.")
    if unknown := sorted(set(values or ()) - known):
        raise InputError(f"The section {name} has the key {unknown[0]!r}, which is no option of it.")
    if shared := sorted(set(values or ()) & set(_SHARED)):
        own = _SHARED[shared[0]]
        raise InputError(f"The section {name} has {shared[0]}, which all share; write {own} beside the sections.")
    for key, least in _LEAST.items():
        value = (values or {}).get(key, least)
        if not isinstance(value, int) or value < least:
            raise InputError(f"The section {name} has {key}: {value!r}; it is a whole number, {least} or more.")
    if not isinstance(also := (values or {}).get("with_bm25", False), bool):
        raise InputError(f"The section {name} has with_bm25: {also!r}; it is true or false.")


def trainer_arguments(
    kind: type[Arguments], name: str, section: Mapping[str, Any], chosen_by: str | None, **ours: Any
) -> Arguments:
    """The arguments of a training; its best checkpoint is kept where there is something to choose by.

    Args:
        kind: of arguments.
        name: of the section.
        section: its values.
        chosen_by: the metric, or None.
        ours: arguments that no section sets.

    Raises:
        InputError: values that the trainer does not take.
    """
    values = {**_SAVING, **(_CHOOSING if chosen_by else {}), **_read(kind, name, section), **ours}
    if chosen_by:
        values.setdefault("save_steps", values["eval_steps"])
        values |= {"load_best_model_at_end": True, "metric_for_best_model": chosen_by}
    try:
        arguments = kind(**values)
        check_training(arguments)
        check_tuning(arguments)
    except (ValueError, TypeError) as error:
        raise InputError(f"The section {name} cannot be used: {' '.join(str(error).split())}") from error
    return arguments


def _read(kind: type[Any], name: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's values of a section; YAML reads numbers such as 2e-5 as text."""
    options, found = {option.name: option for option in fields(kind)}, {}
    for key, value in section.items():
        if key in options:
            default = options[key].default
            number = isinstance(default, int | float) and not isinstance(default, bool)
            number = number or str(options[key].type).startswith("float")
            if value == AUTO and key == "per_device_train_batch_size" and kind is BiencoderTrainingArguments:
                number = False
            try:
                found[key] = float(value) if number and isinstance(value, str) else value
            except ValueError as error:
                raise InputError(f"The section {name} has {key}: {value!r}, which is no number.") from error
            if options[key].type in _WHOLE and isinstance(found[key], float):
                if not found[key].is_integer():
                    raise InputError(f"The section {name} has {key}: {value!r}; it is a whole number.")
                found[key] = int(found[key])
    return found
