"""From an encoder to the best retriever: BM25 negatives, mined negatives, re-ranker, distillation, one after the other.

    bm25 -> retriever1 -> mined1 -> retriever2 -> mined2 -> reranker -> scores -> distilled

Source: SimLM section 3.3, which MASTER follows; the settings of each paper are in hf_dense/recipes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

from sentence_transformers import SentenceTransformer

from hf_dense.errors import InputError
from hf_dense.finetuning.ance import RefreshNegatives
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, check_lists, check_losses, finetune, shape
from hf_dense.finetuning.lists import Entry, PassageLists, join_lists, lists_of, load_entries
from hf_dense.finetuning.mining import check_filter_margin, mine_negatives
from hf_dense.finetuning.negatives import DEPTH, Judged, build_lexical_negatives, load_judged
from hf_dense.finetuning.reranker import RerankerTrainingArguments, train_reranker
from hf_dense.finetuning.scoring import score_lists
from hf_dense.finetuning.sections import (
    LENGTHS,
    MINING,
    OF_RERANKER,
    OF_RETRIEVER,
    check_section,
    check_types,
    option_names,
    trainer_arguments,
)
from hf_dense.finetuning.training import check_evaluates
from hf_dense.finetuning.validation import (
    RERANKING_METRIC,
    QueryShares,
    search_metric,
    validation_ranking,
    validation_search,
)
from hf_dense.hub.dimensions import check_dimensions
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.hub.loading import is_retriever
from hf_dense.hub.precision import FP32, Reading
from hf_dense.hub.retriever_settings import RetrieverSettings, check_lengths, own_settings
from hf_dense.hub.retrievers import build_retriever
from hf_dense.search.cross_encoder import load_reranker
from hf_dense.search.dense import check_kind
from hf_dense.storage.batch_size import is_auto
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.output import Output

logger = logging.getLogger(__name__)

KIND: Final = "pipeline"  # of output
_RERANKER: Final = "google/electra-base-discriminator"
_PASSAGES: Final = 8  # of a list
_UNSAID: Final[dict[str, Any]] = {"similarity": "cosine", "max_length": 144}  # where neither model nor file says it
_STARTS: Final = {"retriever1": None, "retriever2": "retriever1", "distilled": "retriever2"}


@dataclass(frozen=True)
class Pipeline:
    """What the stages of a run are; a stage without a section, and all after it, are left out.

    Args:
        collection: directory with corpus, queries and judgements.
        model: pre-training checkpoint, plain encoder or retriever to start from; directory or Hub id.
        out: directory of the run; a stage's directory lies in it under the stage's name.
        overwrite: whether stages that were made from something else are replaced.
        max_length: longest text in tokens; by default the model's own, or 144.
        query_length: longest query in tokens; by default the model's own, or `max_length`.
        similarity: `cosine` or `dot`; by default the model's own, or `cosine`. Pooling is the model's own.
        split: of the judgements that are trained on.
        fraction: share of the training queries that is used (few-shot training).
        validation: share of these that is held out: the checkpoint with the best MRR@10 on them is kept.
        validation_passages: passages that these are searched in: their positives, their BM25 negatives and others.
        rerank: passages of a query that the re-ranker orders anew when it is measured, at most 100.
        seed: of everything.
        bm25: `depth`.
        retriever1: `BiencoderTrainingArguments`, and `passages` of a list (8), `depth` drawn from (200), and
            `max_length` and `query_length` where they are others than those of the model that it starts from.
        mined: arguments of `mine_negatives` (`depth`, `kind`, `skip`, `margin`, ...), for both minings; the re-ranker's
            scores are computed in the same `precision`.
        retriever2: as `retriever1`; `start: retriever1` goes on from it, where others start from the model;
            `refresh: N` mines again every N epochs (ANCE); `with_bm25: true` joins BM25's negatives to the mined ones.
        reranker: `RerankerTrainingArguments`, and `base`, `max_length`, `depth`.
        distilled: as `retriever1`, with a `distillation`; `start: retriever2` goes on from that.

    Raises:
        InputError: an option that is none, a section without the one it builds on, or a value outside its range.
    """

    collection: str
    model: str
    out: str
    overwrite: bool = False
    max_length: int | None = None
    query_length: int | None = None
    similarity: str | None = None
    split: str = "train"
    fraction: float = 1.0
    validation: float = 0.0
    validation_passages: int = 5000
    rerank: int = 100
    seed: int = 42
    bm25: dict[str, Any] = field(default_factory=dict)
    retriever1: dict[str, Any] = field(default_factory=dict)
    mined: dict[str, Any] = field(default_factory=dict)
    retriever2: dict[str, Any] | None = None
    reranker: dict[str, Any] | None = None
    distilled: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        check_types(self, "pipeline")
        check_lengths(self.max_length, self.query_length)
        if self.reranker is not None and self.retriever2 is None:
            raise InputError("The section reranker needs retriever2: its negatives are mined with that.")
        if self.distilled is not None and self.reranker is None:
            raise InputError("The section distilled needs reranker, the teacher.")
        if not 0 <= self.validation < 1:
            raise InputError(f"validation is {self.validation}; it is a share of the training queries, below 1.")
        if not 0 < self.fraction <= 1:
            raise InputError(
                f"fraction is {self.fraction}; it is a share of the training queries, above 0 and at most 1."
            )
        check_section("bm25", self.bm25, {"depth"})
        check_section("mined", self.mined, set(MINING))
        check_filter_margin(self.mined.get("filter_by"), self.mined.get("filter_margin"))
        check_section("reranker", self.reranker, {*option_names(RerankerTrainingArguments), *OF_RERANKER})
        for name, before in _STARTS.items():
            section = getattr(self, name)
            check_section(name, section, {*option_names(BiencoderTrainingArguments), *OF_RETRIEVER})
            check_lengths((section or {}).get("max_length"), (section or {}).get("query_length"))
            for key in {"refresh", "with_bm25"} & set(section or {}):
                if name != "retriever2":
                    raise InputError(f"{key} belongs to the section retriever2, not to {name}.")
            if (section or {}).get("start", "model") not in ("model", before):
                also = f" or from {before}; write start: {before}, or leave it out" if before else "; leave start out"
                raise InputError(f"{name} starts from the model{also}.")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Pipeline:
        """From a mapping, as a YAML file holds it.

        Raises:
            InputError: a key that is no option, or a needed one is missing.
        """
        if unknown := sorted(set(values) - option_names(cls)):
            raise InputError(f"The pipeline has the key {unknown[0]!r}, which is no option of it.")
        missing = [name for name in ("collection", "model", "out") if not values.get(name)]
        if missing:
            raise InputError(f"The pipeline does not say {missing[0]}; name it with --{missing[0]}, or in its file.")
        return cls(**values)


def run_pipeline(pipeline: Pipeline, command: str = "") -> dict[str, Path]:
    """Do the stages that are not done, in order.

    A stage whose directory is complete and whose inputs and settings are what they were is skipped; one that was killed
    goes on from its last checkpoint or piece. The settings of all stages are checked before the first one begins.

    Args:
        pipeline: the settings.
        command: what runs it, for the manifests.

    Returns:
        The models: `retriever1`, `retriever2`, `reranker`, `distilled`, those that there are.

    Raises:
        InputError: something given cannot be used, or a stage's directory holds something else.
    """
    run = _Run(pipeline, Output(Path(pipeline.out), pipeline.overwrite, command))
    run.check()
    others = [pipeline.mined.get("filter_by"), (pipeline.reranker or {}).get("base")]
    reads = [pipeline.collection, pipeline.model, *filter(None, others)]
    with run.output.occupy(KIND, {}, reads=reads, again=True) as work:
        models = run.run()
        work.complete()
    return models


def stage_seconds(out: str | Path, stage: str) -> float:
    """How long a stage took that is complete in the directory of a pipeline (its last attempt)."""
    manifest = Manifest.load(Path(out) / stage)
    if manifest is None or "seconds" not in manifest.facts:
        raise InputError(f"{Path(out) / stage} is no complete stage of a pipeline.")
    return float(manifest.facts["seconds"])


def start_of(pipeline: Pipeline) -> str | Path:
    """The retriever that the stages of a pipeline start from: the model, or its export, which is written once."""
    return _Run(pipeline, Output(Path(pipeline.out), pipeline.overwrite)).start


class _Run:
    """A pipeline at work."""

    def __init__(self, pipeline: Pipeline, output: Output) -> None:
        self.given, self.output = pipeline, output
        self.shares = QueryShares(pipeline.fraction, pipeline.validation, pipeline.seed)

    def check(self) -> None:
        """Raise `InputError` where a stage, were it the last one, could not use what it is given."""
        given, passages = self.given, len(self.judged.ids)
        check_kind(given.mined.get("kind", "exact"), passages)
        Reading(given.mined.get("precision", FP32))
        if given.mined.get("filter_by"):
            load_reranker(given.mined["filter_by"])
        entries = [Entry(name, self.judged.queries[name], ()) for name in self.judged.positives]
        if given.validation:
            self.shares.held_out(entries)
        for name, section in self.sections.items():
            arguments = self.retriever_arguments(name)
            size, queries = section.get("passages", _PASSAGES), len(self.shares.trained_on(entries))
            check_losses(arguments, size, scored=name == "distilled")
            check_lists(arguments)
            check_evaluates(arguments, given.validation > 0)
            lengths = self.lengths(name)
            if arguments.matryoshka or arguments.untied or arguments.projection or lengths:
                chosen = self.chosen.updated(RetrieverSettings(**lengths))
                retriever = shape(build_retriever(given.model, chosen), arguments)
                check_dimensions(arguments.matryoshka or (), retriever, given.model)
            if not is_auto(arguments) and arguments.per_device_train_batch_size * arguments.world_size > queries:
                raise InputError(f"There are {queries} training queries, fewer than one batch of {name}.")
            if arguments.distillation != "none" and size > 1 + min(_depth(section), _depth(given.mined)):
                raise InputError(f"Lists of {size} passages for {name} need {size - 1} scored negatives; raise depth.")
            if size > passages:
                raise InputError(f"Lists of {size} passages for {name} were asked for; the corpus has {passages}.")
        if given.reranker is not None:
            check_evaluates(self.reranker_arguments, given.validation > 0)
            if self.reranker_arguments.passages > passages:
                raise InputError(f"The lists of the re-ranker are longer than the corpus, which has {passages}.")
            load_reranker(given.reranker.get("base", _RERANKER), self.pair_length, new_head=True)

    def run(self) -> dict[str, Path]:
        """Go through the stages."""
        given = self.given
        model = self.start
        lexical = self._begin("bm25")
        build_lexical_negatives(given.collection, lexical, given.split, **given.bm25)
        models = {"retriever1": self._retriever("retriever1", model, lexical.path)}
        if given.retriever2 is not None:
            mined = self._mine(models["retriever1"], self._begin("mined1"))
            start = models.get(given.retriever2.get("start", ""), model)
            also = [lexical.path] if given.retriever2.get("with_bm25") else []
            models["retriever2"] = self._retriever("retriever2", start, mined, *also)
        if given.reranker is not None:
            mined = self._mine(models["retriever2"], self._begin("mined2"))
            models["reranker"] = self._reranker(given.reranker, mined)
        if given.distilled is not None:
            scores = self._scores(models["reranker"], mined, _depth(given.distilled))
            start = models.get(given.distilled.get("start", ""), model)
            models["distilled"] = self._retriever("distilled", start, scores)
        return models

    @cached_property
    def judged(self) -> Judged:
        """The collection."""
        return load_judged(self.given.collection, self.given.split)

    @cached_property
    def start(self) -> str | Path:
        """The model as a retriever; written where it is not one, or not with what is chosen."""
        model, chosen = self.given.model, self.chosen
        if is_retriever(model) and not self.own.changes(chosen):
            return model
        similarity: Any = chosen.similarity
        out = self._begin("encoder")
        lengths: dict[str, Any] = {"max_length": chosen.max_length, "query_length": chosen.query_length}
        return export_sentence_transformer(model, out, similarity=similarity, **lengths)

    @cached_property
    def own(self) -> RetrieverSettings:
        """What the model says of itself."""
        return own_settings(self.given.model)

    @property
    def chosen(self) -> RetrieverSettings:
        """What is given, and what is taken where neither that nor the model says anything."""
        unsaid = {name: value for name, value in _UNSAID.items() if getattr(self.own, name) is None}
        lengths: dict[str, Any] = {"max_length": self.given.max_length, "query_length": self.given.query_length}
        given = RetrieverSettings(similarity=self.given.similarity, **lengths)
        return RetrieverSettings(**unsaid).updated(given)

    @property
    def similarity(self) -> str:
        """Of all retrievers."""
        return str(self.own.updated(self.chosen).similarity)

    @property
    def sections(self) -> dict[str, dict[str, Any]]:
        """Of the retrievers that there are."""
        sections = {name: getattr(self.given, name) for name in _STARTS}
        return {name: section for name, section in sections.items() if section is not None}

    def lengths(self, name: str) -> dict[str, Any]:
        """Of the texts of a retriever's stage, where they are others than those of the model that it starts from."""
        return {length: self.sections[name][length] for length in LENGTHS if length in self.sections[name]}

    def retriever_arguments(self, name: str) -> BiencoderTrainingArguments:
        """Of the training of a retriever."""
        chosen_by = search_metric(self.similarity) if self.given.validation else None
        ours = {"output_dir": str(self.output.path / name), "seed": self.given.seed}
        return trainer_arguments(BiencoderTrainingArguments, name, self.sections[name], chosen_by, **ours)

    @property
    def reranker_arguments(self) -> RerankerTrainingArguments:
        """Of the training of the re-ranker."""
        chosen_by = RERANKING_METRIC if self.given.validation else None
        ours = {"output_dir": str(self.output.path / "reranker"), "seed": self.given.seed}
        return trainer_arguments(RerankerTrainingArguments, "reranker", self.given.reranker or {}, chosen_by, **ours)

    @property
    def pair_length(self) -> int:
        """Tokens of what the re-ranker reads."""
        return int((self.given.reranker or {}).get("max_length", 192))

    def _begin(self, stage: str) -> Output:
        logger.info("Stage %s", stage)
        return self.output.at(stage)

    def _mine(self, retriever: Path | SentenceTransformer, out: Output, precision: str | None = None) -> Path:
        options = {**self.given.mined, **({"precision": precision} if precision else {})}
        return mine_negatives(retriever, self.given.collection, out, self.given.split, **options)

    def _retriever(self, name: str, start: str | Path, *lists: Path) -> Path:
        if lengths := self.lengths(name):
            start = export_sentence_transformer(start, self._begin(f"{name}-start"), **lengths)
        section, output, arguments = self.sections[name], self._begin(name), self.retriever_arguments(name)
        scored = arguments.distillation != "none"
        made = self._lists(lists, section.get("passages", _PASSAGES), _depth(section), scored)
        evaluator = None
        if self.given.validation:
            entries = self._entries(self.output.path / "bm25")
            most = self.given.validation_passages
            evaluator = validation_search(self.shares.held_out(entries), self.reader, most)
        callbacks = []
        if "refresh" in section:
            options = made, section["refresh"], self._mine, partial(self._refreshed, lists[1:]), self.given.mined
            callbacks.append(RefreshNegatives(*options))
        return finetune(start, made, arguments, evaluator=evaluator, callbacks=callbacks, output=output)

    def _reranker(self, section: Mapping[str, Any], lists: Path) -> Path:
        output, arguments = self._begin("reranker"), self.reranker_arguments
        evaluator = None
        if self.given.validation:
            evaluator = validation_ranking(self.shares.held_out(self._entries(lists)), self.reader)
        made = self._lists([lists], arguments.passages, _depth(section))
        base, length = section.get("base", _RERANKER), self.pair_length
        return train_reranker(base, made, arguments, max_length=length, evaluator=evaluator, output=output)

    def _scores(self, reranker: Path, lists: Path, depth: int) -> Path:
        queries = {entry.id for entry in self.shares.trained_on(self._entries(lists))}
        where = lists, self.given.collection, self._begin("scores"), self.given.split
        precision = self.given.mined.get("precision", FP32)
        return score_lists(reranker, *where, depth=depth, queries=queries, precision=precision)

    @cached_property
    def reader(self) -> PassageLists:
        """Gives the texts of passages."""
        return PassageLists([], self.judged.corpus, 1, self.given.seed)

    def _entries(self, lists: Path) -> list[Entry]:
        return load_entries(lists, self.given.split)

    def _refreshed(self, also: Sequence[Path], lists: Path) -> list[Entry]:
        """Lists that were mined again, with those that are joined to them."""
        return join_lists([self._entries(path) for path in (lists, *also)])

    def _lists(self, lists: Sequence[Path], passages: int, depth: int, scored: bool = False) -> PassageLists:
        """Those of directories that are trained on, as one."""
        parts = {str(path): self.shares.trained_on(self._entries(path)) for path in lists}
        where = self.judged.corpus, self.given.collection
        return lists_of(parts, *where, passages, self.given.seed, depth, scored)


def _depth(section: Mapping[str, Any]) -> int:
    """Negatives of a list that are drawn from."""
    return int(section.get("depth", DEPTH))
