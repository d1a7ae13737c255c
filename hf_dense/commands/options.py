"""Options from a YAML file and from the command line, the command line winning."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser

from hf_dense.errors import InputError


def parse_options(*kinds: type[Any], argv: list[str] | None = None) -> tuple[Any, ...]:
    """Parse dataclasses of options from `--config FILE.yaml` (optional) and flags.

    Args:
        kinds: dataclasses, each field of which is a flag and a YAML key.
        argv: arguments, the program's own when absent.

    Returns:
        One instance per dataclass.

    Raises:
        InputError: the file is missing or not YAML, or a key or flag is no option.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = HfArgumentParser(list[Any](kinds), allow_abbrev=False)
    parser.add_argument("--config", help="YAML file of options; flags win over it")
    argv = [word for given in argv for word in (given.split("=", 1) if given.startswith("--config=") else [given])]
    if "--config" in argv:
        at = argv.index("--config")
        if at + 1 == len(argv):
            raise InputError("--config needs the path of a YAML file after it.")
        values = read_yaml(Path(argv[at + 1]))
        known = {field.name for kind in kinds for field in fields(kind)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise InputError(f"{argv[at + 1]} has the key {unknown[0]!r}, which is no option; --help lists them.")
        argv = [word for key, value in values.items() for word in _as_flag(key, value)] + argv
    *parsed, unknown_words = parser.parse_args_into_dataclasses(
        args=argv, return_remaining_strings=True, look_for_args_file=False
    )
    if unknown_words:
        raise InputError(f"{unknown_words[0]!r} is no option of this command; --help lists them.")
    return tuple(parsed[: len(kinds)])


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file holding a mapping.

    Raises:
        InputError: it is missing, not YAML, or holds something else.
    """
    if not path.is_file():
        raise InputError(f"The configuration file {path} does not exist.")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold 'option: value' lines, but holds a {type(values).__name__}.")
    return values


def _as_flag(key: str, value: Any) -> list[str]:
    """A YAML entry as the words of a flag, which the parser converts to the option's own type."""
    if value is None:
        return []
    if isinstance(value, list):
        return [f"--{key}", *map(str, value)]
    return [f"--{key}", json.dumps(value) if isinstance(value, dict | bool) else str(value)]
