"""Options that are dataclasses: as flags, in YAML files, and beside them every option of a Trainer."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar, get_args, get_origin, get_type_hints

from hf_dense.commands.recipes import PARTS, closest, files_with, merge, read_configs
from hf_dense.errors import InputError
from hf_dense.pretraining.options import given_mapping
from hf_dense.storage.batch_size import AUTO
from hf_dense.storage.training_values import check_training

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Kind = TypeVar("Kind", bound="DataclassInstance")
Built = TypeVar("Built", bound="DataclassInstance")

_BATCH_SIZE: Final = "per_device_train_batch_size"  # a number for the Trainer, or `auto` for us
_SEE: Final = "; --help_all lists them."
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "yes", "y", "t", "1"), True),
    **dict.fromkeys(("false", "no", "n", "f", "0"), False),
}


class _Raising:
    """Lets a parser raise what it would end the process with."""

    def error(self, message: str) -> NoReturn:
        """Say in a sentence which option cannot be read."""
        raise InputError(f"{message[:1].upper()}{message[1:]}.")


class Parser(_Raising, argparse.ArgumentParser):
    """A parser of options that no command line gave: of files, or of Python."""


class Flags(Protocol):
    """A parser, or a group of its arguments."""

    def add_argument(self, *names: str, **how: Any) -> argparse.Action:
        """Add one."""


def introduce(parser: argparse.ArgumentParser, text: str) -> None:
    """Begin the help of a verb with a text as it is written, and with few words of usage."""
    parser.usage = f"{parser.prog} [--config RECIPE ...] [--OPTION VALUE ...]"
    parser.description, parser.formatter_class = text, argparse.RawDescriptionHelpFormatter


def add_options(parser: Flags, kind: type[Any], *, positional: str | None = None) -> None:
    """Add a flag for every field of a dataclass; what is not given is absent from what is parsed.

    Args:
        parser: of the verb.
        kind: the dataclass.
        positional: the field that is given without a flag, where no file gives any, so that what has no default is
            asked for at once.
    """
    hints = get_type_hints(kind)
    for option in fields(kind):
        help_ = option.metadata.get("help", "")
        if option.name == positional:
            parser.add_argument(option.name, metavar=option.name.upper(), help=help_)
            continue
        if option.default not in (MISSING, None, "") and option.default is not False:
            help_ += f" (default: {option.default})"
        needed = positional is not None and _needed(option)
        reading = _reading(hints[option.name])
        parser.add_argument(f"--{option.name}", default=argparse.SUPPRESS, required=needed, help=help_, **reading)


def add_config(parser: Flags) -> None:
    """Add `--config`."""
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="RECIPE",
        help="name of a recipe (hf-dense recipes) or path of a YAML file; may be given several times, later ones win, "
        "and flags win over all",
    )


def add_trainer(parser: argparse.ArgumentParser, load: Callable[[], type[Any]]) -> None:
    """Let a verb take every option of a Trainer, which `--help_all` lists.

    Args:
        parser: of the verb.
        load: gives the dataclass of these options; it may be heavy to import.
    """

    class HelpAll(argparse.Action):
        def __call__(self, *_: Any) -> None:
            parser.print_help()
            print(f"\n{_trainer_parser(load()).format_help()}")
            parser.exit()

    parser.add_argument("--help_all", nargs=0, action=HelpAll, help="the same, and every option of the Trainer")
    parser.set_defaults(rest=())


def given_flags(arguments: argparse.Namespace, *kinds: type[Any]) -> dict[str, Any]:
    """The fields of dataclasses that were given as flags."""
    return {name: getattr(arguments, name) for name in option_names(*kinds) if hasattr(arguments, name)}


def build_options(kind: type[Kind], values: Mapping[str, Any], flags: Mapping[str, Any]) -> Kind:
    """A dataclass from values of files, which are read as flags are, and from flags, which win.

    Changes to encoders, decoders and a backbone's sizes that a flag gives are laid over those of files, as a later
    file's are; `null` in place of them sets those of files aside.

    Raises:
        InputError: an option without a default is given by neither, or changes are no mapping.
    """
    flags = {**flags, **_changed_parts(values, flags)}
    scratch = Parser(add_help=False, allow_abbrev=False)
    add_options(scratch, kind)
    own = {key: value for key, value in values.items() if key in option_names(kind) and key not in flags}
    found = {**vars(scratch.parse_args(_as_flags(own))), **flags}
    for option in fields(kind):
        if _needed(option) and option.name not in found:
            raise InputError(f"Name the {option.name} with --{option.name}, or in a file (--config).")
    return kind(**found)


def _needed(option: Field[Any]) -> bool:
    """Whether a field has no default."""
    return option.default is MISSING and option.default_factory is MISSING


def _changed_parts(values: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, str]:
    """What files and flags together change of a method's parts, where both change something."""
    both = [part for part in PARTS if values.get(part) and flags.get(part) not in (None, "null")]
    before, later = ({part: given_mapping(given[part], part) for part in both} for given in (values, flags))
    return {part: json.dumps(changes) for part, changes in merge(before, later).items()}


