"""Keyword arguments as the flags of a verb: one reading, and one set of checks, for the command line and Python."""

from __future__ import annotations

import argparse
import inspect
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from enum import Enum
from functools import partial, wraps
from numbers import Number
from typing import Any, Final, ParamSpec, TypeVar

from hf_dense.commands.main import load_verb
from hf_dense.commands.options import Parser
from hf_dense.commands.recipes import closest
from hf_dense.errors import InputError, sentence_of
from hf_dense.storage.scratch import advice_on, settle_home
from hf_dense.storage.training_values import check_seed

P = ParamSpec("P")
R = TypeVar("R")

Place = str | os.PathLike[str]  # a path, a result that is at one, or a Hub id

_SWITCHES: Final = ("no_bm25", "overwrite", "private", "whole")  # flags that take no value
_PLACES: Final = (  # options that are one `Place`
    *("out", "model", "base", "backbone", "tokenizer", "collection", "corpus", "queries", "keep", "keywords"),
    *("teacher", "filter_by", "results", "mteb"),
)
_PARTS: Final = ("backbone_config", "encoders", "decoders", "generator")  # of a method, given as dicts


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A function that answers as the command line does: a keyword that it does not know, and what cannot be done."""
    named = inspect.signature(function).parameters.values()
    known = [one.name for one in named if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    takes_more = any(one.kind is one.VAR_KEYWORD for one in named)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_unknown(() if takes_more else kwargs, known, function.__name__)
        settle_home()
        from hf_dense.hub.reach import noticing_offline

        try:
            with noticing_offline():
                return function(*args, **kwargs)
        except Exception as error:
            said = advice_on(error) or sentence_of(error)
            if said is None or isinstance(error, InputError):
                raise
            raise InputError(said) from error

    return call


def refuse_unknown(given: Iterable[str], known: Sequence[str], function: str) -> None:
    """Raise `InputError` for a keyword that is none, with those that are like it."""
    for name in given:
        if name not in known:
            raise InputError(f"{name!r} is no option of {function}{closest(name, known, '.')}")


def read_call(
    verb: str, positional: Sequence[Place], options: Mapping[str, Any], config: Place | Sequence[Place] | None = None
) -> argparse.Namespace:
    """What the parser of a verb makes of a call.

    Args:
        verb: of the command line, such as `evaluate` or `data negatives`.
        positional: what stands without a flag.
        options: by the names of their flags; those that are None were not given.
        config: recipes or files, for `--config`.

    Returns:
        The arguments that the verb runs with; their words are those that a person would type.

    Raises:
        InputError: a value that the flag does not take.
    """
    first, *others = verb.split()
    given = [*map(as_path, positional)]
    if strange := [word for word in given if word.startswith("-")]:
        raise InputError(f"{strange[0]!r} begins with -, as flags do; begin a path with ./, and a name otherwise.")
    words = [*others, *given]
    words += [f"--config={as_path(one)}" for one in as_list(() if config is None else config)]
    for name, value in options.items():
        words += _words(name, value)
    parser = Parser(prog=f"hf-dense {first}", allow_abbrev=False)
    load_verb(first).add_arguments(parser)
    arguments, rest = parser.parse_known_args(words)
    if rest and not hasattr(arguments, "rest"):  # what the Trainer does not know is refused where its options are read
        before = words[: -words[::-1].index(rest[0]) - 1]
        option = [word for word in before if word.startswith("--")][-1]
        raise InputError(f"{option} takes one value, and {rest[0]!r} is one too many; give one alone.")
    check_seed(getattr(arguments, "seed", 0))
    arguments.rest, arguments.words = rest, [first, *words]
    return arguments


def as_list(given: Any) -> list[Any]:
    """One, or several; what is neither, such as a loaded model or a table, which can be looped over too, is one."""
    return list(given) if _are_several(given) else [given]


def check_filled(**given: Any) -> None:
    """Raise `InputError` for an argument, by its name, that wants one or several and has none."""
    for name, value in given.items():
        if isinstance(value, list | tuple | dict) and not value:
            raise InputError(f"{name} is empty; give one, or several.")


def _are_several(given: Any) -> bool:
    """Whether it is to be looped over; of a dict and a table that gives keys and names of columns."""
    one = isinstance(given, str | bytes | os.PathLike | Mapping) or hasattr(given, "to_parquet")
    return not one and isinstance(given, Collection | Iterator)


def as_path(given: Place) -> str:
    """As the command line has it.

    Raises:
        InputError: it is at no place, as a loaded model or a Dataset.
    """
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"A path is wanted, not an object of the type {type(given).__name__}; {_advice(given)}.")
    path = os.fsdecode(given)
    if not path:
        raise InputError("A path is empty; name a file, a directory, or what is on the Hub.")
    return path


def _words(name: str, value: Any) -> list[str]:
    """An option as a person would type it.

    >>> _words("margin", 0.1), _words("dimensions", [64, 32]), _words("overwrite", True), _words("normalize", False)
    (['--margin=0.1'], ['--dimensions', '64', '32'], ['--overwrite'], ['--normalize=false'])
    """
    value = _unpacked(value)
    if value is None:
        return []
    if name in _SWITCHES:
        if not isinstance(value, bool):
            raise InputError(f"{name} is {value!r}; give True or False.")
        return [f"--{name}"] if value else []
    if name in _PLACES and (isinstance(value, Number) or _are_several(value)):
        raise InputError(
            f"{name} is one path, not an object of the type {type(value).__name__}; give a text or a Path."
        )
    if _are_several(value):
        words = [_word(name, one) for one in value]
        return [f"--{name}", *words] if words else []
    return [f"--{name}={_word(name, value)}"]


def _word(name: str, value: Any) -> str:
    if isinstance(value, bool | Mapping):
        return json.dumps(value, default=partial(_plain, name))
    if isinstance(value, Enum):
        return str(value.value)
    if name in _PLACES and isinstance(value, str) and not value:
        raise InputError(f"{name} is empty; name a file, a directory, or what is on the Hub.")
    if not isinstance(value, str | os.PathLike | Number):
        raise InputError(f"{name} is of the type {type(value).__name__}; {_wanted(name, value)}.")
    return os.fsdecode(value) if isinstance(value, os.PathLike) else str(value)


def _unpacked(value: Any) -> Any:
    """A single number as Python has it, of numpy and torch."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _wanted(name: str, value: Any) -> str:
    """What is given for an option in place of an object that is none of it."""
    if name in _PARTS:
        return "give a dict"
    return _advice(value) if name in (*_PLACES, "lists", "tasks") else "give a text or a number"


def _plain(name: str, value: Any) -> Any:
    """A part of a dict as JSON has it: an `Encoder` or a `Decoder` by its fields."""
    if isinstance(value, Mapping):
        return dict(value)
    if getattr(value, "ndim", None) == 0:
        return _unpacked(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise InputError(
        f"{name} holds an object of the type {type(value).__name__}; give numbers, texts, lists and dicts."
    )


def _advice(value: Any) -> str:
    """What is done with something that is at no place; a table is known without an import of `datasets`."""
    if isinstance(getattr(value, "retriever", None), os.PathLike):  # of an adaptation
        return "give its retriever"
    how = "write it with to_parquet" if hasattr(value, "to_parquet") else "save it"
    return f"{how}, and give its path, or a name on the Hub"
