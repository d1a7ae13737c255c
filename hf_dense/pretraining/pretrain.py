"""Pre-training from a corpus to a checkpoint: everything between the options and the Trainer."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from datasets import Dataset, IterableDataset
from huggingface_hub import dataset_info
from transformers import AutoConfig, IntervalStrategy, PreTrainedTokenizerBase, TrainingArguments, set_seed
from transformers.utils import logging

from hf_dense.data.collections import content_hash
from hf_dense.data.corpus import corpus_files, load_passages, stream_passages
from hf_dense.data.hub_names import divided, model_folder
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.data.passages import load_tokenizer
from hf_dense.data.tokenizers import train_tokenizer, vocabulary_size
from hf_dense.errors import InputError, first_line
from hf_dense.hub.cards import write_model_card
from hf_dense.hub.fingerprints import BY_THE_WAY
from hf_dense.hub.lineage import lineage_of
from hf_dense.hub.loading import check_dropout
from hf_dense.hub.precision import check_products, choose_precision, float32_products
from hf_dense.hub.publish import Publication
from hf_dense.hub.towers import check_one_encoder
from hf_dense.methods import Method, get_method
from hf_dense.modeling.bottleneck_backbones import family_of
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig, check_keys
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.corpus import NOTHING_LEFT, add_sources, first_queries, hold_out, joined_columns, tokenize
from hf_dense.pretraining.gap import describe_idle, find_idle
from hf_dense.pretraining.generator import add_generator
from hf_dense.pretraining.keywords import Keywords, table_of
from hf_dense.pretraining.longest import head_rows, longest_rows, most_rows
from hf_dense.pretraining.options import PretrainingOptions, check_options, given_mapping
from hf_dense.pretraining.probe import BEST, Pool, RetrievalProbe, check_best, load_best, load_pool
from hf_dense.pretraining.soundness import STEP_FILE
from hf_dense.pretraining.start import check_kind, start_from
from hf_dense.pretraining.stream import PassageStream
from hf_dense.pretraining.trainer import PreTrainer, check_arguments, check_contrast
from hf_dense.pretraining.vocabulary import Vocabulary
from hf_dense.storage.batch_size import find_batch_size
from hf_dense.storage.checkpoints import (
    checkpoint_to_resume,
    keep_time,
    load_history,
    occupy_training,
    recorded_setting,
    train,
)
from hf_dense.storage.fingerprints import (
    fingerprint_files,
    fingerprint_path,
    fingerprint_rows,
    fingerprint_tokenizer,
    fingerprint_weights,
)
from hf_dense.storage.occupied import Occupied
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import decide_together, is_main_process

__all__ = ["PretrainingOptions", "PretrainingResult", "pretrain"]

KIND: Final = "pre-training"  # of output
_VOCABULARY: Final = 30_522  # tokens, BERT's
_TOKENIZER_ROWS: Final = 100_000  # at the head of a stream
_WORKERS: Final = 4  # that make a GPU's batches, at most
_HEAD: Final = 100  # rows, among which one that can be used is looked for
_READ: Final = {"text", "title", "document", "position", "neighbour", "query", "queries", "continuation"}  # of a corpus
_CLAIMS: Final = (
    *("config.json", "model*.safetensors", "model.safetensors.index.json", "generation_config.json"),
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "chat_template*"),
    *("modeling_*.py", "configuration_*.py", "bottleneck_*.py", STEP_FILE),
)

logger = logging.get_logger("transformers")


@dataclass(frozen=True)
class PretrainingResult:
    """What a pre-training gave.

    Attributes:
        path: directory of the checkpoint: encoder, decoders, tokenizer.
        history: what was logged: losses by step, held-out losses, probes.
        done: whether it was there already.
    """

    path: Path
    history: list[dict[str, Any]]
    done: bool


@dataclass(frozen=True)
class _Start:
    """What a training begins with.

    Args:
        model: to be trained.
        tokenizer: of the corpus.
        rows: texts to train on, with the columns that the method reads.
        held: texts that are held out, if any are.
        keywords: word counts, where they were named.
        pool: of the probe, where there is one.
    """

    model: BottleneckForPreTraining
    tokenizer: PreTrainedTokenizerBase
    rows: Dataset | PassageStream
    held: Dataset | None
    keywords: Keywords | None
    pool: Pool | None


def pretrain(options: PretrainingOptions, training: TrainingArguments, command: str = "") -> PretrainingResult:
    """Pre-train an encoder and save it, with its decoders and tokenizer, in `training.output_dir`.

    A run that was killed goes on from its newest checkpoint when it is started again, and ends with the weights of one
    that was never stopped; one that is complete is not run again. A directory of another run is refused.

    Args:
        options: method, corpus, backbone, tokenizer.
        training: the Trainer's arguments. `resume_from_checkpoint` may be a checkpoint of the same run in another
            directory, or `last` where the directory must hold one; `push_to_hub` publishes the result.
        command: that starts it, for people.

    Returns:
        Where the result is, and what was logged.

    Raises:
        InputError: something given cannot work; nothing has been written then.
    """
    method = get_method(options.method)
    check_options(options, training)
    training = copy(training)  # some of them are set below
    assert training.output_dir is not None  # TrainingArguments fills it in
    publication = Publication.of(training, Path(training.output_dir).name, KIND)
    set_seed(training.seed)
    output = Output(Path(training.output_dir), options.overwrite, command, options.license)
    check_products(options.float32_matmul_precision, training.tf32)
    recorded, cut = (
        recorded_setting(name, output.path, training.resume_from_checkpoint, KIND)
        for name in ("precision", "gradient_accumulation_steps")
    )
    with training.main_process_first(local=False, desc="corpus and tokenizer"):
        corpus = (stream_passages if options.streaming else load_passages)(options.corpus, options.text_column)
        start = _start(method, options, corpus, training)
    options = replace(options, precision=choose_precision(training, start.model, options.precision, recorded))
    sources = decide_together(lambda: _sources(options, corpus, start))
    settings = _settings(options, start)
    if cut and not (options.overwrite or training.dataloader_drop_last):  # a step is the same however it is cut up
        settings["gradient_accumulation_steps"] = cut
    fit = partial(_fit, options, training, start)
    with occupy_training(output, KIND, settings, sources, training, _CLAIMS, fit=fit) as work:
        if not work.done:
            _train(work, options, training, start)
    if publication and is_main_process():
        publication.publish(output.path)
    return PretrainingResult(output.path, decide_together(lambda: load_history(output.path)), work.done)


def _start(
    method: Method, options: PretrainingOptions, corpus: Dataset | IterableDataset, training: TrainingArguments
) -> _Start:
    """Model, tokenizer and texts, checked against each other and against the Trainer's arguments."""
    pool, rate = load_pool(options), options.decoder_learning_rate
    if rate is not None and not 0 < rate < math.inf:
        raise InputError(f"decoder_learning_rate is {rate}; it must be above 0.")
    if not 0 <= options.held_out < 1:
        raise InputError(f"held_out is {options.held_out}; it must be from 0 to below 1.")
    if options.backbone is not None:
        check_one_encoder(options.backbone)
        check_kind(options.backbone)
    tokenizer = _tokenizer(options, corpus)
    if options.backbone and options.tokenizer:
        _check_tokens(tokenizer, options.tokenizer, options.backbone, "leave --tokenizer out")
    vocabulary = Vocabulary.of(tokenizer)
    model = _model(method, options, tokenizer)
    _align_special_tokens(model.config, tokenizer)
    generator = _generator(options.generator)
    add_generator(model, generator, options.generator_weight, options.max_length)
    if isinstance(generator, str):
        read = options.tokenizer or options.backbone or "a tokenizer trained on the corpus"
        _check_tokens(tokenizer, read, generator, "name a generator of the same tokenizer")
    check_arguments(model, training, options.chunk, options.streaming)
    check_contrast(model, training)
    config = model.config
    if "text" not in config.sources:
        raise InputError("No encoder or decoder reads the column 'text'; give one of them a view of it.")
    corpus = first_queries(corpus, options.queries_per_passage, config.sources)
    if isinstance(corpus, IterableDataset):
        grouped = _groups_by_length(options, config)
        rows: Dataset | PassageStream = PassageStream(
            corpus,
            config.sources,
            options.held_out,
            training.seed,
            grouped,
            joined_columns(config.views),
            training.data_seed,
        )
        held = None  # found by reading the head of the stream
    else:
        read, kept_out = hold_out(corpus, options.held_out, training.seed)
        rows = add_sources(read, config.sources, config.siblings)
        held = None if kept_out is None else add_sources(kept_out, config.sources, config.siblings)
        encode = partial(tokenize, tokenizer=tokenizer, joined=joined_columns(config.views))
        if not encode(rows.select(range(min(len(rows), _HEAD)))) and not encode(rows):
            raise InputError(f"No row of {options.corpus} can be used: {NOTHING_LEFT}")
    keywords = None
    if options.keywords is not None and not config.needs_keywords:
        raise InputError(f"keywords are for methods that hide keywords, and {config.model_type} hides none here.")
    if config.needs_keywords and options.keywords is not None:
        keywords = Keywords.load(options.keywords, vocabulary)
    elif config.needs_keywords and options.streaming:
        raise InputError("A streamed corpus is not counted in passing; name its word counts with --keywords.")
    return _Start(model, tokenizer, rows, held, keywords, pool)


