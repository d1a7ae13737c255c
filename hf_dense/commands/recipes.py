"""Recipes: YAML files of options, of the papers or one's own, merged in the order in which they are named.

Beside options a file may hold

- `extends`: the recipe or file that it goes on from;
- `by_method`: options for single pre-training methods, which win over the others of the file;
- `retriever`: what the stages retriever1, retriever2 and distilled have in common;
- `variants`, `pretraining` and `finetuning`: of an ablation (`hf-dense sweep`);
- `{method}` in `out`, for the name of the method.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any, Final

from hf_dense.errors import InputError
from hf_dense.methods import METHODS

SUMMARY: Final = "List the recipes, or print one."
FOLDER: Final = Path(__file__).parents[1] / "recipes"
STAGES: Final = ("bm25", "retriever1", "mined", "retriever2", "reranker", "distilled")
_SECTIONS: Final = (*STAGES, "retriever", "pretraining", "finetuning")
_SIZES, _KIND = "backbone_config", "model_type"
PARTS: Final = ("encoders", "decoders", _SIZES)  # of a method, of which files and flags change one thing or another
_ASIDE: Final = {"backbone": (_SIZES, "vocab_size"), "tokenizer": ("vocab_size",)}  # by what comes later
_USES: Final = {
    "pretrain": "Pre-training: hf-dense pretrain --config NAME",
    "overlay": "On top of any pre-training: hf-dense pretrain --config NAME --config OVERLAY",
    "finetune": "Fine-tuning: hf-dense finetune --config NAME",
    "sweep": "Ablations, pre-training, fine-tuning and measuring: hf-dense sweep --config NAME",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `hf-dense recipes`."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="of the recipe to print (default: all are listed)")


def run(arguments: argparse.Namespace) -> None:
    """Print a recipe, or what each is, where it comes from and what it costs."""
    if arguments.name:
        print(find_config(arguments.name).read_text(encoding="utf-8"), end="")
        return
    paths = sorted(FOLDER.glob("*.yaml"))
    uses = {path: _use(path) for path in paths}
    for use, title in _USES.items():
        print(f"{title}\n")
        for path in (path for path in paths if uses[path] == use):
            head = describe(path)
            print(f"  {path.stem:24}  {head['what']}")
            print("".join(f"{'':30}{key}: {head[key]}\n" for key in ("source", "cost")))


def describe(path: Path) -> dict[str, str]:
    """What a recipe is, its source and its cost, as the comment at its head says; the lines are `# Source: ...`."""
    head = re.match(r"(# .*\n)+", path.read_text(encoding="utf-8"))
    lines = head[0].replace("# ", "").splitlines() if head else [""]
    named = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in lines[1:]}
    return {"what": lines[0], **{key: named.get(key, "not said") for key in ("source", "cost")}}


def read_configs(
    names: Iterable[str], method: str | None = None, others: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The options of recipes and YAML files, later ones winning: of a section each option, of encoders, decoders and a
    backbone's sizes each change by its name, at any depth, else the whole. One that names a ready backbone or
    tokenizer sets aside how files before it would have one made; one of another kind of backbone, the sizes before it.

    Args:
        names: paths, or names of recipes.
        method: pre-training method, where the files do not say it or another is wanted.
        others: options as a file holds them, which win over the files; later ones win.

    Returns:
        The options; those that a later file sets to nothing are left out.

    Raises:
        InputError: a file or recipe that is not there, or one that holds no options.
    """
    files = [*(values for name in names for values in _with_bases(name)), *map(dict, others)]
    method = method or next((values["method"] for values in reversed(files) if values.get("method")), "")
    if not isinstance(method, str):
        raise InputError(f"method is {method!r}; it is the name of a method.")
    values: dict[str, Any] = {}
    for file in files:
        own = (file.pop("by_method", None) or {}).get(method) or {}
        values = reduce(merge, (file, own), values)
    if set(STAGES) & set(values):
        shared = values.pop("retriever", None) or {}
        for name in ("retriever1", "retriever2", "distilled"):
            if name == "retriever1" or values.get(name) is not None:  # the first one is there in any case
                values[name] = {**shared, **(values.get(name) or {})}
    if "out" in values:
        values["out"] = str(values["out"]).replace("{method}", method)
    return {key: value for key, value in values.items() if value is not None}


def set_aside(later: Mapping[str, Any]) -> set[str]:
    """The options, of what is made from scratch, that files before some options gave in vain: a ready one is named."""
    return {name for ready, names in _ASIDE.items() if later.get(ready) for name in names} - set(later)


