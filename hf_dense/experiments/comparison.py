"""Does pre-training pay? The same fine-tuning and evaluation after different starts.

Every variant has the same tokenizer, encoder shape, pairs, schedule and seed; they differ in how the encoder's weights
came about (and, where that is the question, in the number of fine-tuning steps).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import AutoModel, AutoTokenizer, BertConfig, PreTrainedTokenizerBase, TrainingArguments, set_seed

from hf_dense.data.collections import content_hash, load_corpus, training_pairs
from hf_dense.data.tokenizers import train_tokenizer
from hf_dense.errors import InputError
from hf_dense.evaluation.measures import METRICS
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.finetuning.lists import Entry, share
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.pretraining.pretrain import PretrainingOptions, pretrain
from hf_dense.search.first_stage import BM25
from hf_dense.storage.files import write_text
from hf_dense.storage.legacy import atomic_directory

_DESCRIPTION = "variant.json"

PRETRAINING: dict[str, Any] = {  # of small encoders from random weights; docs/evidence.md
    "max_steps": 4000,
    "per_device_train_batch_size": 16,  # small batches, many steps: large ones stay on a plateau for long
    "learning_rate": 2e-3,
    "warmup_steps": 0.1,
    "weight_decay": 0.01,
    "logging_steps": 50,
    "save_strategy": "steps",
    "save_steps": 500,
    "save_total_limit": 1,
}
FINETUNING: dict[str, Any] = {
    "max_steps": 300,
    "per_device_train_batch_size": 64,
    "learning_rate": 1e-3,
    "temperature": 0.05,
    "logging_steps": 20,
}


@dataclass(frozen=True)
class Settings:
    """What all variants of a comparison share.

    Args:
        dataset: dataset directory with a corpus, queries and qrels for `train` and `split`.
        hidden: width of the encoder.
        layers: its number of layers.
        vocabulary: tokens of the tokenizer, which is trained on the corpus.
        max_length: longest text in tokens, special tokens included.
        initializer: standard deviation of the initial weights. At width 128 BERT's 0.02 leaves attention flat for
            hundreds of steps (docs/evidence.md).
        dropout: of the encoder and the decoders; none by default, as few small models see their data twice here.
        labelled: training queries used, drawn at random; None takes all.
        fraction: share of them that is used, drawn by `seed`; a smaller share is among a larger one.
        backbone: encoder that pre-training starts from, directory or Hub id, with its own tokenizer; None starts from
            random weights of the shape above.
        pretraining: `TrainingArguments` of pre-training (`max_steps`, `learning_rate`, ...).
        finetuning: `BiencoderTrainingArguments` of fine-tuning.
        split: queries the result is measured on.
        similarity: `dot` or `cosine`.
        seed: of initialisation, data order, masks and dropout.
    """

    dataset: str
    hidden: int = 128
    layers: int = 2
    vocabulary: int = 4000
    max_length: int = 64
    initializer: float = 0.05
    dropout: float = 0.0
    labelled: int | None = None
    fraction: float = 1.0
    backbone: str | None = None
    pretraining: dict[str, Any] = field(default_factory=dict)
    finetuning: dict[str, Any] = field(default_factory=dict)
    split: str = "test"
    similarity: str = "cosine"
    seed: int = 0


@dataclass(frozen=True)
class Variant:
    """One row of the comparison.

    Args:
        name: in tables, and of the directory.
        method: pre-training method; None starts from the backbone or from random weights.
        options: changes to the `PretrainingOptions`, e.g. to the method's `decoders`.
        pretraining: changes to the shared pre-training; CoT-MAE reads two texts per row, so half the rows are as much.
        finetuning: changes to the shared fine-tuning, e.g. more steps.
    """

    name: str
    method: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    pretraining: dict[str, Any] = field(default_factory=dict)
    finetuning: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class VariantResult:
    """What a variant gave.

    Attributes:
        name: of the variant.
        model: the fine-tuned Sentence-Transformers directory; None for BM25.
        retrieval: metrics and their values per query.
        pretraining_history: log of the pre-training (empty without one).
        finetuning_history: log of the fine-tuning.
        seconds: wall-clock time of pre-training, fine-tuning and evaluation.
    """

    name: str
    model: str | None
    retrieval: RetrievalResult
    pretraining_history: list[dict[str, Any]]
    finetuning_history: list[dict[str, Any]]
    seconds: dict[str, float]


def run_bm25(settings: Settings, output_dir: Path) -> VariantResult:
    """The lexical baseline on the same queries."""
    retrieval = _evaluate(BM25, settings, "BM25", output_dir)
    return VariantResult("BM25", None, retrieval, [], [], {"evaluation": retrieval.seconds})


def run_variant(
    settings: Settings, variant: Variant, output_dir: Path, start: str | Path | None = None
) -> VariantResult:
    """Initialise or pre-train, export, fine-tune and evaluate one variant.

    Args:
        settings: what the variants share.
        variant: how this one starts.
        output_dir: its directory. A stage that is complete there is not run again, a half-finished one continues from
            its last checkpoint.
        start: encoder or checkpoint that is fine-tuned as it is; by default what `make_start` gives.

    Returns:
        The result.

    Raises:
        InputError: the directory holds a variant with other settings, or the data cannot be used.
    """
    _claim(output_dir, settings, variant)
    seconds: dict[str, float] = {}
    clock = time.perf_counter()
    history: list[dict[str, Any]] = []
    if start is None:
        start, history = make_start(settings, variant, output_dir)
    seconds["pretraining"] = time.perf_counter() - clock
    clock = time.perf_counter()
    model = output_dir / "finetuned" / "model"
    if not model.is_dir():
        exported = export_sentence_transformer(
            start,
            output_dir / "exported",
            max_length=settings.max_length,
            similarity=settings.similarity,  # type: ignore[arg-type]
        )
        finetune(exported, pairs_of(settings), _finetuning_arguments(settings, variant, output_dir))
    seconds["finetuning"] = time.perf_counter() - clock
    retrieval = _evaluate(str(model), settings, variant.name, output_dir)
    seconds["evaluation"] = retrieval.seconds
    log = json.loads((output_dir / "finetuned" / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    known = output_dir / "seconds.json"
    if known.is_file():  # a finished run keeps the times it took, not those of finding it finished
        seconds = json.loads(known.read_text(encoding="utf-8"))
    write_text(known, json.dumps(seconds))
    return VariantResult(variant.name, str(model), retrieval, history, log, seconds)


def make_start(settings: Settings, variant: Variant, output_dir: Path) -> tuple[str | Path, list[dict[str, Any]]]:
    """Initialise or pre-train the encoder of one variant; see `run_variant`.

    Returns:
        The encoder, in `output_dir/start` unless it is the backbone as it is, and the log of its pre-training.
    """
    _claim(output_dir, settings, variant)
    start = output_dir / "start"
    if settings.backbone is not None:
        return (start, _pretrain(settings, variant, None, start)) if variant.method else (settings.backbone, [])
    tokenizer = shared_tokenizer(settings, output_dir.parent / f"tokenizer-{settings.vocabulary}")
    if variant.method is not None:
        return start, _pretrain(settings, variant, tokenizer, start)
    _random_encoder(settings, tokenizer, start)
    return start, []


def mean_per_query(results: Sequence[VariantResult]) -> dict[str, dict[str, float]]:
    """Metric -> query -> mean over the results, which differ in their seeds."""
    return {
        metric: {
            query: sum(result.retrieval.per_query[metric][query] for result in results) / len(results)
            for query in results[0].retrieval.per_query[metric]
        }
        for metric in METRICS
    }


def pairs_of(settings: Settings) -> Dataset:
    """Training pairs, the passage with its title; the same queries for every seed, but for a `fraction` of them."""
    pairs = training_pairs(settings.dataset, "train")
    if settings.labelled is not None:
        queries = sorted(set(pairs["query_id"]))
        chosen = set(random.Random(0).sample(queries, min(settings.labelled, len(queries))))
        pairs = pairs.select([row for row, query in enumerate(pairs["query_id"]) if query in chosen])
    if settings.fraction < 1:
        queries = sorted(set(pairs["query_id"]))
        kept = {
            entry.id for entry in share([Entry(name, "", ()) for name in queries], settings.fraction, settings.seed)
        }
        pairs = pairs.select([row for row, query in enumerate(pairs["query_id"]) if query in kept])
    return pairs.select_columns(["query", "passage"])


def shared_tokenizer(settings: Settings, directory: Path) -> Path:
    """The tokenizer of all variants, trained once on titles and texts of the corpus."""
    if not directory.is_dir():
        corpus = load_corpus(settings.dataset)
        texts = [f"{title} {text}" for title, text in zip(corpus["title"], corpus["text"], strict=True)]
        with atomic_directory(directory) as work:
            train_tokenizer(texts, settings.vocabulary, settings.max_length).save_pretrained(work)
    return directory


def encoder_shape(settings: Settings) -> dict[str, Any]:
    """The encoder's configuration, but for the vocabulary."""
    return {
        "hidden_size": settings.hidden,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": max(settings.hidden // 64, 1),
        "intermediate_size": 4 * settings.hidden,
        "max_position_embeddings": settings.max_length,
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.dropout,
        "initializer_range": settings.initializer,
    }