def _sources(options: PretrainingOptions, corpus: Dataset | IterableDataset, start: _Start) -> dict[str, Source]:
    """What a run is made from, beside its settings."""
    if isinstance(corpus, Dataset):
        read = fingerprint_rows(corpus, {*_READ, *start.model.config.sources} & set(corpus.column_names))
    elif (place := Path(options.corpus)).exists():
        read = fingerprint_files(corpus_files(place), place if place.is_dir() else place.parent)
    else:
        name, revision = divided(options.corpus)
        read = str(dataset_info(name, revision=revision).sha)
    named = options.tokenizer or options.backbone or "one trained on the corpus"
    found = {
        "corpus": Source(options.corpus, read),
        "tokenizer": Source(named, fingerprint_tokenizer(start.tokenizer)),
    }
    if options.backbone is not None:
        known = AutoConfig.from_pretrained(model_folder(options.backbone), trust_remote_code=False)
        same = known.model_type == start.model.config.model_type
        taken = start.model if same else start.model.encoder  # else decoders are drawn, by the seed
        found["backbone"] = Source(options.backbone, fingerprint_weights(taken))
    if start.keywords is not None and options.keywords is not None:
        found["keywords"] = Source(options.keywords, fingerprint_path(table_of(options.keywords)))
    named_generator = _generator(options.generator)
    if isinstance(named_generator, str) and (generator := getattr(start.model, "generator", None)):
        found["generator"] = Source(named_generator, fingerprint_weights(generator))
    if start.pool is not None:  # what is logged is a part of the result
        found["probe"] = Source(str(start.pool.collection), content_hash(start.pool.collection))
    return found


