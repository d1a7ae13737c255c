"""Does pre-training pay? The same fine-tuning and evaluation after different starts.

Every variant has the same tokenizer, encoder shape, pairs, schedule and seed; they differ in how the encoder's weights
came about (and, where that is the question, in the number of fine-tuning steps).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import AutoModel, AutoTokenizer, BertConfig, TrainingArguments, set_seed

from hf_dense.data.collections import content_hash, load_corpus, training_pairs
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.data.tokenizers import train_tokenizer
from hf_dense.errors import InputError
from hf_dense.evaluation.measures import METRICS
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.finetuning.lists import Entry, draw, share
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.pretraining.pretrain import PretrainingOptions, pretrain
from hf_dense.search.first_stage import BM25
from hf_dense.storage.checkpoints import load_history
from hf_dense.storage.fingerprints import fingerprint_tokenizer
from hf_dense.storage.manifest import seconds_of
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

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
        collection: its directory, with judgements for `train` and `split`.
        hidden: width of the encoder.
        layers: its number of layers.
        vocabulary: tokens of the tokenizer, which is trained on the corpus.
        max_length: longest text in tokens, special tokens included.
        initializer: standard deviation of the initial weights. At width 128 BERT's 0.02 leaves attention flat for
            hundreds of steps (docs/evidence.md).
        dropout: of the encoder and the decoders; none by default, as few small models see their data twice here.
        fraction: share of the training queries that is used, drawn by `seed`; a smaller share is among a larger one.
        queries: how many of them are used instead, drawn likewise; 0 is no fine-tuning, None takes the fraction.
        backbone: encoder that pre-training starts from, directory or Hub id, with its own tokenizer; None starts from
            random weights of the shape above.
        pretraining: `TrainingArguments` of pre-training (`max_steps`, `learning_rate`, ...).
        finetuning: `BiencoderTrainingArguments` of fine-tuning.
        split: queries the result is measured on.
        similarity: `dot` or `cosine`.
        seed: of initialisation, data order, masks and dropout.
    """

    collection: str
    hidden: int = 128
    layers: int = 2
    vocabulary: int = 4000
    max_length: int = 64
    initializer: float = 0.05
    dropout: float = 0.0
    fraction: float = 1.0
    queries: int | None = None
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


def run_bm25(settings: Settings, out: Path | Output) -> VariantResult:
    """The lexical baseline on the same queries."""
    retrieval = _evaluate(BM25, settings, "BM25", Output.of(out))
    return VariantResult("BM25", None, retrieval, [], [], {"evaluation": retrieval.seconds})


@dataclass(frozen=True)
class Trained:
    """A variant before it is measured; see `VariantResult`."""

    name: str
    model: str
    pretraining_history: list[dict[str, Any]]
    finetuning_history: list[dict[str, Any]]
    seconds: dict[str, float]

    def measured(self, retrieval: RetrievalResult) -> VariantResult:
        """The same with what it gave."""
        seconds = {**self.seconds, "evaluation": retrieval.seconds}
        return VariantResult(retrieval=retrieval, **{**vars(self), "seconds": seconds})


def run_variant(
    settings: Settings, variant: Variant, out: Path | Output, start: str | Path | None = None
) -> VariantResult:
    """Train one variant, and evaluate it; see `train_variant`."""
    output = Output.of(out)
    trained = train_variant(settings, variant, output, start)
    return trained.measured(_evaluate(trained.model, settings, variant.name, output))


def train_variant(settings: Settings, variant: Variant, out: Path | Output, start: str | Path | None = None) -> Trained:
    """Initialise or pre-train, export and fine-tune one variant.

    Args:
        settings: what the variants share.
        variant: how this one starts.
        out: its directory, with an output for each stage: one that is complete is not made again, a half-finished one
            goes on from its last checkpoint.
        start: encoder or checkpoint that is fine-tuned as it is; by default what `make_start` gives.

    Returns:
        The model, and how it came about.

    Raises:
        InputError: a stage's directory is of other settings or data, or the data cannot be used.
    """
    output = Output.of(out)
    pretrained = start is None and variant.method is not None
    if start is None:
        start = make_start(settings, variant, output)
    exported = export_sentence_transformer(
        start,
        output.at("exported"),
        max_length=settings.max_length,
        similarity=settings.similarity,  # type: ignore[arg-type]
    )
    seconds = {"pretraining": seconds_of(start) if pretrained else 0.0, "finetuning": 0.0}
    history = load_history(start) if pretrained else []
    if settings.queries == 0:
        return Trained(variant.name, str(exported), history, [], seconds)
    training = {"report_to": "none", **settings.finetuning, **variant.finetuning}
    place = output.path / "finetuned"
    arguments = BiencoderTrainingArguments(
        output_dir=str(place), seed=settings.seed, overwrite=output.overwrite, **training
    )
    model = finetune(exported, pairs_of(settings), arguments, origin=f"{settings.collection}:train")
    return Trained(variant.name, str(model), history, load_history(place), seconds | {"finetuning": seconds_of(place)})


