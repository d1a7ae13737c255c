"""Tasks of retrieval by name: public ones of MTEB, groups of them, directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import mteb
from datasets.exceptions import DatasetsError
from mteb.abstasks.retrieval import AbsTaskRetrieval

from hf_dense.data.collections import named_split
from hf_dense.errors import InputError

_FORUMS: Final = (
    "Android",
    "English",
    "Gaming",
    "Gis",
    "Mathematica",
    "Physics",
    "Programmers",
    "Stats",
    "Tex",
    "Unix",
    "Webmasters",
    "Wordpress",
)
CQADUPSTACK: Final = "CQADupstackRetrieval"
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "beir": (
        "TRECCOVID",
        "NFCorpus",
        "NQ",
        "HotpotQA",
        "FiQA2018",
        "ArguAna",
        "Touche2020",
        CQADUPSTACK,
        "QuoraRetrieval",
        "DBPedia",
        "SCIDOCS",
        "FEVER",
        "ClimateFEVER",
        "SciFact",
    ),
    "web": ("MSMARCO", "TRECDL2019", "TRECDL2020"),
    CQADUPSTACK: tuple(f"CQADupstack{forum}Retrieval" for forum in _FORUMS),
}
_OF_MTEB: Final = (*GROUPS["beir"], *GROUPS["web"])
NOT_PUBLIC: Final = ("BioASQ", "Signal-1M", "TREC-NEWS", "Robust04")
BEIR: Final = (*GROUPS["beir"], *NOT_PUBLIC)  # all 18
_SPLITS: Final = {"MSMARCO": "dev", "MSMARCO-documents": "dev", "MIND": "dev"}  # that papers report; else test
_FOLDERS: Final = {
    "cqadupstack": CQADUPSTACK,
    "dbpediaentity": "DBPedia",
    "fiqa": "FiQA2018",
    "quora": "QuoraRetrieval",
    "webistouche2020": "Touche2020",
}  # as BEIR calls them


def expand(tasks: Sequence[str]) -> list[str]:
    """Names of groups (`beir`, `web`, `CQADupstackRetrieval`) as those of their tasks, each once, in order.

    >>> expand(["web", "SciFact", "MSMARCO"])
    ['MSMARCO', 'TRECDL2019', 'TRECDL2020', 'SciFact']
    """
    names: dict[str, None] = {}
    for task in tasks:
        names |= dict.fromkeys(expand(GROUPS[task]) if task in GROUPS else [task])
    return list(names)


def local_task(task: str) -> tuple[Path | None, str]:
    """Directory, or dataset of the Hub, and split of a task that is none of MTEB's; None where it is a name of that."""
    if (named := named_split(task, "test")) is not None:
        return Path(named[0]), named[1]
    if "/" in task or task.startswith("."):
        raise InputError(f"There is no directory {task.rpartition(':')[0] or task} to evaluate on.")
    return None, ""


def public_task(name: str) -> tuple[AbsTaskRetrieval, str]:
    """A task of MTEB with its data, and the split that is measured: `test`, or `dev`, where it has several."""
    try:
        task: Any = mteb.get_task(name)
    except (KeyError, ValueError) as error:
        split = " Of its tasks no split is chosen: leave it out." if ":" in name else ""
        raise InputError(f"MTEB has no task {name!r}, and there is no directory of that name.{split}") from error
    if not isinstance(task, AbsTaskRetrieval):
        raise InputError(f"The task {name} of MTEB is not one of retrieval.")
    try:
        task.load_data()
    except (OSError, ValueError, DatasetsError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(
            f"The data of {name} ({task.metadata.dataset['path']} on the Hub) cannot be loaded: {reason}; give a "
            "directory with its corpus, queries and judgements instead."
        ) from error
    splits = task.metadata.eval_splits
    return task, next((split for split in ("test", "dev") if split in splits), splits[0])


def label(task: str) -> str:
    """The name of a task in tables: as it is given, or `<directory>-<split>`."""
    directory, split = local_task(task)
    return task if directory is None else f"{directory.resolve().name}-{split}"


def data_set(label: str) -> str:
    """What papers measured that a task is, by its label: a directory called like it, case and hyphens aside.

    >>> [data_set(label) for label in ("SciFact", "trec-covid-test", "MIND-dev", "mind-test", "mine-test")]
    ['SciFact', 'TRECCOVID', 'MIND', 'mind-test', 'mine-test']
    """
    directory, _, split = label.rpartition("-")
    known = {_plain(name): name for name in (*BEIR, *GROUPS["web"], *_SPLITS)} | _FOLDERS
    name = known.get(_plain(directory), "")
    return name if name and split == _SPLITS.get(name, "test") else label


def drops_queries(label: str) -> bool:
    """Whether a directory is called like a data set in which MTEB drops a hit with the id of its own query.

    >>> [drops_queries(label) for label in ("arguana-test", "scifact-test", "mine-test")]
    [True, False, False]
    """
    name = data_set(label)
    if name == label or name not in _OF_MTEB:
        return False
    return bool(getattr(mteb.get_task(name), "ignore_identical_ids", False))  # a group has none


def _plain(name: str) -> str:
    return name.lower().replace("-", "")