def _settings(options: PretrainingOptions, start: _Start) -> dict[str, Any]:
    """What decides on the result beside the sources and the Trainer's arguments."""
    config = start.model.config
    declared = {
        "encoders": {name: asdict(spec) for name, spec in config.encoder_specs.items()},
        "decoders": {name: asdict(spec) for name, spec in config.decoder_specs.items()},
    }
    return {
        "method": options.method,
        "max_length": options.max_length,
        "held_out": options.held_out,
        "chunk": options.chunk,
        "streaming": options.streaming,
        "precision": options.precision,
        "float32_matmul_precision": options.float32_matmul_precision,
        **({"text_column": options.text_column} if options.streaming else {}),
        **({"queries_per_passage": most} if (most := options.queries_per_passage) is not None else {}),
        **({} if _groups_by_length(options, config) else {"group_by_length": False}),
        **({} if options.decoder_learning_rate is None else {"decoder_learning_rate": options.decoder_learning_rate}),
        **({} if options.muon_learning_rate is None else {"muon_learning_rate": options.muon_learning_rate}),
        **({} if start.pool is None else _probe_settings(options, start.pool)),
        "config": _plain({**config.to_dict(), **declared}),
    }


def _groups_by_length(options: PretrainingOptions, config: BottleneckConfig) -> bool:
    """Whether a step's texts have similar lengths: not where they are each other's negatives, unless it was chosen."""
    return not config.contrasts if options.group_by_length is None else options.group_by_length


def _probe_settings(options: PretrainingOptions, pool: Pool) -> dict[str, Any]:
    names = ("probe_steps", "probe_patience", "probe_keep_best")
    return {"probe_split": pool.split, **{name: getattr(options, name) for name in names}}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """A configuration without what does not decide on its model."""
    kept = {name: value for name, value in values.items() if name not in BY_THE_WAY}
    return {name: _plain(value) if isinstance(value, dict) else value for name, value in kept.items()}


def _fit(options: PretrainingOptions, training: TrainingArguments, start: _Start) -> int:
    """The largest batch of texts of the greatest length that memory holds."""
    config, streamed = start.model.config, isinstance(start.rows, PassageStream)
    trial = replace(start if streamed else _tokenized(start), held=None, pool=None)
    known = trial.rows if isinstance(trial.rows, Dataset) else head_rows(trial.rows, trial.tokenizer)
    return find_batch_size(
        lambda chosen: _trainer(options, chosen, trial),
        training,
        longest_rows(known, options.max_length),
        most_rows(trial.rows, config.siblings) // training.gradient_accumulation_steps,
        options.chunk,
    )


