"""From documents to a verdict; every step is kept on disk, so that a run that was stopped goes on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from sentence_transformers import SentenceTransformer

from hf_dense.data.collections import content_hash, load_corpus
from hf_dense.data.labels import read_pairs
from hf_dense.data.passage_corpus import listed
from hf_dense.data.passage_sources import find_source
from hf_dense.data.schemas import SPLITS
from hf_dense.errors import InputError
from hf_dense.experiments.adaptation.arms import BASE, Arm, Workshop
from hf_dense.experiments.adaptation.base import check_base
from hf_dense.experiments.adaptation.learning import DEPTH, Learning
from hf_dense.experiments.adaptation.material import DEV, TEST, TRAIN, Material, known_queries, own_splits, prepare
from hf_dense.experiments.adaptation.options import AUTO, NOTHING_KEPT, PLAIN, WRITTEN, AdaptOptions
from hf_dense.experiments.adaptation.plan import Plan, Task, describe, fit_batch, index_seconds, make_plan, tuned_arms
from hf_dense.experiments.adaptation.pool import count_asked, draw_pool
from hf_dense.experiments.adaptation.rates import measure_rates
from hf_dense.experiments.adaptation.report import REPORT_FILES, RETRIEVER, Adaptation, write_report
from hf_dense.experiments.adaptation.verdict import is_ahead
from hf_dense.experiments.comparison import Settings, Variant, make_start
from hf_dense.experiments.keeping import Kept, open_kept
from hf_dense.finetuning.lists import fingerprint_entries, load_entries
from hf_dense.finetuning.negatives import build_lexical_negatives
from hf_dense.hub.cards import Measured
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.hub.loading import is_retriever
from hf_dense.hub.retriever_settings import RetrieverSettings, length_of, settings_of
from hf_dense.hub.retrievers import build_retriever
from hf_dense.search.cross_encoder import load_reranker
from hf_dense.search.fingerprints import model_source, retriever_source
from hf_dense.search.first_stage import BM25
from hf_dense.search.index import build_index
from hf_dense.search.index_building import index_in
from hf_dense.storage.files import write_text
from hf_dense.storage.fingerprints import fingerprint_path
from hf_dense.storage.manifest import COMPLETE, Manifest, missing_file
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

KIND: Final = "adaptation"  # of output
_PLANNING, _PLAN = "plan", "plan.json"
_HALF: Final = 0.5  # weight beside BM25 where made queries would choose it: they have their passages' own words
_NO_PROMPTS: Final = (
    " It names no prompts; where its makers ask for words before queries or passages, stop here, and write "
    "it with them first: hf-dense export, --query_prompt, --document_prompt."
)


def adapt(options: AdaptOptions, command: str = "") -> Adaptation:
    """Adapt a retriever to documents, and say whether pre-training paid.

    The arms are BM25; the base as it is; fine-tuned; fine-tuned longer, in the time that pre-training takes too;
    pre-trained, then fine-tuned; the best of these distilled; the best of all fused with BM25. What dev chooses is
    reported on test.

    Args:
        options: see the fields; an adaptation that is complete in `out` is read, one that was stopped goes on.
        command: what is run, for the manifest.

    Returns:
        The verdict, with the arms and the places of the report, of the retriever and of its index.

    Raises:
        InputError: something given cannot work, mostly found before anything long; or the budget is too short.
    """
    say = Progress()
    _check_method(options)
    out = Path(options.out)
    output = Output(out, options.overwrite or _is_unplanned(out), command, options.license)
    sources = _sources(options, output)
    kept = _kept(options, sources)
    settings = {name: getattr(options, name) for name in ("budget", "method", "length", "precision")}
    with output.occupy(KIND, settings, sources, seed=options.seed, claims=REPORT_FILES) as work:
        if not work.done or missing_file(out) or missing_file(out / RETRIEVER):
            if options.base is not None:
                options = replace(options, length=_readable(_open_base(options), options, say))
            material = prepare(options.docs, options.queries, options.length, options.seed, output, options.base)
            for known in known_queries(material):
                say(known)
            base = _base(options, material, output)
            say("What BM25 takes for relevant")
            negatives = build_lexical_negatives(material.collection, output.at("lists", "negatives"), TRAIN, DEPTH)
            plan, learning = _plan(options, material, negatives, base, kept, say, output)
            pool = draw_pool(material, plan.pool, options.seed, output.at("pool"))
            kept = kept if plan.kept else None
            shop = Workshop(material, negatives, pool, plan, learning, kept, options.seed, output, say)
            arms = make_arms(shop, base, options)
            best = choose(arms, DEV in material.made)
            last = index_seconds(plan, material.counts["passages"], _models(options) + bool(plan.longer))
            fits = plan.index or last < options.seconds - say.seconds
            asked = f"{Path(options.docs).resolve().name}, {len(load_corpus(pool)):,} passages"
            results = _measured_alone(best, arms, asked + ", made queries" * (TEST in material.made))
            _deliver(best, results, material, fits, learning.encoded_in, output, say)
            write_report(arms, best, options.docs, material, pool, plan, output, options.seed)
            work.complete()
    return Adaptation.load(output.path)


def make_arms(shop: Workshop, base: Path, options: AdaptOptions) -> list[Arm]:
    """All arms, in the order of the table."""
    arms = [shop.words(base)]
    if options.base is not None:
        arms.append(shop.base(base))
    arms.append(shop.tuned(base))
    if shop.plan.longer:
        arms.append(shop.tuned_longer(base))
    arms += [shop.pretrained(method, base) for method in options.methods]
    made = DEV in shop.material.made
    arms.append(shop.distilled(choose(arms[1:], made), options.teacher))
    weight = _HALF if _ready_on_made(options, shop.material, DEV) else None
    arms.append(shop.fused(choose(arms[1:], made), arms[0], weight))
    return arms


def choose(arms: Sequence[Arm], made: bool) -> Arm:
    """The best on dev; of equals, the first, which is the simpler.

    Args:
        arms: in their order.
        made: whether its queries are: they favour what was trained on such. Then an arm has to be ahead of the base by
            more than chance; not so what is asked beside BM25, as the dense one of the two was chosen so.
    """
    base = next((arm for arm in arms if arm.name == BASE), None)
    if made and base:
        arms = [arm for arm in arms if arm is base or 0 < arm.weight < 1 or is_ahead(arm.dev, base.dev)]
    return max(arms, key=lambda arm: arm.worth)


class Progress:
    """Says on standard error what begins, and how long it has been."""

    def __init__(self) -> None:
        self.started = time.perf_counter()

    def __call__(self, what: str) -> None:
        """Say it."""
        print(f"\n== {what} ({self.seconds / 60:.1f} min so far)", file=sys.stderr, flush=True)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self.started


def _is_unplanned(out: Path) -> bool:
    """Whether nothing long is done: what was refused may be given otherwise then. A plan may be deleted at the end."""
    found = Manifest.load(out)
    return not (out / _PLANNING).exists() and (found is None or found.state != COMPLETE)


def _check_method(options: AdaptOptions) -> None:
    """Raise `InputError` where passages will lack what a method reads: of a whole collection alone all columns stay."""
    if options.method in WRITTEN and not set(SPLITS) <= set(own_splits(options.docs)):
        raise InputError(
            f"The method {options.method} reads queries or continuations that a language model wrote, and passages of "
            f"{options.docs} come without; choose one of: {AUTO}, {', '.join(PLAIN)}."
        )


def _sources(options: AdaptOptions, output: Output) -> dict[str, Source]:
    """What is read, found to be there, and labels found to be such: documents may take long to read."""
    if own_splits(options.docs):
        found = {"documents": Source(options.docs, content_hash(options.docs))}
    else:
        found = {"documents": find_source(options.docs, output.path).sources["corpus"]}
    if options.base is not None:
        base = _open_base(options)
        check_base(base, options.base, bool(options.methods))
        found["base"] = retriever_source(base, options.base)
    if options.queries is not None:
        if not Path(options.queries).is_file():
            raise InputError(f"There is no file {options.queries} of queries.")
        labels = read_pairs(Path(options.queries))
        if not labels.queries:
            why = f": {listed(labels.dropped)}" if labels.dropped else "; every row needs columns query and positive"
            raise InputError(f"{options.queries} holds no labelled query{why}.")
        found["queries"] = Source(options.queries, fingerprint_path(options.queries))
    teacher = BM25 if options.teacher == BM25 else load_reranker(options.teacher)
    found["teacher"] = model_source(teacher, options.teacher)
    return found


def _kept(options: AdaptOptions, sources: dict[str, Source]) -> Kept | None:
    """The collection of `--keep`, which may have to be built, added to what is read."""
    if options.keep == NOTHING_KEPT:
        return None
    kept = open_kept(options.keep, options.docs)
    split = "" if kept.split == DEV else f", {kept.split}"
    sources["kept"] = Source(options.keep, content_hash(kept.collection) + split)
    return kept


def _open_base(options: AdaptOptions) -> SentenceTransformer:
    """The base as a retriever."""
    assert options.base is not None
    length = None if is_retriever(options.base) else options.length
    return build_retriever(options.base, RetrieverSettings(max_length=length))


def _readable(base: SentenceTransformer, options: AdaptOptions, say: Progress) -> int:
    """Tokens of the longest text: as many as are wanted, and as the base reads; how it reads them is said."""
    own = settings_of(base)
    hint = _NO_PROMPTS if is_retriever(options.base or "") and not any((own.prompts or {}).values()) else ""
    say(f"The base is {options.base}. {own.in_words()}{hint}")
    read = length_of(base)
    if read is None or read >= options.length:
        return options.length
    say(f"At most {read} tokens of a text, as {options.base} reads no more, in place of a length of {options.length}")
    return read


def _base(options: AdaptOptions, material: Material, output: Output) -> Path:
    """The retriever that all arms start from: the one that is named, or a small one of random weights."""
    if options.base is not None:
        length = None if is_retriever(options.base) else options.length
        return export_sentence_transformer(options.base, output.at("base"), max_length=length)
    settings = Settings(collection=str(material.collection), max_length=options.length, seed=options.seed)
    start = make_start(settings, Variant("untrained"), output.at("untrained"))
    return export_sentence_transformer(start, output.at("base"), max_length=options.length, similarity="cosine")


def _plan(
    options: AdaptOptions,
    material: Material,
    negatives: Path,
    base: Path,
    kept: Kept | None,
    say: Progress,
    output: Output,
) -> tuple[Plan, Learning]:
    """The plan, made once: a run that goes on keeps to it, whatever the machine is busy with then. It is shown."""
    sources = {
        "collection": Source(str(material.collection), content_hash(material.collection)),
        "negatives": Source(str(negatives), fingerprint_entries(load_entries(negatives))),
        "base": retriever_source(str(base)),
        **({"kept": Source(kept.name, content_hash(kept.collection))} if kept else {}),
    }
    settings: dict[str, Any] = {"budget": options.budget, "methods": options.methods, "length": options.length}
    settings |= {"precision": options.precision, "teacher": options.teacher}
    with output.at(_PLANNING).stage("plan", settings, sources, seed=options.seed) as work:
        if not work.done:
            say("How fast this machine is with this model")
            plan, learning = _make_plan(options, material, negatives, base, kept, say)
            made = {"plan": asdict(plan), "learning": asdict(learning)}
            write_text(work.result / _PLAN, json.dumps(made, indent=1))
    made = json.loads((output.path / _PLANNING / _PLAN).read_text(encoding="utf-8"))
    plan = Plan(**made["plan"])
    print(*plan.lines, sep="\n", file=sys.stderr, flush=True)
    return plan, Learning(**made["learning"])


def _make_plan(
    options: AdaptOptions, material: Material, negatives: Path, base: Path, kept: Kept | None, say: Progress
) -> tuple[Plan, Learning]:
    """The plan for this machine."""
    queries = len(load_entries(negatives))
    gently = _ready_on_made(options, material, TRAIN)
    learning = Learning.of(options.base is not None, options.length, queries, options.precision, gently)
    other = kept.collection if kept else None
    given = str(base), material.collection, negatives, other, options.methods, options.teacher, learning, options.seed
    rates = measure_rates(*given)
    task = Task(
        budget=options.seconds,
        spent=say.seconds,
        passages=material.counts["passages"],
        changed=material.passages != material.collection,
        kept=len(load_corpus(other)) if other else 0,
        queries=queries,
        models=_models(options),
        weights=sum(file.stat().st_size for file in base.rglob("*.safetensors")),
    )
    rates, learning = fit_batch(task, rates, learning)
    plan = make_plan(task, rates, learning)
    measured = count_asked(material, plan.pool, options.seed)
    return replace(plan, lines=tuple(describe(plan, task, learning, material.counts, measured))), learning


def _ready_on_made(options: AdaptOptions, material: Material, split: str) -> bool:
    """Whether the base is a retriever as it is, and would learn from made queries, or be chosen by them."""
    return options.base is not None and is_retriever(options.base) and split in material.made


def _models(options: AdaptOptions) -> int:
    """That are encoded with, but for that of the longer fine-tuning."""
    return tuned_arms(len(options.methods)) + (options.base is not None)


def _measured_alone(best: Arm, arms: Sequence[Arm], task: str) -> list[Measured]:
    """What the model of the best arm is worth without BM25, where that was measured."""
    alone = [arm for arm in arms if arm.model == best.model and arm.weight == 1]
    return [(task, arm.test.split, arm.test.metrics) for arm in alone[:1]]


def _deliver(
    best: Arm,
    results: Sequence[Measured],
    material: Material,
    fits: bool,
    precision: str,
    output: Output,
    say: Progress,
) -> None:
    """Write the retriever to use and, where that fits or was begun, its index of all passages.

    An index that is there stays: by now it may have been brought up to date with other documents, or another weight.
    """
    place, index = output.at(RETRIEVER), output.at(RETRIEVER, "index")
    begun = index.path.exists()
    if begun and missing_file(place.path):  # both are made again
        place = replace(place, overwrite=True)
    retriever = export_sentence_transformer(best.model, place, results=results, remarks=_beside_words(best))
    if (fits or begun) and (output.overwrite or not _has_index(retriever, index.path)):
        say("The index of all passages")
        given: dict[str, Any] = {"weight": best.weight, "precision": precision, "like": best.index}
        build_index(retriever, material.passages, index, **given)


def _beside_words(best: Arm) -> list[str]:
    """For the card: that the model was not chosen to be asked by itself, where that is so."""
    if best.weight == 1:
        return []
    alone = "BM25 was chosen, and not this model"
    chosen = alone if best.weight == 0 else "It was chosen to be asked together with BM25"
    return [f"{chosen}: `hf-dense search MODEL --corpus DATA --weight {best.weight:g}`."]


def _has_index(retriever: Path, index: Path) -> bool:
    """Whether an index that a retriever made is there, whole, of whatever passages."""
    made = Manifest.load(index)
    whole = made is not None and made.state == COMPLETE and not missing_file(index)
    return whole and index_in(index).made_from["model"] == retriever_source(str(retriever)).fingerprint
