"""Pre-training from a corpus to a checkpoint: everything between the options and the Trainer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from transformers import AutoTokenizer, IntervalStrategy, PreTrainedTokenizerBase, TrainingArguments, set_seed
from transformers.models.auto import CONFIG_MAPPING
from transformers.utils import logging

from hf_dense.data.corpus import load_passages, stream_passages
from hf_dense.data.tokenizers import train_tokenizer
from hf_dense.errors import InputError
from hf_dense.methods import METHODS, Method, get_method
from hf_dense.modeling.bottleneck_backbones import family_of
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.corpus import NOTHING_LEFT, add_sources, hold_out, tokenize
from hf_dense.pretraining.generator import add_generator
from hf_dense.pretraining.keywords import Keywords
from hf_dense.pretraining.start import start_from
from hf_dense.pretraining.stream import PassageStream
from hf_dense.pretraining.trainer import PreTrainer
from hf_dense.pretraining.vocabulary import Vocabulary
from hf_dense.storage.checkpoints import checkpoint_to_resume

_TOKENIZER_ROWS = 100_000  # at the head of a stream

logger = logging.get_logger("transformers")


@dataclass
class PretrainingOptions:
    """What to pre-train, on what; how is `transformers.TrainingArguments`' business."""

    method: str = field(metadata={"help": f"one of: {', '.join(METHODS)}"})
    corpus: str = field(metadata={"help": "dataset directory, .jsonl/.parquet/.csv/.txt file, or Hub dataset"})
    backbone: str | None = field(
        default=None, metadata={"help": "encoder or pre-training checkpoint to start from; none starts from scratch"}
    )
    backbone_config: dict | str | None = field(  # type: ignore[type-arg]
        default=None, metadata={"help": "from scratch: the encoder's configuration, e.g. {hidden_size: 128}"}
    )
    tokenizer: str | None = field(
        default=None, metadata={"help": "directory or Hub id; default the backbone's, or one trained on the corpus"}
    )
    vocab_size: int = field(default=30522, metadata={"help": "tokens of a tokenizer trained on the corpus"})
    text_column: str = field(default="text", metadata={"help": "column of the corpus that holds the passage"})
    streaming: bool = field(
        default=False,
        metadata={"help": "read the corpus while training, instead of tokenizing it to disk first; needs --max_steps"},
    )
    max_length: int = field(default=128, metadata={"help": "longest text in tokens, special tokens included"})
    held_out: float = field(default=0.01, metadata={"help": "fraction of documents held out for the evaluation loss"})
    encoders: dict | str | None = field(  # type: ignore[type-arg]
        default=None, metadata={"help": "changes to the method's encoders, e.g. {encoder: {view: {rate: 0.4}}}"}
    )
    decoders: dict | str | None = field(  # type: ignore[type-arg]
        default=None, metadata={"help": "changes to the method's decoders, e.g. {decoder: {layers: 1}}"}
    )
    keywords: str | None = field(
        default=None,
        metadata={"help": "master: table of word counts (hf-dense data keywords); default the corpus's own"},
    )
    chunk: int | None = field(
        default=None, metadata={"help": "contrasting methods: texts read at once, for batches that memory cannot hold"}
    )
    generator: dict | str | None = field(  # type: ignore[type-arg]
        default=None, metadata={"help": "simlm: masked language model that fills in masks, or a random one's config"}
    )
    generator_weight: float = field(default=0.0, metadata={"help": "simlm: weight of the generator's own loss"})


def pretrain(options: PretrainingOptions, training: TrainingArguments) -> PreTrainer:
    """Pre-train an encoder and save it, with its decoders and tokenizer, in `training.output_dir`.

    Args:
        options: method, corpus, backbone, tokenizer.
        training: the Trainer's arguments. `resume_from_checkpoint` may be a checkpoint, or `true` for the newest
            complete one in the output directory; `push_to_hub` publishes the result.

    Returns:
        The trainer after training: `trainer.model`, `trainer.state.log_history`.

    Raises:
        InputError: something given cannot work; nothing has been written then.
    """
    method = get_method(options.method)
    assert training.output_dir is not None  # TrainingArguments fills it in
    resume = checkpoint_to_resume(training.resume_from_checkpoint, training.output_dir, options.method)
    set_seed(training.seed)
    with training.main_process_first(local=False, desc="corpus and tokenizer"):
        corpus = (stream_passages if options.streaming else load_passages)(options.corpus, options.text_column)
        tokenizer = _tokenizer(options, corpus, resume)
        vocabulary = Vocabulary.of(tokenizer)
        model = _model(method, options, tokenizer)
        add_generator(model, _generator(options.generator), options.generator_weight)
        rows, held = _rows(options, corpus, model.config, tokenizer, training.seed)
        keywords = _keywords(options, rows, vocabulary) if model.config.needs_keywords else None
    if held is None and training.eval_strategy != "no":
        logger.warning("No document is held out, so there is no evaluation loss; raise held_out to get one.")
        training.eval_strategy = IntervalStrategy.NO
    training.remove_unused_columns = False
    training.dataloader_pin_memory &= torch.cuda.is_available()
    _use_bf16_where_present(training)
    trainer = PreTrainer(
        model=model,
        args=training,
        collator=ViewCollator(model.config, vocabulary, options.max_length, training.seed, keywords),
        train_dataset=rows,
        eval_dataset=held,
        chunk=options.chunk,
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=resume)
    if held is not None:
        trainer.evaluate()
    trainer.save_model()
    trainer.save_state()
    if training.push_to_hub:
        trainer.push_to_hub(tags=["hf_dense", options.method, "dense-retrieval"])
    return trainer