def _train(work: Occupied, options: PretrainingOptions, training: TrainingArguments, start: _Start) -> None:
    """Train, and write the result into the directory."""
    checkpoint = checkpoint_to_resume(work, training.resume_from_checkpoint)
    if options.probe_keep_best:
        check_best(work.path, checkpoint)
    with training.main_process_first(local=False, desc="tokens"):
        start = _tokenized(start)
    trainer = _trainer(options, training, start)
    seconds = keep_time(trainer, work, checkpoint)
    with float32_products(options.float32_matmul_precision):
        train(trainer, checkpoint)
    if options.probe_keep_best:
        step = load_best(trainer.model, work.path)
        work.facts["remarks"] = [f"Its weights are those after step {step}, where the probe was best."]
    if is_main_process() and (idle := find_idle(list(trainer.model.decoder_specs), trainer.state.log_history)):
        logger.warning(describe_idle(idle))
    if start.held is not None:
        trainer.evaluate()
    trainer.save_model()
    trainer.save_state()
    if is_main_process():
        lineage = lineage_of(options.backbone) if options.backbone else []
        work.facts |= {"steps": trainer.state.global_step, "seconds": seconds(), "lineage": lineage}
        if work.claim("README.md"):
            write_model_card(work.path, replace(work.manifest, facts=work.facts))
        (work.path / STEP_FILE).unlink(missing_ok=True)  # of a run before this one
    work.complete()
    if options.probe_keep_best and is_main_process():
        (work.path / BEST).unlink()


def _check_metric(metric: str | None, losses: Iterable[str]) -> None:
    """Raise `InputError` where the best checkpoint is to be chosen by a figure that evaluations have not."""
    known = ["loss", *(f"{name}_loss" for name in losses)]
    if metric is not None and metric.removeprefix("eval_") not in known:
        raise InputError(f"metric_for_best_model is {metric!r}; evaluations have: {', '.join(known)}.")


def _trainer(options: PretrainingOptions, training: TrainingArguments, start: _Start) -> PreTrainer:
    """The trainer, with what the machine and the held-out texts decide."""
    if start.held is None and training.eval_strategy != "no":
        if training.load_best_model_at_end:
            raise InputError(
                "No document is held out, so no checkpoint can be the best by its loss; raise held_out, or leave out "
                "load_best_model_at_end."
            )
        logger.warning("No document is held out, so there is no evaluation loss; raise held_out to get one.")
        training.eval_strategy = IntervalStrategy.NO
    training.remove_unused_columns = False
    training.dataloader_pin_memory &= torch.cuda.is_available()
    if torch.cuda.is_available() and not training.use_cpu:
        _use_workers(training, isinstance(start.rows, PassageStream))
    config, vocabulary = start.model.config, Vocabulary.of(start.tokenizer)
    _check_metric(training.metric_for_best_model, config.weights)
    trainer = PreTrainer(
        model=start.model,
        args=training,
        collator=ViewCollator(config, vocabulary, options.max_length, training.seed, start.keywords),
        train_dataset=start.rows,
        eval_dataset=start.held,
        chunk=options.chunk,
        decoder_learning_rate=options.decoder_learning_rate,
        muon_learning_rate=options.muon_learning_rate,
        group_by_length=_groups_by_length(options, config),
        processing_class=start.tokenizer,
    )
    if start.pool is not None:
        trainer.add_callback(RetrievalProbe(trainer, start.pool, options))
    return trainer


def _tokenized(start: _Start) -> _Start:
    """The same with token ids in place of texts, and with word counts where the method needs them."""
    rows, held, keywords, tokenizer = start.rows, start.held, start.keywords, start.tokenizer
    encode = partial(tokenize, tokenizer=tokenizer, joined=joined_columns(start.model.config.views))
    if isinstance(rows, PassageStream):
        held = rows.held_out()
    else:
        rows = encode(rows)
        if start.model.config.needs_keywords and keywords is None:
            keywords = Keywords.of(rows["text"], Vocabulary.of(tokenizer))
    held = encode(held) or None if held else None
    return replace(start, rows=rows, held=held, keywords=keywords)