def find_config(name: str, beside: Path = Path()) -> Path:
    """The recipe of that name, or the file at that path, from a folder or from the working directory.

    Raises:
        InputError: there is neither; the message names what is like it.
    """
    for path in (FOLDER / f"{name}.yaml", beside / name, Path(name)):
        if path.is_file():
            return path
    if re.search(r"/|\.ya?ml$", name):
        there = [str(path) for path in (beside / name).parent.glob("*.y*ml")]
        raise InputError(f"The configuration file {name} does not exist{closest(name, there, '.')}")
    names = [path.stem for path in FOLDER.glob("*.yaml")]
    raise InputError(f"There is no recipe or file {name}{closest(name, names, '; hf-dense recipes lists them.')}")


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file holding a mapping; `1e-4` is a number.

    Raises:
        InputError: it is missing, not YAML, or holds something else.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """YAML 1.1 asks for the point in `1.0e-4`, and reads a text without; of a repeated key it drops one value."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [key.value for key, _ in node.value if key.tag == "tag:yaml.org,2002:str"]
            if twice := [key for key, count in Counter(keys).items() if count > 1]:
                raise ValueError(
                    f"it has {twice[0]} twice in one place, of which one would be lost; write one of them."
                )
            return super().construct_mapping(node, deep)

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), "-+0123456789"
    )
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise InputError(f"The configuration file {path} cannot be read: {error.strerror}.") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold 'option: value' lines, but holds a {type(values).__name__}.")
    if strange := [key for key in values if not isinstance(key, str)]:
        raise InputError(f"{path} has the key {strange[0]!r}, which is no option's name.")
    return values


def closest(word: str, known: Iterable[str], otherwise: str) -> str:
    """How a sentence about an unknown word ends: with those that are like it, or otherwise."""
    like = get_close_matches(word, sorted(set(known)), cutoff=0.7)
    return f"; did you mean {' or '.join(like)}?" if like else otherwise


def _with_bases(name: str, above: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """A file behind those that it extends: recipes, or files named from its own folder or the working directory."""
    path = find_config(name, above[-1].parent if above else Path())
    if path in above:
        raise InputError(f"{path} extends itself.")
    values = read_yaml(path)
    if "output_dir" in values:  # the Trainer's own name
        values["out"] = values.pop("output_dir")
    _check_sections(values, path)
    base = values.pop("extends", None)
    return [*(_with_bases(str(base), (*above, path)) if base else ()), values]


def files_with(key: str, files: Iterable[str]) -> list[str]:
    """Those of recipes and files, or of what they extend, that have a key; all where it is not told."""
    named = list(files)
    if len(named) < 2:
        return named
    return [name for name in named if any(_has(values, key) for values in _with_bases(name))] or named


def _has(values: Mapping[str, Any], key: str) -> bool:
    """Whether a file has a key, for all methods or for one."""
    return any(key in (part or {}) for part in (values, *(values.get("by_method") or {}).values()))


def _check_sections(values: Mapping[str, Any], path: Path) -> None:
    """Raise `InputError` where under the name of a section, or of a method, stands something else than options."""
    methods = values.get("by_method")
    parts = {name: values[name] for name in (*_SECTIONS, "by_method") if name in values}
    for name, part in {**parts, **(methods if isinstance(methods, dict) else {})}.items():
        if part is not None and not isinstance(part, dict):
            raise InputError(f"{path} has {name}: {part!r}, where 'option: value' lines belong.")
    for name in methods or ():
        if name not in METHODS:
            like = closest(str(name), METHODS, f"; there are: {', '.join(METHODS)}.")
            raise InputError(f"{path} has options by_method of {name!r}, which is no method{like}")


def merge(before: Mapping[str, Any], later: Mapping[str, Any], within: bool = False) -> dict[str, Any]:
    """Options with later ones laid over them.

    Args:
        before: options as a file holds them.
        later: those that win: of a section option by option, of `PARTS` name by name at every depth; else as a whole. A
            null in the place of one of these, or of all, sets aside what stands there.
        within: whether both are changes to a part itself.
    """
    merged = {key: value for key, value in before.items() if key not in set_aside(later)}
    for key, value in later.items():
        deep, both = within or key in PARTS, isinstance(value, dict) and isinstance(merged.get(key), dict)
        if both and key == _SIZES and value.get(_KIND, here := merged[key].get(_KIND, "bert")) != here:
            both = False  # the settings of one kind of encoder are none of another's
        merged[key] = merge(merged[key], value, deep) if both and (deep or key in _SECTIONS) else value
    return merged


def _use(path: Path) -> str:
    values = read_yaml(path)
    if "by_method" in values:
        return "overlay"
    if "variants" in values:
        return "sweep"
    return "finetune" if set(STAGES) & set(read_configs([str(path)])) else "pretrain"
