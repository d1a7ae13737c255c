"""Training the language model that writes queries or continuations, from labelled pairs or from plain text."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

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

from hf_dense.data.generation import load_writer
from hf_dense.data.tokenizers import train_tokenizer
from hf_dense.errors import InputError
from hf_dense.storage.checkpoints import newest_checkpoint
from hf_dense.storage.legacy import atomic_directory, begin_or_resume, check_replaceable

_DECISIVE = ("max_steps", "num_train_epochs", "per_device_train_batch_size", "learning_rate", "seed")

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
    training: Seq2SeqTrainingArguments,
    *,
    base: str | None = None,
    config: dict[str, Any] | None = None,
    template: str = "{text}",
    vocab_size: int = 8000,
    input_length: int = 256,
    output_length: int = 48,
) -> Path:
    """Train a generator and save it, with its tokenizer, in `training.output_dir`.

    Checkpoints stand in `<output_dir>.partial` until training is done; a run that was killed goes on from the last.

    Args:
        rows: `passage` and `query` to train one of queries; `text` alone to train one of continuations.
        training: the Trainer's arguments; `output_dir` is complete or absent.
        base: checkpoint to start from; None starts a small one from scratch, with a tokenizer trained on the rows.
        config: from scratch: the model's configuration, over that of `SMALL`.
        template: of queries: the prompt, with `{text}` where the passage goes; to be used for generating too.
        vocab_size: tokens of a tokenizer trained on the rows.
        input_length: tokens of a passage (or of a text to continue) that are read.
        output_length: tokens of a query that are learnt.

    Returns:
        The output directory.

    Raises:
        InputError: there are no rows, a column is missing, the base cannot be loaded, the output directory holds
            something else, or an unfinished run of other settings stands beside it.
    """
    assert training.output_dir is not None
    out, work = Path(training.output_dir), Path(f"{training.output_dir}.partial")
    check_replaceable(out, marker="config.json")
    kind = "queries" if "query" in rows.column_names else "continuation"
    needed = ("passage", "query") if kind == "queries" else ("text",)
    missing = [name for name in needed if name not in rows.column_names]
    if missing or not len(rows):
        what = f"the column {missing[0]!r}" if missing else "any rows"
        raise InputError(f"There is nothing to train a generator on: the data lack {what}.")
    settings = {
        "base": base,
        "config": config,
        "template": template,
        "vocab_size": vocab_size,
        "input_length": input_length,
        "output_length": output_length,
        "rows": len(rows),
        "first row": [rows[0][name][:200] for name in needed],
        **{name: getattr(training, name) for name in _DECISIVE},
    }
    set_seed(training.seed)
    if base:
        model, tokenizer = load_writer(base)
    else:
        texts = [text for name in needed for text in rows[name]]
        tokenizer = train_tokenizer(texts, vocab_size, max(input_length, output_length))
        model = _from_scratch(kind, config or {}, tokenizer)
    if model.config.is_encoder_decoder != (kind == "queries"):
        wanted = "an encoder-decoder (T5, BART)" if kind == "queries" else "a causal language model (GPT-2, ...)"
        raise InputError(f"To write {kind} give {wanted}; {base} is of another kind.")

    def encode(batch: dict[str, list[str]]) -> dict[str, Any]:
        if kind == "continuation":
            return {"input_ids": _ids(tokenizer, batch["text"], input_length)}
        return _pairs(batch, tokenizer, template, input_length, output_length)

    begin_or_resume(work, settings)
    training.output_dir = str(work)
    data = rows.map(encode, batched=True, remove_columns=rows.column_names, desc="Tokenizing")
    collator: Any = (
        DataCollatorForSeq2Seq(tokenizer, model=model)
        if kind == "queries"
        else DataCollatorForLanguageModeling(tokenizer, mlm=False)
    )
    chosen: Any = Seq2SeqTrainer if kind == "queries" else Trainer
    trainer = chosen(model=model, args=training, train_dataset=data, data_collator=collator, processing_class=tokenizer)
    trainer.train(resume_from_checkpoint=newest_checkpoint(work))
    if trainer.is_world_process_zero():
        with atomic_directory(out) as finished:
            trainer.save_model(str(finished))
        shutil.rmtree(work)
    return out


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


def _ids(tokenizer: PreTrainedTokenizerBase, texts: list[str], length: int) -> Any:
    return tokenizer(texts, truncation=True, max_length=length, verbose=False)["input_ids"]


def _pairs(
    batch: dict[str, list[str]],
    tokenizer: PreTrainedTokenizerBase,
    template: str,
    input_length: int,
    output_length: int,
) -> dict[str, Any]:
    """Prompts and queries as token ids; a query ends with the token that ends texts, and does not begin with one."""
    prompts = [template.format(text=passage, title="") for passage in batch["passage"]]
    first = tokenizer.cls_token_id
    queries = [ids[1:] if ids and ids[0] == first else ids for ids in _ids(tokenizer, batch["query"], output_length)]
    return {"input_ids": _ids(tokenizer, prompts, input_length), "labels": queries}