def _tokenizer(options: PretrainingOptions, corpus: Dataset | IterableDataset) -> PreTrainedTokenizerBase:
    """The tokenizer that is named, the backbone's, or one trained on the corpus."""
    if name := options.tokenizer or options.backbone:
        check_one_encoder(name)
        tokenizer = load_tokenizer(name)
        tokenizer.model_max_length = options.max_length
        return tokenizer
    if isinstance(corpus, IterableDataset):
        texts: Sequence[str] = [row["text"] or "" for row in corpus.take(_TOKENIZER_ROWS)]
    else:
        texts = PassageTexts(corpus.select_columns("text"))
    size = _VOCABULARY if options.vocab_size is None else options.vocab_size
    return train_tokenizer(texts, size, options.max_length)


def _check_tokens(tokenizer: PreTrainedTokenizerBase, name: str, model: str, remedy: str) -> None:
    """Raise `InputError` where most tokens are others in a model: it would read other words than those of a text.

    Fewer, such as unused ones that were given a meaning, are said. A model may have no tokenizer of its own.
    """
    try:
        own = load_tokenizer(model).get_vocab()
    except InputError:
        return
    tokens = tokenizer.get_vocab()
    other = sum(own.get(token) != place for token, place in tokens.items())
    said = f"{other:,} of the {len(tokens):,} tokens of {name} are others in {model}, whose weights know its own"
    if 2 * other > len(tokens):
        raise InputError(f"{said}; {remedy}.")
    if other:
        logger.warning(f"{said}.")


def _model(method: Method, options: PretrainingOptions, tokenizer: PreTrainedTokenizerBase) -> BottleneckForPreTraining:
    """The model, from a checkpoint or from scratch, checked against tokenizer and length."""
    changes: dict[str, Any] = {
        "encoders": given_mapping(options.encoders, "encoders"),
        "decoders": given_mapping(options.decoders, "decoders"),
        **({} if options.bottleneck is None else {"bottleneck": options.bottleneck}),
    }
    try:
        if options.backbone is None:
            sizes = given_mapping(options.backbone_config, "backbone_config")
            sizes = {"vocab_size": vocabulary_size(tokenizer), "pad_token_id": tokenizer.pad_token_id, **sizes}
            config = method.config(backbone_config=sizes, **changes)
            _check_sizes(config, options, tokenizer)
            model = method.pretraining(config)
            check_dropout(model, "the backbone")
            return model
        model = start_from(method, options.backbone, changes)
        torch.nn.Module.float(model)  # as in finetune
    except OSError as error:
        raise InputError(f"No encoder can be loaded from {options.backbone!r}.") from error
    except (TypeError, ValueError) as error:
        raise InputError(first_line(error)) from error
    except Exception as error:  # libraries raise whatever they come to over a broken file, or sizes that are none
        if isinstance(error, InputError):
            raise
        if options.backbone is None:
            whole = " ".join(str(error).split())
            said = (first_line(error) if isinstance(error, KeyError) else whole).rstrip(".")
            raise InputError(f"No encoder can be made of this backbone_config: {said}.") from error
        raise InputError(f"Cannot load an encoder from {options.backbone}: {first_line(error)}") from error
    _check_sizes(model.config, options, tokenizer)
    check_dropout(model, options.backbone)
    return model


def _align_special_tokens(config: BottleneckConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """What the Trainer does otherwise, with a warning over every model."""
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if (token := getattr(tokenizer, name)) is not None:
            setattr(config, name, token)


def _check_sizes(config: BottleneckConfig, options: PretrainingOptions, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise `InputError` unless tokenizer and texts fit the backbone."""
    if (size := vocabulary_size(tokenizer)) > config.vocab_size:
        raise InputError(
            f"The tokenizer has {size} tokens but the backbone's vocab_size is {config.vocab_size}; "
            "use the tokenizer the backbone was trained with, or correct vocab_size."
        )
    positions = family_of(config.backbone).shape(config.backbone).positions
    if not 4 <= options.max_length <= positions:
        raise InputError(f"max_length is {options.max_length}; the backbone takes texts of 4 to {positions} tokens.")


def _generator(value: dict[str, Any] | str | None) -> dict[str, Any] | str | None:
    """A checkpoint's name, or a configuration, which flags give as JSON."""
    if value is None or (isinstance(value, str) and not value.lstrip().startswith("{")):
        return value
    sizes = given_mapping(value, "generator")
    try:
        check_keys("generator", sizes, "electra")
    except ValueError as error:
        raise InputError(str(error)) from error
    return sizes


def _use_workers(training: TrainingArguments, streaming: bool) -> None:
    """Processes that make batches while the GPU computes, unless their number was chosen: a stream is read by one."""
    most = 1 if streaming else _WORKERS
    training.dataloader_num_workers = training.dataloader_num_workers or max(1, min(most, (os.cpu_count() or 1) - 1))
