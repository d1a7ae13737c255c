"""The verdict of an adaptation on a page, in a table, and as JSON."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from hf_dense.data.collections import content_hash
from hf_dense.data.labels import UNANSWERED
from hf_dense.data.matching import DIVIDED, UNFOUND
from hf_dense.errors import InputError
from hf_dense.evaluation.cases import Texts, cases, load_run
from hf_dense.evaluation.measures import METRICS, title
from hf_dense.evaluation.page import Block, Code, Heading, Picture, Table, as_html, as_markdown
from hf_dense.evaluation.plots import as_png, draw_losses, draw_metrics, legend_below, loss_series
from hf_dense.evaluation.significance import compare_paired
from hf_dense.experiments.adaptation.arms import BASE, LONGER, TUNED, WORDS, Arm
from hf_dense.experiments.adaptation.material import DEV, PASSAGES, TEST, Material, known_queries
from hf_dense.experiments.adaptation.plan import Plan
from hf_dense.experiments.adaptation.verdict import Alone, Effort, judge
from hf_dense.experiments.arms import format_test
from hf_dense.experiments.asked import METRIC
from hf_dense.pretraining.gap import SUFFIX as GAP
from hf_dense.pretraining.probe import PLAIN, WHITENED
from hf_dense.search.index_building import index_in
from hf_dense.storage.checkpoints import load_history
from hf_dense.storage.files import write_text
from hf_dense.storage.manifest import seconds_of
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.provenance import provenance

PAGE, TWIN, FACTS = "report.html", "report.md", "results.json"
REPORT_FILES: Final = (PAGE, TWIN, FACTS)
RETRIEVER: Final = "retriever"  # the directory of the one to use
_LEFT_OUT: Final = {
    UNFOUND: "have no answer in the documents",
    UNANSWERED: "have no positive passage",
    DIVIDED: "ask for documents of several splits",
}
_CURVES: Final = (  # of a pre-training: the caption, a sentence, the axis, and endings with names; "" = what is before
    (
        "Probes of every pre-training",
        f"{title(METRIC)} of a part of dev while pre-training went on, by the bottleneck before any fine-tuning.",
        title(METRIC),
        {PLAIN: "as it is", WHITENED: "whitened"},
    ),
    (
        "Bottleneck gap of every pre-training",
        "What each decoder loses with another text's bottleneck: near 0, the bottleneck carries nothing.",
        "bottleneck gap (nats)",
        {GAP: ""},
    ),
)


@dataclass(frozen=True)
class Adaptation:
    """What an adaptation came to.

    Attributes:
        path: its directory.
        facts: what `results.json` holds.
    """

    path: Path
    facts: Mapping[str, Any] = field(repr=False)

    @classmethod
    def load(cls, path: str | Path) -> Adaptation:
        """Read one that is complete.

        Raises:
            InputError: none there.
        """
        file = Path(path) / FACTS
        if not file.is_file():
            raise InputError(f"There is no adaptation in {path}; hf-dense adapt makes one.")
        return cls(Path(path), json.loads(file.read_text(encoding="utf-8")))

    @property
    def verdict(self) -> str:
        """Whether pre-training paid, and which retriever to use, in sentences."""
        return " ".join(self.facts["verdict"]["sentences"])

    @property
    def retriever(self) -> Path:
        """The retriever to use, a Sentence-Transformers directory; its index is in it where there was time for it."""
        return self.path / RETRIEVER

    def search(self, documents: str) -> str:
        """The command that asks the retriever; `documents` are what was adapted to, as they are named."""
        cut = self.path / PASSAGES
        best = next(arm for arm in self.facts["arms"] if arm["name"] == self.facts["verdict"]["best"])
        return _search(self.retriever, cut if cut.is_dir() else Path(documents), best["weight"])

    @property
    def table(self) -> str:
        """The arms, as Markdown."""
        return as_markdown("Arms", [_arms_table(self.facts["arms"])]).split("\n\n", 1)[1].strip()

    def __str__(self) -> str:
        return f"{self.table}\n\n{self.verdict}"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.table)}</pre><p>{html.escape(self.verdict)}</p>"


def write_report(
    arms: Sequence[Arm],
    best: Arm,
    documents: str,
    material: Material,
    pool: Path,
    plan: Plan,
    out: Output,
    seed: int,
) -> None:
    """Write the page, its Markdown twin and `results.json`.

    Args:
        arms: in the order of the table.
        best: the one that dev chose.
        documents: what was adapted to, as it was named.
        material: what became of it.
        pool: collection that all were measured on.
        plan: what was planned.
        out: the directory.
        seed: of the draws.
    """
    named = {arm.name: arm for arm in arms}
    alone = max((named[name] for name in (TUNED, LONGER) if name in named), key=lambda arm: arm.worth)
    pretrained = max((arm for arm in arms if arm.pretraining), key=lambda arm: arm.worth, default=None)
    ahead = max(arms, key=lambda arm: arm.worth)
    verdict = judge(
        _alone(alone, plan),
        pretrained.test if pretrained else None,
        _effort(pretrained, plan) if pretrained else None,
        best.test,
        {name: named[name].test for name in (BASE, WORDS) if name in named},
        judged=material.counts[TEST],
        made=TEST in material.made,
        passed_over=ahead.name if ahead.worth > best.worth else None,
    )
    measured = {DEV: len(alone.dev.per_query[METRIC]), TEST: len(alone.test.per_query[METRIC])}
    counted = {"made": list(material.made), **material.counts, "measured": measured}
    facts = {
        "verdict": asdict(verdict),
        "arms": [_row(arm, arms) for arm in arms],
        "queries": counted | {"given": material.given, "left out": dict(material.left_out)},
        "plan": asdict(plan),
        **provenance(seed, str(pool), content_hash(pool)),
    }
    write_text(out.path / FACTS, json.dumps(facts, indent=1))
    blocks = [
        *verdict.sentences,
        *_left_out(material),
        *known_queries(material),
        *_use(best, out.path, material.passages),
        *_arms(facts["arms"], facts["queries"]),
        *_training(arms, out.path),
        *_cases(*((alone, pretrained) if pretrained else (named.get(BASE, named[WORDS]), alone)), pool),
        *_plan(facts),
    ]
    heading = f"Which retriever for {Path(documents).resolve().name}?"
    write_text(out.path / PAGE, as_html(heading, blocks))
    write_text(out.path / TWIN, as_markdown(heading, blocks))


def _alone(arm: Arm, plan: Plan) -> Alone:
    steps = plan.longer if arm.name == LONGER else plan.finetuning
    return Alone(arm.test, steps, plan.finetuning, max(plan.finetuning, plan.longer))


def _effort(pretrained: Arm, plan: Plan) -> Effort:
    assert pretrained.pretraining is not None
    minutes = seconds_of(pretrained.pretraining) / 60
    steps = plan.pretraining[pretrained.pretraining.name]
    return Effort(minutes, steps, plan.epochs * steps / max(plan.pretraining.values()))


def _row(arm: Arm, arms: Sequence[Arm]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": arm.name, "weight": arm.weight, "seconds": arm.seconds, "model": str(arm.model)}
    row |= {"metrics": arm.test.metrics, DEV: arm.dev.metrics, "queries": len(arm.test.per_query[METRIC])}
    before = {other.name: other for other in arms[: arms.index(arm)]}
    row["against"] = {
        name: asdict(compare_paired(arm.test.per_query[METRIC], other.test.per_query[METRIC]))
        for name, other in before.items()
    }
    if arm.kept is not None:
        row["kept"] = {"metrics": arm.kept.metrics}
        if BASE in before and (untouched := before[BASE].kept) is not None:
            row["kept"]["against base"] = asdict(
                compare_paired(arm.kept.per_query[METRIC], untouched.per_query[METRIC])
            )
    return row


def _arms_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The arms with their figures on test, each against the base, or against BM25 where there is none."""
    against = BASE if any(BASE in row["against"] for row in rows) else WORDS
    kept = any("kept" in row for row in rows)
    head = [
        "",
        *map(title, METRICS),
        f"{title(METRIC)} against {against}",
        *([f"kept: {title(METRIC)}"] * kept),
        "training",
    ]
    cells = []
    for row in rows:
        line = [row["name"], *(f"{row['metrics'][metric]:.4f}" for metric in METRICS)]
        line.append(format_test(row["against"].get(against)))
        if kept:
            line.append(f"{row['kept']['metrics'][METRIC]:.4f}" if "kept" in row else "-")
        cells.append([*line, f"{row['seconds'] / 60:.1f} min" if row["seconds"] else "-"])
    return Table(head, cells)