def build_arguments(
    kind: type[Kind], values: Mapping[str, Any], arguments: argparse.Namespace, others: Iterable[str]
) -> Kind:
    """The arguments of a Trainer from values of files and from the flags that no other option took.

    Args:
        kind: dataclass of the Trainer.
        values: of files; `out` is the Trainer's `output_dir`.
        arguments: of the verb: `out`, and `rest`.
        others: options that are not the Trainer's, for people who mistype one.

    Raises:
        InputError: a flag that is none, no directory to write to, or values that do not go together.
    """
    own = {"output_dir" if key == "out" else key: value for key, value in values.items()}
    words = _as_flags({key: value for key, value in own.items() if key in option_names(kind)}) + list(arguments.rest)
    words += ["--output_dir", arguments.out] if hasattr(arguments, "out") else []
    if not any(word.partition("=")[0] == "--output_dir" for word in words):
        raise InputError("Name the directory to write with --out.")
    size, words = _batch_size(words)
    try:
        parsed, *_, unknown = _trainer_parser(kind).parse_args_into_dataclasses(
            words, return_remaining_strings=True, look_for_args_file=False
        )
    except OSError:
        raise
    except Exception as error:  # libraries raise whatever they come to over options that they do not know
        raise InputError(" ".join(str(error).split())) from error
    if unknown:
        known = [f"--{name}" for name in {*option_names(kind), *others}]
        raise InputError(f"{unknown[0]!r} is no option of this command{closest(unknown[0], known, _SEE)}")
    check_training(parsed)
    built: Kind = parsed
    if size == AUTO:
        vars(built)[_BATCH_SIZE] = AUTO
    return built


def _batch_size(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """What the last flag for the size of a batch says, and the words with that number alone, or none for `auto`."""
    scratch = Parser(add_help=False, allow_abbrev=False)
    scratch.add_argument(f"--{_BATCH_SIZE}")
    found, others = scratch.parse_known_args(words)
    size: str | None = getattr(found, _BATCH_SIZE)
    return size, others if size in (None, AUTO) else [*others, f"--{_BATCH_SIZE}", size]


def parse_options(own: type[Kind], trainer: type[Built], argv: Sequence[str] | None = None) -> tuple[Kind, Built]:
    """The options of a script that trains; see `read_options`."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=own.__doc__)
    add_options(parser, own)
    parser.add_argument("--out", default=argparse.SUPPRESS, metavar="DIR", help="directory to write")
    add_config(parser)
    add_trainer(parser, lambda: trainer)
    arguments, rest = parser.parse_known_args(argv)
    arguments.rest = rest
    return read_options(arguments, own, trainer)


def read_options(arguments: argparse.Namespace, own: type[Kind], trainer: type[Built]) -> tuple[Kind, Built]:
    """A dataclass of our options and one of a Trainer's, from the files and flags of parsed arguments.

    Raises:
        InputError: see `read_values`, `build_options` and `build_arguments`.
    """
    values = read_values(arguments, own, trainer)
    options = build_options(own, values, given_flags(arguments, own))
    return options, build_arguments(trainer, values, arguments, option_names(own))


def read_values(arguments: argparse.Namespace, *kinds: type[Any]) -> dict[str, Any]:
    """The values of the files that `--config` names.

    Args:
        arguments: of the verb.
        kinds: dataclasses whose fields, and `out`, are known keys.

    Raises:
        InputError: see `read_configs`; or a key that is no option.
    """
    values = read_configs(arguments.config, getattr(arguments, "method", None))
    check_keys(values, {"out", *option_names(*kinds)}, arguments.config)
    return values


def check_keys(values: Iterable[str], known: set[str], files: Iterable[str]) -> None:
    """Raise `InputError` for a key of files that is no option."""
    for key in values:
        if key not in known:
            named = " and ".join(files_with(key, files))
            raise InputError(f"{named} has the key {key!r}, which is no option here{closest(key, known, _SEE)}")


def option_names(*kinds: type[Any]) -> list[str]:
    """The fields of dataclasses, by name."""
    return [option.name for kind in kinds for option in fields(kind)]


def _reading(hint: Any) -> dict[str, Any]:
    """How argparse reads a type; mappings stay JSON."""
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    if bool in kinds:
        return {"nargs": "?", "const": True, "type": read_boolean, "metavar": "true"}
    kind = next((kind for kind in (int, float) if kind in kinds), str)
    named = {"metavar": "N"} if kind is not str else {}
    several = any(get_origin(one) is list for one in (hint, *get_args(hint)))
    return {"type": read_number if kind is float else kind, **named, **({"nargs": "+"} if several else {})}


def read_boolean(word: str) -> bool:
    """The value of a flag that is true or false.

    Raises:
        argparse.ArgumentTypeError: the word is neither.
    """
    if word.lower() not in _BOOLEANS:
        raise argparse.ArgumentTypeError(f"{word!r} is neither true nor false")
    return _BOOLEANS[word.lower()]


def read_number(word: str) -> float:
    """The value of a flag that is a number, of which infinity and "nan" are none.

    Raises:
        argparse.ArgumentTypeError: the word is none.
    """
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{word!r} is no number")
    return number


def _as_flags(values: Mapping[str, Any]) -> list[str]:
    """YAML entries as the words of flags, which a parser converts to the options' own types."""
    words: list[str] = []
    for key, value in values.items():
        shown = value if isinstance(value, list) else [value]
        words += [f"--{key}", *(json.dumps(one) if isinstance(one, dict | bool) else str(one) for one in shown)]
    return words


def _trainer_parser(kind: Any) -> Any:
    from transformers import HfArgumentParser

    class TrainerParser(_Raising, HfArgumentParser):
        """A parser of the options of a Trainer."""

    return TrainerParser(kind, add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
