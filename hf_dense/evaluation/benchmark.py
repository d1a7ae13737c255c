"""Many retrievers on many tasks: public ones by their MTEB names, local ones by their directories; one table."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from hf_dense.errors import InputError
from hf_dense.evaluation.answers import Answers
from hf_dense.evaluation.candidates import Candidates
from hf_dense.evaluation.dimensions import cut_row, is_cut_of, plot_dimensions
from hf_dense.evaluation.documents import Documents
from hf_dense.evaluation.measures import title as in_words
from hf_dense.evaluation.outdated import outdated
from hf_dense.evaluation.plots import draw_metrics, save_figure
from hf_dense.evaluation.reranking import FirstPassages
from hf_dense.evaluation.result import RANKS_KEPT, RESULT_FILE, RetrievalResult
from hf_dense.evaluation.retrieval import Passages
from hf_dense.evaluation.runner import AS_IT_IS, KIND, Protocol, run_protocol
from hf_dense.evaluation.tables import beir, means, summarise
from hf_dense.evaluation.tasks import expand, label, local_task, public_task
from hf_dense.hub.dimensions import check_dimensions, check_distinct, cut_to
from hf_dense.hub.precision import Reading
from hf_dense.search.candidates import load_ranker
from hf_dense.search.fingerprints import model_source
from hf_dense.search.first_stage import BM25
from hf_dense.search.reranking import RERANK_DEPTH
from hf_dense.storage.files import write_text
from hf_dense.storage.manifest import MANIFEST, Manifest
from hf_dense.storage.occupied import Occupied
from hf_dense.storage.output import Output

logger = logging.getLogger(__name__)

PROTOCOLS: Final[dict[str, Callable[[Path, str], Protocol]]] = {
    "passages": Passages.load,
    "documents": Documents,
    "answers": Answers,
    "candidates": Candidates,
}  # how a local task is measured
FACTS_FILE, TABLE_FILE, PLOT_FILE = "results.json", "results.md", "results.png"
DIMENSIONS_FILE: Final = "dimensions.png"
_FILES: Final = (FACTS_FILE, TABLE_FILE, PLOT_FILE, DIMENSIONS_FILE)
_FOLDERS: Final = re.compile(r"""(?:^|(?<=[\s=,'"(]))/(?:[^\s:,'"/]+/)*(?=[^\s:,'"/])""")  # of a path from the root
_LONGEST: Final = 120  # bytes of a name, of which a row may have two; a directory's has 255 at most

T = TypeVar("T")
Results = dict[str, dict[str, RetrievalResult]]  # by the names of model and task


def evaluate_tasks(
    models: Mapping[str, str | Path],
    tasks: Sequence[str],
    out: str | os.PathLike[str] | Output,
    *,
    protocol: str = "passages",
    rerankers: Mapping[str, str | Path] | None = None,
    rerank_depth: int = RERANK_DEPTH,
    dimensions: Sequence[int] = (),
    batch_size: int = 64,
    reading: Reading = AS_IT_IS,
    baselines: Container[str] = (),
) -> Results:
    """Evaluate every model on every task; what is in `out` already is not done again.

    Args:
        models: directories or Hub ids, or `bm25`, by the name they have in tables.
        tasks: names of MTEB's retrieval tasks or of `GROUPS`; or `COLLECTION:SPLIT`, a directory (published form, or
            BEIR layout) or a dataset of the Hub (the split is `test` when it is left out).
        out: receives `<model>/<task>/result.json` (and MTEB's scores, rankings) and, of all that was ever measured
            there, `results.json`, `results.md` (the table, and each model against the one before, or
            the one that it re-ranks or cuts) and `results.png`;
            with `dimensions` also `dimensions.png`.
        protocol: how local tasks are measured: `passages` are found; `documents`, by their best passages (MS MARCO); or
            `answers` (Natural Questions); or the `candidates` of each query are ranked (MIND).
        rerankers: cross-encoders, or retrievers, by name, which order the first passages of every model anew; rows of
            their own, `model + name`.
        rerank_depth: how many, 100 by default, at most the 1,000 that are kept; another number is named in the row.
        dimensions: numbers of first dimensions that vectors are cut to, for rows `model (N dimensions)`; a model whose
            vectors have no more has no such row.
        batch_size: texts, or pairs, encoded at once.
        reading: the precision that models compute in, and the longest text of retrievers. Rows that were read in other
            ways are told apart below the table.
        baselines: names of models that nobody asked for: their first passages are not ordered anew, and where one fails
            that is only said.

    Returns:
        Results of these models and tasks.

    Raises:
        InputError: something cannot be evaluated, what is there under a name is the evaluation of something else; said
            after all that can be is done and kept.
    """
    output, names, rerankers = Output.of(out), expand(tasks), rerankers or {}
    _check(models, names, rerankers, protocol, rerank_depth)
    cuts, titles = _cuts(models, dimensions), _titles(names)
    _warn_of_missing({name: model for name, model in {**models, **rerankers}.items() if name not in baselines})
    reads = [*models.values(), *rerankers.values(), *(local_task(task)[0] or task for task in names)]
    with output.occupy("evaluations", {}, claims=_FILES, reads=reads, again=True) as folder:
        table = _Table(folder, output, [*models], [*titles], batch_size, reading, baselines)
        for title, task in titles.items():
            searched = table.attempt([*models], title, partial(_load, task, protocol))
            if searched is not None:
                _measure_task(table, title, searched, models, rerankers, rerank_depth)
                _measure_cut(table, title, searched, models, cuts)
        table.write()
        folder.complete()
    if table.failed:
        raise InputError(f"{table.failure()} What could be measured is in {output.path}.")
    return table.found


def _cuts(models: Mapping[str, str | Path], dimensions: Sequence[int]) -> dict[str, list[int]]:
    """By name of a model the numbers of dimensions that its vectors are cut to; a warning says which they have not.

    Raises:
        InputError: the vectors of no model can be cut to a number, or one is given twice.
    """
    check_distinct(dimensions)
    cuts: dict[str, list[int]] = {name: [] for name in models}
    refused: dict[int, dict[str, str]] = {}
    for name, model in models.items() if dimensions else ():
        if model == BM25:
            continue
        try:
            loaded = load_ranker(model)
        except InputError:  # which is said of every task that it is measured on
            continue
        for number in dimensions:
            try:
                check_dimensions([number], loaded, model)
                cuts[name].append(number)
            except InputError as error:
                refused.setdefault(number, {})[name] = str(error)
    for number, reasons in refused.items():
        if not any(number in cut for cut in cuts.values()):
            raise InputError(next(iter(reasons.values())))
        for name, reason in reasons.items():
            logger.warning("%s gets no row of %d dimensions: %s", name, number, reason)
    return cuts


def _titles(names: Sequence[str]) -> dict[str, str]:
    """Tasks by the names that they have in tables."""
    titles = {label(task): task for task in names}
    if len(titles) < len(names):
        raise InputError("Two tasks have the same name; rename a directory.")
    return titles


def _check(
    models: Mapping[str, Any], tasks: Sequence[str], rerankers: Mapping[str, Any], protocol: str, depth: int
) -> None:
    if not models or not tasks:
        raise InputError("Name at least one model and one task.")
    if strange := [name for name in (*models, *rerankers) if Path(name).name != name or not _can_be_shown(name)]:
        raise InputError(f"A model is called {strange[0]!r}, which is no name of a directory; name it: NAME=MODEL.")
    if long := [name for name in (*models, *rerankers) if len(os.fsencode(name)) > _LONGEST]:
        raise InputError(f"A model is called {long[0]!r}, too long a name for a directory; name it: NAME=MODEL.")
    if taken := [name for name in (*models, *rerankers) if name.lower() in (MANIFEST, *_FILES)]:
        raise InputError(f"A model is called {taken[0]!r}, as a file that is written is; name it: NAME=MODEL.")
    if models.get(BM25, BM25) != BM25:
        raise InputError(f"A model is called {BM25!r}, and is not BM25; name it: NAME=MODEL.")
    if protocol not in PROTOCOLS:
        raise InputError(f"The protocol is {protocol!r}; allowed: {', '.join(PROTOCOLS)}.")
    if not 1 <= depth <= RANKS_KEPT:
        raise InputError(f"rerank_depth is {depth}; it must be from 1 to {RANKS_KEPT}.")


def _warn_of_missing(models: Mapping[str, str | Path]) -> None:
    """Say of models that no directory and no id of the Hub can be, at once: their turn may be hours away."""
    missing = [name for name, model in models.items() if not Path(model).is_dir() and _is_path(model)]
    for name in missing if len(missing) < len(models) else ():
        logger.warning("There is no model directory %s; there will be no row %s.", models[name], name)


def _is_path(model: str | Path) -> bool:
    """Whether it can be no id of the Hub."""
    return isinstance(model, Path) or model.startswith(("/", ".")) or model.count("/") > 1


def _can_be_shown(name: str) -> bool:
    """Whether a name has a directory to itself, and a cell of a table."""
    return name not in ("", "..") and name.isprintable() and not name.isspace()


class _Table:
    """What one call finds, and why it does not find the rest.

    The manifest of the folder keeps the order of all `rows` that were ever asked for, and of the tasks, with the
    fingerprints of their `collections` when they were read last, and of the `models` of the rows.
    """

    def __init__(
        self,
        folder: Occupied,
        output: Output,
        rows: Sequence[str],
        tasks: Sequence[str],
        batch_size: int,
        reading: Reading,
        baselines: Container[str],
    ) -> None:
        self.folder, self.output, self.baselines = folder, output, baselines
        self.how: dict[str, Any] = {"batch_size": batch_size, "reading": reading}
        self.found: Results = {name: {} for name in rows}
        self.failed: dict[str, str] = {}
        self.passed_over: dict[str, str] = {}  # the same, of baselines
        known = folder.facts.get("collections", {})
        folder.facts["collections"] = known | {task: known.get(task) for task in tasks}
        folder.facts["rows"] = list(dict.fromkeys([*folder.facts.get("rows", []), *rows]))

    def attempt(self, rows: Sequence[str], title: str, run: Callable[[], T]) -> T | None:
        """What `run` gives; None where it fails, for which only these cells are to blame, or where there are none."""
        try:
            return run() if rows else None
        except Exception as error:
            if not isinstance(error, InputError | OSError | MemoryError):
                logger.exception("%s failed on %s", rows[0], title)
            reason, asked = str(error) or type(error).__name__, [row for row in rows if row not in self.baselines]
            self.failed |= {f"{row} on {title}": reason for row in asked}
            if not asked:
                self.passed_over |= {f"{row} on {title}": reason for row in rows}
            return None

    def measure(
        self, name: str, title: str, model: str | Path, protocol: Protocol, dimensions: int | None = None
    ) -> bool:
        """Fill a cell; whether that could be done."""
        logger.info("%s on %s", name, title)
        self.folder.facts["collections"][title] = protocol.sources["collection"].fingerprint
        place = self.output.at(name, title)

        def run() -> RetrievalResult:
            self._check_model(name, title, model, dimensions)
            return run_protocol(protocol, model, place, name=name, dimensions=dimensions, **self.how)

        result = self.attempt([name], title, run)
        if result is not None:
            measured = _evaluation_of(place.path)
            assert measured is not None
            self.folder.facts["models"] = _models_of(self.folder) | {name: measured.made_from["model"]}
            self.found.setdefault(name, {})[title] = result
            self.folder.facts["rows"] = list(dict.fromkeys([*self.folder.facts["rows"], name]))
            self.folder.record()
        return result is not None

    def _check_model(self, name: str, title: str, model: str | Path, dimensions: int | None) -> None:
        """Raise `InputError` where a new cell would be of another model than those that its row has."""
        known = _models_of(self.folder).get(name)
        if known is None or self.output.overwrite or _evaluation_of(self.folder.path / name / title):
            return
        loaded = BM25 if model == BM25 else load_ranker(model)
        with cut_to(loaded, dimensions, str(model)):
            source = model_source(loaded, model)
        if source.fingerprint != known:
            raise InputError(
                f"{self.output.path / name} was measured of another model than {model}; give this one another name "
                "(NAME=MODEL), or --overwrite, with which the other tasks of that name are left out of the table."
            )

    def write(self) -> None:
        """The tables of the folder; raises `InputError` where nothing was ever measured there."""
        for cell, reason in self.passed_over.items():
            logger.warning("%s was not measured: %s", cell, reason)
        if not any(self.found.values()) and not self.folder.resumed:
            raise InputError(self.failure())
        _write_tables(self.folder, self.failed | self.passed_over)

    def failure(self) -> str:
        """What failed and why, cells of one reason together."""
        cells: dict[str, list[str]] = {}
        for cell, reason in self.failed.items():
            cells.setdefault(reason, []).append(cell)
        return " ".join(f"{', '.join(failed)}: {reason}" for reason, failed in cells.items())


def _measure_task(
    table: _Table,
    title: str,
    searched: Protocol,
    models: Mapping[str, str | Path],
    rerankers: Mapping[str, str | Path],
    depth: int,
) -> None:
    """Fill the cells of all models, and of all that order their first passages anew.

    Baselines come last: where no model that was asked for could be measured, as its name was mistyped, none is.
    """
    asked = [name for name in models if name not in table.baselines]
    measured = [name for name in asked if table.measure(name, title, models[name], searched)]
    for name in measured:
        shown = f" ({depth})" if depth != RERANK_DEPTH else ""
        rows = {f"{name} + {other}{shown}": reranker for other, reranker in rerankers.items()}
        load = partial(_first_passages, table.output.at(name, title).path, searched, depth)
        if (first := table.attempt([*rows], title, load)) is not None:
            for row, reranker in rows.items():
                table.measure(row, title, reranker, first)
    if measured or not asked:
        for name in (name for name in models if name not in asked):
            table.measure(name, title, models[name], searched)


def _measure_cut(
    table: _Table, title: str, searched: Protocol, models: Mapping[str, str | Path], cuts: Mapping[str, Sequence[int]]
) -> None:
    """Fill the cells of all models that were measured, with vectors of the dimensions that each is cut to."""
    for name, model in models.items():
        if title in table.found[name]:
            for dimension in cuts[name]:
                row = cut_row(name, dimension)
                table.folder.facts.setdefault("cut", {})[row] = name
                table.measure(row, title, model, searched, dimension)


def _load(task: str, protocol: str) -> Protocol:
    directory, split = local_task(task)
    return PROTOCOLS[protocol](directory, split) if directory is not None else Passages(*public_task(task))


def _first_passages(first_stage: Path, searched: Protocol, depth: int) -> FirstPassages:
    if not isinstance(searched, Passages | Documents | Answers):
        raise InputError(f"{first_stage} cannot be re-ranked: candidates are; give the cross-encoder as a model.")
    return FirstPassages(first_stage, searched, depth)


def _write_tables(folder: Occupied, failed: Mapping[str, str]) -> None:
    """The results of all that was measured in a directory, in this call or before."""
    found, said, made_of = _collect(folder)
    said += [f"Not measured in the last call ({FACTS_FILE} says why): {', '.join(failed)}"] if failed else []
    write_text(folder.path / FACTS_FILE, json.dumps(_facts(found, failed), indent=1))
    write_text(folder.path / TABLE_FILE, summarise(found, made_of) + "".join(f"- {line}\n" for line in said))
    values = {name: means(results) for name, results in found.items()}
    first = next(iter(values.values()), {})
    shown = [main for main in first if all(main in measured for measured in values.values())]
    if shown:
        rows = [
            {"name": name, **{f"{task} {in_words(metric)}": values[name][task, metric] for task, metric in shown}}
            for name in values
        ]
        save_figure(draw_metrics(rows), folder.path / PLOT_FILE)
    else:
        (folder.path / PLOT_FILE).unlink(missing_ok=True)
    plot_dimensions(found, folder.facts.get("cut", {}), folder.path / DIMENSIONS_FILE)


def _collect(folder: Occupied) -> tuple[Results, list[str], dict[str, str]]:
    """All results of a directory that belong together, what is said of the others and of how these were read, and the
    rows that are another one's, re-ranked or cut, with that one.
    """
    found: Results = {}
    said, cut, models = [], folder.facts.get("cut", {}), _models_of(folder)
    made_of = dict(cut)
    for name in folder.facts["rows"]:
        for title in folder.facts["collections"]:
            place = folder.path / name / title
            if (manifest := _evaluation_of(place)) is None:
                continue
            if manifest.made_from["model"] != models[name]:
                said.append(f"{name} on {title} was measured of another model; measure it again")
            elif reason := outdated(place, manifest, folder.facts["collections"]):
                said.append(f"{name} on {title} was measured {reason}; measure it again")
            else:
                result, whole = RetrievalResult.load(place), found.get(cut.get(name, name), {}).get(title)
                if whole and not is_cut_of(result, whole):
                    said.append(f"{name} on {title} was measured of another model; measure it again")
                else:
                    found.setdefault(name, {})[title] = result
                    if first := manifest.sources.get("first stage"):
                        made_of[name] = Path(first).parent.name  # ROW/TASK
                    if read := Reading.of(manifest.made_from).in_words:
                        said.append(f"{name} on {title} was measured {read}")
    return found, said, made_of


def _evaluation_of(place: Path) -> Manifest | None:
    """The manifest of an evaluation that is complete."""
    manifest = Manifest.load(place)
    is_one = manifest is not None and manifest.kind == KIND and (place / RESULT_FILE).is_file()
    return manifest if is_one else None


def _models_of(folder: Occupied) -> dict[str, str]:
    """The fingerprint of the model of each row: of the cell measured last, or of the first, where that is not kept."""
    models: dict[str, str] = dict(folder.facts.get("models", {}))
    for name in folder.facts["rows"]:
        for title in folder.facts["collections"] if name not in models else ():
            if manifest := _evaluation_of(folder.path / name / title):
                models.setdefault(name, manifest.made_from["model"])
    return models


def _facts(found: Results, failed: Mapping[str, str]) -> dict[str, Any]:
    models = {}
    for name, results in found.items():
        values, missing = beir(results)
        models[name] = {
            "tasks": {task: result.metrics | {"seconds": result.seconds} for task, result in results.items()},
            "beir": {
                "datasets": len(values),
                "mean nDCG@10": sum(values.values()) / len(values) if values else None,
                "missing": missing,
            },
        }
    # This is published, so of a path no more is kept than its last part.
    return {"models": models, "failed": {cell: _FOLDERS.sub("", reason) for cell, reason in failed.items()}}