def _arms(rows: Sequence[Mapping[str, Any]], queries: Mapping[str, Any]) -> list[Block]:
    asked = {split: f"{number:,} of {queries[split]:,} {split}" for split, number in queries["measured"].items()}
    careful = (
        f" Made queries choose what is trained on such, and BM25 alone, only where it is ahead of {BASE} by more than "
        "chance (p < 0.05)."
    )
    longer = " but the one that is longer" if any(row["name"] == LONGER for row in rows) else ""
    shown = [{"name": row["name"], **{title(metric): row["metrics"][metric] for metric in METRICS}} for row in rows]
    return [
        Heading("The arms"),
        f"Means over {asked[TEST]} queries, of which nothing was chosen ({asked[DEV]} queries chose); differences with "
        "95 % bootstrap intervals and the p-values of paired randomisation tests, not corrected for their number. "
        f"Fine-tuning is the same for every arm{longer}; distillation goes on from the best one."
        + (careful if DEV in queries["made"] and any(row["name"] == BASE for row in rows) else "")
        + (" What is kept is measured on another collection." if any("kept" in row for row in rows) else ""),
        _arms_table(rows),
        Picture(as_png(draw_metrics(shown)), "Metrics of every arm"),
    ]


def _left_out(material: Material) -> list[Block]:
    """How many of the labelled queries are not used, and why."""
    said = [f"{number:,} {_LEFT_OUT[reason]}" for reason, number in material.left_out.items()]
    number = sum(material.left_out.values())
    return [f"Of your {material.given:,} labelled queries {number:,} are left out: {', '.join(said)}."] if said else []