def _rows(
    options: PretrainingOptions,
    corpus: Dataset | IterableDataset,
    config: BottleneckConfig,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
) -> tuple[Dataset | PassageStream, Dataset | None]:
    """What is trained on, and the tokenized rows that are held out, if any are."""
    if isinstance(corpus, IterableDataset):
        stream = PassageStream(corpus, config.sources, options.held_out, seed)
        held = stream.held_out()
        return stream, tokenize(held, tokenizer) or None if held else None
    parts = hold_out(corpus, options.held_out, seed)
    needed = config.sources, config.siblings
    rows, held = (tokenize(add_sources(part, *needed), tokenizer) if part else None for part in parts)
    if not rows:
        raise InputError(f"No row of {options.corpus} can be used: {NOTHING_LEFT}")
    return rows, held or None


def _keywords(options: PretrainingOptions, rows: Dataset | PassageStream, vocabulary: Vocabulary) -> Keywords:
    """Word counts from the table that is named, or of the rows that are trained on."""
    if options.keywords is not None:
        return Keywords.load(options.keywords, vocabulary)
    if isinstance(rows, PassageStream):
        raise InputError("A streamed corpus is not counted in passing; name its word counts with --keywords.")
    return Keywords.of(rows["text"], vocabulary)


def _tokenizer(
    options: PretrainingOptions, corpus: Dataset | IterableDataset, resume: str | None
) -> PreTrainedTokenizerBase:
    """The resumed run's tokenizer, the one named, the backbone's, or one trained on the corpus."""
    name = resume or options.tokenizer or options.backbone
    if name is None:
        if isinstance(corpus, IterableDataset):
            texts = [row["text"] for row in corpus.take(_TOKENIZER_ROWS)]
        else:
            texts = corpus["text"][:]
        tokenizer = train_tokenizer(texts, options.vocab_size, options.max_length)
    else:
        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise InputError(f"No tokenizer can be loaded from {name!r}; name one with --tokenizer.") from error
    tokenizer.model_max_length = options.max_length
    return tokenizer


def _model(method: Method, options: PretrainingOptions, tokenizer: PreTrainedTokenizerBase) -> BottleneckForPreTraining:
    """The model, from a checkpoint or from scratch, checked against tokenizer and length."""
    changes: dict[str, Any] = {
        "encoders": _mapping(options.encoders, "encoders"),
        "decoders": _mapping(options.decoders, "decoders"),
    }
    try:
        if options.backbone is None:
            sizes = _mapping(options.backbone_config, "backbone_config") or {}
            _check_names(sizes)
            sizes = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, **sizes}
            config = method.config(backbone_config=sizes, **changes)
            _check_sizes(config, options, tokenizer)
            return method.pretraining(config)
        model = start_from(method, options.backbone, changes)
    except OSError as error:
        raise InputError(f"No encoder can be loaded from {options.backbone!r}.") from error
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    _check_sizes(model.config, options, tokenizer)
    return model


def _check_sizes(config: BottleneckConfig, options: PretrainingOptions, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise `InputError` unless tokenizer and texts fit the backbone."""
    if len(tokenizer) > config.vocab_size:
        raise InputError(
            f"The tokenizer has {len(tokenizer)} tokens but the backbone's vocab_size is {config.vocab_size}; "
            "use the tokenizer the backbone was trained with, or correct vocab_size."
        )
    positions = family_of(config.backbone).shape(config.backbone).positions
    if not 4 <= options.max_length <= positions:
        raise InputError(f"max_length is {options.max_length}; the backbone takes texts of 4 to {positions} tokens.")


def _check_names(sizes: dict[str, Any]) -> None:
    """Raise `InputError` for a key of `backbone_config` that the backbone's configuration does not have."""
    kind = sizes.get("model_type", "bert")
    known = set(CONFIG_MAPPING[kind]().to_dict()) if kind in CONFIG_MAPPING else set(sizes)
    unknown = sorted(set(sizes) - known)
    if unknown:
        raise InputError(f"backbone_config has the key {unknown[0]!r}, which a {kind!r} configuration does not have.")


def _mapping(value: dict[str, Any] | str | None, name: str) -> dict[str, Any] | None:
    """An option that is a mapping, which flags give as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise InputError(f"--{name} must be JSON such as '{{\"a\": 1}}', not {value!r}.") from error
    if value is not None and not isinstance(value, dict):
        raise InputError(f"--{name} must be a mapping, not {value!r}.")
    return value


def _generator(value: dict[str, Any] | str | None) -> dict[str, Any] | str | None:
    """A checkpoint's name, or a configuration, which flags give as JSON."""
    return _mapping(value, "generator") if isinstance(value, str) and value.lstrip().startswith("{") else value


def _use_bf16_where_present(training: TrainingArguments) -> None:
    """bfloat16 on a GPU that has it, unless a precision was chosen."""
    if torch.cuda.is_available() and torch.cuda.is_bf16_supported() and not (training.fp16 or training.use_cpu):
        training.bf16 = True
        training.mixed_precision = "bf16"  # what the Trainer reads; TrainingArguments derived it before this point
