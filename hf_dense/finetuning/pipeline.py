"""From an encoder to the best retriever: BM25 negatives, mined negatives, re-ranker, distillation, one after the other.

    bm25 -> retriever1 -> mined1 -> retriever2 -> mined2 -> reranker -> scores -> distilled

Source: SimLM section 3.3, which MASTER follows; the settings of each paper are in examples/configs/finetuning.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from hf_dense.data.collections import load_corpus
from hf_dense.errors import InputError
from hf_dense.finetuning.ance import RefreshNegatives
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.finetuning.lists import Entry, PassageLists, load_entries, share
from hf_dense.finetuning.mining import mine_negatives
from hf_dense.finetuning.negatives import build_lexical_negatives
from hf_dense.finetuning.reranker import RerankerTrainingArguments, train_reranker
from hf_dense.finetuning.scoring import score_lists
from hf_dense.finetuning.stages import Stages
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.hub.loading import load_retriever
from hf_dense.storage.checkpoints import newest_checkpoint

Work = Callable[[Path, bool], None]

logger = logging.getLogger(__name__)

_TUNING: Final = "tuning"
_COLLECTION: Final = ("corpus", "queries", "qrels", "corpus.jsonl", "queries.jsonl")
_DEPTH: Final = 200
_RANKED: Final = 50  # negatives that a re-ranker is chosen by
_RERANKER: Final = "google/electra-base-discriminator"
_STARTS: Final = {"retriever1": None, "retriever2": "retriever1", "distilled": "retriever2"}
_OPTIONS: Final = ("passages", "depth", "start", "refresh")  # of a retriever's section, beside the Trainer's arguments


@dataclass(frozen=True)
class Pipeline:
    """What the stages of a run are; a stage without a section, and all after it, are left out.

    Args:
        collection: directory with corpus, queries and judgements.
        encoder: pre-training checkpoint, plain encoder or exported retriever to start from.
        output_dir: directory of the run; a stage's directory lies in it under the stage's name.
        max_length: longest text in tokens.
        similarity: `cosine` or `dot`, where the encoder is not an exported retriever.
        split: of the judgements that are trained on.
        fraction: share of the training queries that is used (few-shot training).
        tuning: share of these that is held out: the checkpoint with the best MRR@10 on them is kept.
        tuning_passages: passages that these are searched in: their positives, their BM25 negatives and others.
        rerank: passages of a query that the re-ranker orders anew when it is measured, at most 100.
        seed: of everything.
        bm25: `depth`.
        retriever1: `BiencoderTrainingArguments`, and `passages` of a list (8), `depth` drawn from (200).
        mined: arguments of `mine_negatives` (`depth`, `kind`, `skip`, `margin`, ...), for both minings.
        retriever2: as `retriever1`; `start: retriever1` goes on from it, where others start from the encoder;
            `refresh: N` mines again every N visits (ANCE).
        reranker: `RerankerTrainingArguments`, and `base`, `max_length`, `depth`.
        distilled: as `retriever1`, with a `distillation`; `start: retriever2` goes on from that.

    Raises:
        InputError: an option that is none, a section without the one it builds on, or a share outside its range.
    """

    collection: str
    encoder: str
    output_dir: str
    max_length: int = 144
    similarity: str = "cosine"
    split: str = "train"
    fraction: float = 1.0
    tuning: float = 0.0
    tuning_passages: int = 5000
    rerank: int = 100
    seed: int = 42
    bm25: dict[str, Any] = field(default_factory=dict)
    retriever1: dict[str, Any] = field(default_factory=dict)
    mined: dict[str, Any] = field(default_factory=dict)
    retriever2: dict[str, Any] | None = None
    reranker: dict[str, Any] | None = None
    distilled: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.reranker is not None and self.retriever2 is None:
            raise InputError("The section reranker needs retriever2: its negatives are mined with that.")
        if self.distilled is not None and self.reranker is None:
            raise InputError("The section distilled needs reranker, the teacher.")
        if not 0 <= self.tuning < 1:
            raise InputError(f"tuning is {self.tuning}; it is a share of the training queries, from 0 to below 1.")
        for name in ("retriever1", "retriever2", "distilled"):
            _check_keys(name, getattr(self, name), {*_names(BiencoderTrainingArguments), *_OPTIONS})
        _check_keys("reranker", self.reranker, {*_names(RerankerTrainingArguments), "base", "max_length", "depth"})
        _check_keys("bm25", self.bm25, {"depth"})
        _check_keys(
            "mined", self.mined, {"depth", "kind", "skip", "margin", "filter_by", "filter_margin", "batch_size"}
        )
        for name, before in _STARTS.items():
            section = getattr(self, name) or {}
            if "refresh" in section and name != "retriever2":
                raise InputError(f"refresh belongs to the section retriever2, not to {name}.")
            if section.get("start", "encoder") not in ("encoder", before):
                also = f" or from {before}; write start: {before}, or leave it out" if before else "; leave start out"
                raise InputError(f"{name} starts from the encoder{also}.")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Pipeline:
        """From a mapping, as a YAML file holds it.

        Raises:
            InputError: a key that is no option, or a needed one is missing.
        """
        _check_keys("pipeline", values, _names(cls))
        missing = [name for name in ("collection", "encoder", "output_dir") if not values.get(name)]
        if missing:
            raise InputError(f"The pipeline does not say {missing[0]}.")
        return cls(**values)


def run_pipeline(pipeline: Pipeline) -> dict[str, Path]:
    """Do the stages that are not done, in order.

    A stage whose directory is complete and whose inputs and settings are what they were is skipped; one that was killed
    goes on from its last checkpoint or piece.

    Returns:
        The models: `retriever1`, `retriever2`, `reranker`, `distilled`, those that there are.

    Raises:
        InputError: something given cannot be used, or a stage's directory is of another run; nothing is overwritten.
    """
    return _Run(pipeline).run()


class _Run:
    """A pipeline at work."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.given = pipeline
        self.directory = Path(pipeline.output_dir)
        self.stages = Stages(self.directory)
        self.bm25 = self.directory / "bm25"

    def run(self) -> dict[str, Path]:
        given = self.given
        encoder = self._encoder()
        self._stage("bm25", given.bm25, {}, lambda out, _: self._lexical(out))
        models = {"retriever1": self._retriever("retriever1", given.retriever1, encoder, self.bm25)}
        if given.retriever2 is not None:
            start = models.get(given.retriever2.get("start", "encoder"), encoder)
            mined = self._mined("mined1", models["retriever1"])
            models["retriever2"] = self._retriever("retriever2", given.retriever2, start, mined)
        if given.reranker is not None:
            mined = self._mined("mined2", models["retriever2"])
            models["reranker"] = self._reranker(given.reranker, mined)
        if given.distilled is not None:
            scores = self._scores(models["reranker"], mined, given.distilled.get("depth", _DEPTH))
            start = models.get(given.distilled.get("start", "encoder"), encoder)
            models["distilled"] = self._retriever("distilled", given.distilled, start, scores)
        return models

    def _stage(
        self, name: str, settings: Mapping[str, Any], inputs: Mapping[str, Path], work: Work, together: bool = False
    ) -> Path:
        logger.info("Stage %s", name)
        files = {file: Path(self.given.collection) / file for file in _COLLECTION}
        there = {file: path for file, path in files.items() if path.exists()}
        common = {"seed": self.given.seed, "split": self.given.split}
        return self.stages.run(name, {**common, **settings}, {**there, **inputs}, work, together)

    def _encoder(self) -> Path:
        """The encoder as a retriever."""
        given, source = self.given, Path(self.given.encoder)
        if (source / "modules.json").is_file():
            return source

        def export(out: Path, _: bool) -> None:
            similarity: Any = given.similarity
            export_sentence_transformer(given.encoder, out, max_length=given.max_length, similarity=similarity)

        settings = {"name": given.encoder, "max_length": given.max_length, "similarity": given.similarity}
        return self.stages.run("encoder", settings, {"encoder": source} if source.is_dir() else {}, export)

    def _lexical(self, out: Path) -> None:
        build_lexical_negatives(self.given.collection, out, self.given.split, **self.given.bm25)

    def _mine(self, retriever: Path | SentenceTransformer, out: Path) -> None:
        mine_negatives(retriever, self.given.collection, out, self.given.split, **self.given.mined)

    def _mined(self, name: str, retriever: Path) -> Path:
        return self._stage(name, self.given.mined, {"retriever": retriever}, lambda out, _: self._mine(retriever, out))

    def _retriever(self, name: str, section: Mapping[str, Any], start: Path, lists: Path) -> Path:
        own = {key: section[key] for key in _OPTIONS if key in section}

        def work(out: Path, begun: bool) -> None:
            scored = section.get("distillation", "none") != "none"
            made = self._lists(lists, own.get("passages", 8), own.get("depth", _DEPTH), scored)
            evaluator = self._search_of_tuning(start) if self.given.tuning else None
            chosen = None if evaluator is None else f"eval_{_TUNING}_{load_retriever(start).similarity_fn_name}_mrr@10"
            values = self._trainer_values(section, own, out, begun, chosen)
            callbacks = [RefreshNegatives(made, own["refresh"], self._mine, self._entries)] if "refresh" in own else []
            finetune(start, made, BiencoderTrainingArguments(**values), evaluator=evaluator, callbacks=callbacks)

        return self._trained(name, section, {"start": start, "lists": lists}, work)

    def _reranker(self, section: Mapping[str, Any], lists: Path) -> Path:
        own = {key: section[key] for key in ("base", "max_length", "depth") if key in section}
        base, length = own.get("base", _RERANKER), own.get("max_length", 192)

        def work(out: Path, begun: bool) -> None:
            evaluator = self._ranking_of_tuning(lists) if self.given.tuning else None
            chosen = None if evaluator is None else f"eval_{_TUNING}_mrr@10"
            values = self._trainer_values(section, own, out, begun, chosen)
            arguments = RerankerTrainingArguments(**values)
            made = self._lists(lists, arguments.passages, own.get("depth", _DEPTH))
            train_reranker(base, made, arguments, max_length=length, evaluator=evaluator)

        inputs = {"lists": lists, **({"base": Path(base)} if Path(base).is_dir() else {})}
        return self._trained("reranker", section, inputs, work)

    def _scores(self, reranker: Path, lists: Path, depth: int) -> Path:
        def work(out: Path, _: bool) -> None:
            used = {entry.id for entry in self._entries(lists)}
            score_lists(reranker, lists, self.given.collection, out, self.given.split, depth=depth, queries=used)

        settings = {"depth": depth, "fraction": self.given.fraction, "tuning": self.given.tuning}
        return self._stage("scores", settings, {"reranker": reranker, "lists": lists}, work, together=True)

    def _trained(self, name: str, section: Mapping[str, Any], inputs: Mapping[str, Path], work: Work) -> Path:
        chosen = {key: getattr(self.given, key) for key in ("fraction", "tuning", "tuning_passages")}
        return self._stage(name, {**section, **chosen}, inputs, work, together=True) / "model"

    def _trainer_values(
        self, section: Mapping[str, Any], own: Mapping[str, Any], out: Path, begun: bool, chosen_by: str | None
    ) -> dict[str, Any]:
        """Arguments of a training, which is gone on with where it was begun, and whose best checkpoint is kept."""
        values = {key: value for key, value in section.items() if key not in own}
        values |= {"output_dir": str(out), "seed": self.given.seed}
        values.setdefault("report_to", "none")
        values.setdefault("save_strategy", "steps")
        values.setdefault("save_total_limit", 1)
        if chosen_by:
            values.setdefault("eval_strategy", "steps")
            values.setdefault("eval_steps", 0.2)
            values.setdefault("save_steps", values["eval_steps"])
            values |= {"load_best_model_at_end": True, "metric_for_best_model": chosen_by}
        if begun and newest_checkpoint(out):
            values["resume_from_checkpoint"] = "true"
        return values

    def _entries(self, lists: Path) -> list[Entry]:
        """Those of some lists that are trained on."""
        entries = load_entries(lists, self.given.split)
        if self.given.fraction < 1:
            entries = share(entries, self.given.fraction, self.given.seed)
        return [entry for entry in entries if not self._tuned_on(entry)]

    def _tuned_on(self, entry: Entry) -> bool:
        return zlib.crc32(f"{_TUNING}:{self.given.seed}:{entry.id}".encode()) < self.given.tuning * 2**32

    def _lists(self, lists: Path, passages: int, depth: int, scored: bool = False) -> PassageLists:
        return PassageLists(self._entries(lists), self.corpus, passages, self.given.seed, depth, scored)

    @cached_property
    def corpus(self) -> Dataset:
        return load_corpus(self.given.collection)

    def _tuning_entries(self, lists: Path) -> list[Entry]:
        found = [entry for entry in load_entries(lists, self.given.split) if self._tuned_on(entry)]
        if not found:
            raise InputError(f"The share tuning {self.given.tuning} of the training queries holds none; raise it.")
        return found

    def _search_of_tuning(self, start: Path) -> InformationRetrievalEvaluator:
        """MRR@10 on the queries held out, in a part of the corpus."""
        entries, reader = self._tuning_entries(self.bm25), self._texts
        names = dict.fromkeys(name for entry in entries for name in entry.positives)
        most = self.given.tuning_passages
        ranked = (entry.negatives[rank] for rank in range(_DEPTH) for entry in entries if rank < len(entry.negatives))
        for name in chain(ranked, self.corpus["id"]):
            if len(names) >= most:
                break
            names[name] = None
        return InformationRetrievalEvaluator(
            queries={entry.id: entry.query for entry in entries},
            corpus=dict(zip(names, reader.texts(list(names)), strict=True)),
            relevant_docs={entry.id: set(entry.positives) for entry in entries},
            mrr_at_k=[10],
            ndcg_at_k=[10],
            accuracy_at_k=[10],
            precision_recall_at_k=[10],
            map_at_k=[10],
            write_csv=False,
            name=_TUNING,
        )

    def _ranking_of_tuning(self, lists: Path) -> CrossEncoderRerankingEvaluator:
        """MRR@10 of the re-ranker on the lists of the queries held out."""
        reader = self._texts
        samples: list[dict[str, str | list[str]]] = [
            {
                "query": entry.query,
                "positive": reader.texts(entry.positives),
                "negative": reader.texts(entry.negatives[:_RANKED]),
            }
            for entry in self._tuning_entries(lists)
            if entry.negatives
        ]
        return CrossEncoderRerankingEvaluator(samples, at_k=10, name=_TUNING, write_csv=False)

    @cached_property
    def _texts(self) -> PassageLists:
        return PassageLists([], self.corpus, 1, self.given.seed)


def _names(kind: type[Any]) -> set[str]:
    return {option.name for option in fields(kind)}


def _check_keys(section: str, values: Mapping[str, Any] | None, known: set[str]) -> None:
    if values is not None and not isinstance(values, Mapping):
        raise InputError(f"The section {section} must hold 'option: value' lines.")
    unknown = sorted(set(values or ()) - known)
    if unknown:
        raise InputError(f"The section {section} has the key {unknown[0]!r}, which is no option of it.")