def _search(retriever: Path, passages: Path, weight: float) -> str:
    """The command that asks a retriever, by the index that is there, or by one that it builds of the passages first."""
    words = ["hf-dense", "search", str(retriever), "your question"]
    if not (retriever / "index").is_dir():
        words += ["--corpus", str(passages), "--weight", f"{weight:g}"]
    return shlex.join(words)


def _use(best: Arm, place: Path, passages: Path) -> list[Block]:
    """The lines that use the result, with the index that is there, or with one that is built of the passages."""
    retriever = place / RETRIEVER
    search = _search(retriever, passages, best.weight)
    if not (retriever / "index").is_dir():
        said = f"The retriever is in {retriever}; its index is built first. A weight of 0 asks BM25 alone."
        return [Heading("To use it"), said, Code(search)]
    index = f"SearchIndex.load({str(retriever / 'index')!r})"
    python = f"from hf_dense.search.index import SearchIndex\nhits = {index}.search('your question')"
    weight = index_in(retriever / "index").made_from["weight"]  # another than the arm's where it was updated since
    parts = {0.0: "asked by words alone (BM25)", 1.0: "asked by meaning alone"}
    how = parts.get(weight, f"asked by meaning and by words (BM25), which have weights {weight:g} and {1 - weight:g}")
    words = " A search with --weight 0 asks BM25 alone." if weight else ""
    return [
        Heading("To use it"),
        f"The retriever is in {retriever}, its index inside; that is {how}.{words}",
        Code(search),
        Code(python),
    ]


def _training(arms: Sequence[Arm], place: Path) -> list[Block]:
    histories = {}
    for arm in arms:
        for what, folder in (("pre-training", arm.pretraining), ("training", arm.training)):
            if folder is not None and loss_series(history := load_history(folder)):
                histories[f"{arm.name}: {what}"] = history
    blocks: list[Block] = [Heading("Training")] if histories else []
    for caption, sentence, label, wanted in _CURVES:
        curves = {arm.name: _points(arm.pretraining, wanted) for arm in arms if arm.pretraining}
        if shown := {name: points for name, points in curves.items() if points}:
            blocks += [sentence, Picture(as_png(_draw_curves(shown, label)), caption)]
    return [*blocks, Picture(as_png(draw_losses(histories)), "Losses of every training")] if histories else blocks


def _points(training: Path, wanted: Mapping[str, str]) -> dict[str, list[tuple[int, float]]]:
    """What a pre-training logged under names that end so: name for people -> (step, value) pairs, two or more."""
    found: dict[str, list[tuple[int, float]]] = {}
    for entry in load_history(training):
        for key, value in entry.items():
            for ending, name in wanted.items():
                if key.endswith(ending):
                    found.setdefault(name or key.removesuffix(ending), []).append((entry["step"], value))
    return {name: points for name, points in found.items() if len(points) > 1}


def _draw_curves(arms: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]], label: str) -> Figure:
    figure = Figure(figsize=(7.5, 3.4), layout="constrained")
    axes = figure.subplots()
    for number, (arm, curves) in enumerate(arms.items()):
        for (name, points), style in zip(curves.items(), cycle(("o--", "o-", "o:")), strict=False):
            axes.plot(*zip(*points, strict=True), style, color=f"C{number}", markersize=3, label=f"{arm}: {name}")
    axes.set_xlabel("step of pre-training")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    legend_below(axes)
    return figure


def _cases(first: Arm, second: Arm, pool: Path) -> list[Block]:
    """What the second gained and lost: pre-training, or fine-tuning where that was not tried."""
    source = Source(str(pool), content_hash(pool))
    before, after = (load_run(arm.name, arm.evaluated / TEST, source) for arm in (first, second))
    return cases(before, after, Texts(pool, before))


def _plan(facts: Mapping[str, Any]) -> list[Block]:
    plan, hardware = facts["plan"], facts["hardware"]
    rows = [(what, f"{seconds:.0f} s") for what, seconds in plan["seconds"].items()]
    commit = facts["commit"]["id"][:10] if facts["commit"] else "not recorded"
    return [
        Heading("How it was made"),
        *plan["lines"],
        Table(("planned", ""), rows),
        f"Seed {facts['seed']}; commit {commit}; {hardware['cuda'] or 'no GPU'}, {hardware['cores']} cores of "
        f"{hardware['cpu']}; content of the passages and queries: SHA-256 {facts['data']['content_hash'][:16]}.",
    ]