def make_start(settings: Settings, variant: Variant, out: Path | Output) -> str | Path:
    """Initialise or pre-train the encoder of one variant; see `run_variant`.

    Returns:
        The encoder: `start` in `out`, or the backbone as it is.
    """
    output = Output.of(out)
    if settings.backbone is not None and variant.method is None:
        return settings.backbone
    tokenizer = None
    if settings.backbone is None:
        tokenizer = shared_tokenizer(settings, output.path.parent / f"tokenizer-{settings.vocabulary}")
    if variant.method is None:
        assert tokenizer is not None
        return _random_encoder(settings, tokenizer, output.at("start"))
    return _pretrain(settings, variant, tokenizer, output.at("start"))


def mean_per_query(results: Sequence[RetrievalResult]) -> dict[str, dict[str, float]]:
    """Metric -> query -> mean over the results, which differ in their seeds."""
    return {
        metric: {
            query: sum(result.per_query[metric][query] for result in results) / len(results)
            for query in results[0].per_query[metric]
        }
        for metric in METRICS
    }


def pairs_of(settings: Settings) -> Dataset:
    """Training pairs, the passage with its title; the same queries for every seed, but for a part of them.

    Raises:
        InputError: there are fewer queries than asked for, or the fraction leaves none.
    """
    pairs = training_pairs(settings.collection, "train")
    entries = [Entry(name, "", ()) for name in sorted(set(pairs["query_id"]))]
    if settings.queries is not None:
        if settings.queries > len(entries):
            raise InputError(
                f"{settings.collection} has {len(entries):,} training queries, not the {settings.queries:,} asked for."
            )
        entries = draw(entries, settings.queries, settings.seed)
    elif settings.fraction < 1:
        entries = share(entries, settings.fraction, settings.seed)
    kept = {entry.id for entry in entries}
    if settings.queries is not None or settings.fraction < 1:
        pairs = pairs.select([row for row, query in enumerate(pairs["query_id"]) if query in kept])
    return pairs.select_columns(["query", "passage"])


def shared_tokenizer(settings: Settings, out: Path | Output) -> Path:
    """The tokenizer of all variants, trained once on titles and texts of the corpus."""
    output = Output.of(out)
    made_from = {"tokens": settings.vocabulary, "max_length": settings.max_length}
    source = {"collection": Source(settings.collection, content_hash(settings.collection))}
    with output.stage("tokenizer", made_from, source) as work:
        if not work.done:
            texts = PassageTexts(load_corpus(settings.collection))
            train_tokenizer(texts, settings.vocabulary, settings.max_length).save_pretrained(work.result)
    return output.path


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


def _random_encoder(settings: Settings, tokenizer_dir: Path, output: Output) -> Path:
    """An encoder of random weights, with the tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(str(tokenizer_dir))
    source = {"tokenizer": Source(str(tokenizer_dir), fingerprint_tokenizer(tokenizer))}
    with output.stage("encoder", encoder_shape(settings), source, seed=settings.seed) as work:
        if not work.done:
            set_seed(settings.seed)
            config = BertConfig(vocab_size=len(tokenizer), **encoder_shape(settings))
            AutoModel.from_config(config, add_pooling_layer=False).save_pretrained(work.result)
            tokenizer.save_pretrained(work.result)
    return output.path


def _pretrain(settings: Settings, variant: Variant, tokenizer: Path | None, output: Output) -> Path:
    given: dict[str, Any] = {
        "method": variant.method or "",
        "corpus": settings.collection,
        "backbone": settings.backbone,
        "tokenizer": tokenizer and str(tokenizer),
        "max_length": settings.max_length,
        "overwrite": output.overwrite,
        **variant.options,
    }
    if not given["backbone"]:
        given.setdefault("backbone_config", encoder_shape(settings))
    arguments = {"save_strategy": "no", "report_to": "none", **settings.pretraining, **variant.pretraining}
    training = TrainingArguments(output_dir=str(output.path), seed=settings.seed, **arguments)
    pretrain(PretrainingOptions(**given), training)
    return output.path


def _evaluate(model: str, settings: Settings, name: str, output: Output) -> RetrievalResult:
    out = output.at(f"evaluation-{settings.split}")
    return evaluate_retriever(model, settings.collection, settings.split, name=name, out=out)
