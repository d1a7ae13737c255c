"""Training the language model that writes queries or continuations, from labelled pairs or from plain text."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    set_seed,
)

from hf_dense.data.generation import check_template, fingerprint_language_model, load_language_model
from hf_dense.data.tokenizers import train_tokenizer
from hf_dense.errors import InputError
from hf_dense.storage.checkpoints import decisive, newest_checkpoint, train
from hf_dense.storage.fingerprints import fingerprint_rows
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import is_main_process
from hf_dense.storage.training_values import check_training

_LENGTHS = {"input_length": 256, "output_length": 48}  # tokens of a passage or text that are read, of a query
_COLUMNS = {"queries": ("passage", "query"), "continuation": ("text",)}

SMALL: dict[str, dict[str, Any]] = {
    "queries": {
        "model_type": "t5",
        "d_model": 256,
        "d_ff": 1024,
        "d_kv": 64,
        "num_layers": 4,
        "num_heads": 4,
        "feed_forward_proj": "gated-gelu",
    },
    "continuation": {"model_type": "gpt2", "n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 512},
}


def train_generator(
    rows: Dataset,
    out: str | os.PathLike[str] | Output,
    training: Seq2SeqTrainingArguments,
    *,
    source: str = "texts",
    base: str | None = None,
    config: dict[str, Any] | None = None,
    template: str = "{text}",
    vocab_size: int = 8000,
) -> Path:
    """Train a generator of queries or continuations and write it, with its tokenizer, to the directory `out`.

    A run that was killed goes on from its last checkpoint.

    Args:
        rows: `passage` and `query` to train one of queries; `text` alone to train one of continuations.
        training: the Trainer's arguments; `output_dir` has no part.
        source: path or Hub id of what the rows were read from.
        base: checkpoint to start from; None starts a small one from scratch, with a tokenizer trained on the rows.
        config: from scratch: the model's configuration, over that of `SMALL`.
        template: of queries: the prompt, with `{text}` where the passage goes; to be used for generating too.
        vocab_size: tokens of a tokenizer trained on the rows.

    Returns:
        The directory.

    Raises:
        InputError: there are no rows, a column is missing, the template has no place for the passage, the base cannot
            be loaded, or see `Output.stage`.
    """
    kind = "queries" if "query" in rows.column_names else "continuation"
    needed = _COLUMNS[kind]
    _check_rows(rows, needed)
    check_template(template)
    check_training(training)
    settings = {"kind": kind, "config": config, "template": template, "vocab_size": vocab_size, **_LENGTHS}
    sources = {"rows": Source(source, fingerprint_rows(rows, needed))}
    set_seed(training.seed)
    if base:
        model, tokenizer = load_language_model(base)
        _check_kind(model, kind, base)
        sources["base"] = Source(base, fingerprint_language_model(model, tokenizer))
    settings |= decisive(training)
    with Output.of(out).stage("generator", settings, sources, seed=training.seed, resumable=True) as work:
        if not work.done:
            if not base:
                texts = [text for name in needed for text in rows[name]]
                tokenizer = train_tokenizer(texts, vocab_size, max(_LENGTHS.values()))
                model = _from_scratch(kind, config or {}, tokenizer)
            trainer = _trainer(rows, model, tokenizer, training, work.pieces, template)
            train(trainer, newest_checkpoint(work.pieces))
            work.facts["counts"] = {"rows": len(rows), "steps": trainer.state.global_step}
            if is_main_process():
                model.save_pretrained(work.result)
                tokenizer.save_pretrained(work.result)
    return Output.of(out).path


def _check_rows(rows: Dataset, needed: Sequence[str]) -> None:
    missing = [name for name in needed if name not in rows.column_names]
    if missing or not len(rows):
        what = f"the column {missing[0]!r}" if missing else "any rows"
        raise InputError(f"There is nothing to train a generator on: the data lack {what}.")


def _check_kind(model: PreTrainedModel, kind: str, base: str) -> None:
    if model.config.is_encoder_decoder != (kind == "queries"):
        wanted = "an encoder-decoder (T5, BART)" if kind == "queries" else "a causal language model (GPT-2, ...)"
        raise InputError(f"To write {kind} give {wanted}; {base} is of another kind.")


def _trainer(
    rows: Dataset,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    training: Seq2SeqTrainingArguments,
    checkpoints: Path,
    template: str,
) -> Trainer:
    """The Trainer of an encoder-decoder on passages and queries, or of a causal model on texts."""
    training = copy.copy(training)
    training.output_dir = str(checkpoints)
    training.dataloader_pin_memory &= torch.cuda.is_available()  # which torch warns of otherwise
    pairs = model.config.is_encoder_decoder

    def encode(batch: dict[str, list[str]]) -> dict[str, Any]:
        if pairs:
            return _pairs(batch, tokenizer, template)
        return {"input_ids": _ids(tokenizer, batch["text"])}

    data = rows.map(encode, batched=True, remove_columns=rows.column_names, desc="Tokenizing")
    collator: Any = (
        DataCollatorForSeq2Seq(tokenizer, model=model)
        if pairs
        else DataCollatorForLanguageModeling(tokenizer, mlm=False)
    )
    chosen: Any = Seq2SeqTrainer if pairs else Trainer
    trainer: Trainer = chosen(
        model=model, args=training, train_dataset=data, data_collator=collator, processing_class=tokenizer
    )
    return trainer


def _from_scratch(kind: str, changes: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """A small model; texts begin with [CLS] and end with [SEP], as the tokenizer's do."""
    values = {**SMALL[kind], **changes}
    special = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
    }
    if kind == "queries":
        special["decoder_start_token_id"] = tokenizer.cls_token_id
    config = CONFIG_MAPPING[values.pop("model_type")](**{**special, **values})
    auto: Any = AutoModelForSeq2SeqLM if kind == "queries" else AutoModelForCausalLM
    model: PreTrainedModel = auto.from_config(config)
    return model


def _ids(tokenizer: PreTrainedTokenizerBase, texts: list[str], read: str = "input_length") -> Any:
    return tokenizer(texts, truncation=True, max_length=_LENGTHS[read], verbose=False)["input_ids"]


def _pairs(batch: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase, template: str) -> dict[str, Any]:
    """Prompts and queries as token ids; a query ends with the token that ends texts, and does not begin with one."""
    prompts = [template.format(text=passage, title="") for passage in batch["passage"]]
    first = tokenizer.cls_token_id
    queries = [ids[1:] if ids and ids[0] == first else ids for ids in _ids(tokenizer, batch["query"], "output_length")]
    return {"input_ids": _ids(tokenizer, prompts), "labels": queries}