def _random_encoder(settings: Settings, tokenizer_dir: Path, output_dir: Path) -> None:
    if output_dir.is_dir():
        return
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(tokenizer_dir))
    set_seed(settings.seed)
    config = BertConfig(vocab_size=len(tokenizer), **encoder_shape(settings))
    model = AutoModel.from_config(config, add_pooling_layer=False)
    with atomic_directory(output_dir) as work:
        model.save_pretrained(work)
        tokenizer.save_pretrained(work)


def _pretrain(settings: Settings, variant: Variant, tokenizer: Path | None, output_dir: Path) -> list[dict[str, Any]]:
    state = output_dir / "trainer_state.json"
    if not state.is_file():
        shared = {
            "method": variant.method or "",
            "corpus": settings.dataset,
            "backbone": settings.backbone,
            "backbone_config": encoder_shape(settings),
            "tokenizer": tokenizer and str(tokenizer),
            "max_length": settings.max_length,
        }
        options = PretrainingOptions(**{**shared, **variant.options})
        resume = "last" if any(output_dir.glob("checkpoint-*/trainer_state.json")) else None
        arguments = {"save_strategy": "no", "report_to": "none", **settings.pretraining, **variant.pretraining}
        pretrain(
            options,
            TrainingArguments(
                output_dir=str(output_dir), seed=settings.seed, resume_from_checkpoint=resume, **arguments
            ),
        )
    log: list[dict[str, Any]] = json.loads(state.read_text(encoding="utf-8"))["log_history"]
    return log


def _finetuning_arguments(settings: Settings, variant: Variant, output_dir: Path) -> BiencoderTrainingArguments:
    arguments = {"report_to": "none", **settings.finetuning, **variant.finetuning}
    return BiencoderTrainingArguments(output_dir=str(output_dir / "finetuned"), seed=settings.seed, **arguments)


def _evaluate(model: str, settings: Settings, name: str, output_dir: Path) -> RetrievalResult:
    target = output_dir / f"evaluation-{settings.split}"
    if target.is_dir():
        return RetrievalResult.load(target)
    return evaluate_retriever(model, settings.dataset, settings.split, name=name, output_dir=target)


def _claim(output_dir: Path, settings: Settings, variant: Variant) -> None:
    """Write what this directory is for, or refuse it when it is for something else."""
    settings = replace(settings, dataset=content_hash(settings.dataset), split="")
    path = output_dir / _DESCRIPTION
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))  # an earlier version's lacks the newer fields
        if (Settings(**before["settings"]), Variant(**before["variant"])) != (settings, variant):
            raise InputError(
                f"{output_dir} holds a run with other settings or data; remove it or use another directory."
            )
    write_text(path, json.dumps({"settings": asdict(settings), "variant": asdict(variant)}, indent=1))
