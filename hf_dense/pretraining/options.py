"""The options of a pre-training; nothing heavy is imported, so that help is there at once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hf_dense.errors import InputError
from hf_dense.methods import METHODS

if TYPE_CHECKING:
    from transformers import TrainingArguments


@dataclass
class PretrainingOptions:
    """What to pre-train, on what; how is `transformers.TrainingArguments`' business."""

    method: str = field(metadata={"help": f"one of: {', '.join(METHODS)}"})
    corpus: str = field(metadata={"help": "dataset directory, .jsonl/.parquet/.csv/.txt file, or Hub dataset"})
    backbone: str | None = field(
        default=None, metadata={"help": "encoder or pre-training checkpoint to start from; none starts from scratch"}
    )
    backbone_config: dict | str | None = field(  # type: ignore[type-arg]
        default=None, metadata={"help": "from scratch: the encoder's configuration, such as '{\"hidden_size\": 128}'"}
    )
    tokenizer: str | None = field(
        default=None, metadata={"help": "directory or Hub id; default the backbone's, or one trained on the corpus"}
    )
    vocab_size: int | None = field(
        default=None, metadata={"help": "tokens of a tokenizer trained on the corpus (default: 30522)"}
    )
    text_column: str = field(default="text", metadata={"help": "column of the corpus that holds the passage"})
    streaming: bool = field(
        default=False,
        metadata={"help": "read the corpus while training, instead of tokenizing it to disk first; needs --max_steps"},
    )
    queries_per_passage: int | None = field(
        default=None,
        metadata={"help": "generated queries of a passage that are read, the first of its list; default all"},
    )
    max_length: int = field(default=128, metadata={"help": "longest text in tokens, special tokens included"})
    held_out: float = field(default=0.01, metadata={"help": "fraction of documents held out for the evaluation loss"})
    encoders: dict | str | None = field(  # type: ignore[type-arg]
        default=None,
        metadata={"help": 'changes to the method\'s encoders, such as \'{"encoder": {"view": {"rate": 0.4}}}\''},
    )
    decoders: dict | str | None = field(  # type: ignore[type-arg]
        default=None, metadata={"help": 'changes to the method\'s decoders, such as \'{"decoder": {"layers": 1}}\''}
    )
    bottleneck: str | None = field(
        default=None, metadata={"help": "a text's vector: cls, or mean of the states; default the backbone's, or cls"}
    )
    keywords: str | None = field(
        default=None,
        metadata={"help": "master: table of word counts (hf-dense data keywords); default the corpus's own"},
    )
    chunk: int | None = field(
        default=None, metadata={"help": "contrasting methods: texts read at once, for batches that memory cannot hold"}
    )
    group_by_length: bool | None = field(
        default=None,
        metadata={"help": "give a batch texts of similar lengths; default true, but false where texts are contrasted"},
    )
    generator: dict | str | None = field(  # type: ignore[type-arg]
        default=None, metadata={"help": "simlm: masked language model that fills in masks, or a random one's config"}
    )
    generator_weight: float | None = field(
        default=None, metadata={"help": "simlm: weight of the generator's own loss; default the checkpoint's, or 0"}
    )
    decoder_learning_rate: float | None = field(
        default=None,
        metadata={
            "help": "peak rate of decoders and vocabulary head; default the learning_rate, which is the encoder's: a "
            "ready one wants a lower rate than parts that start from nothing"
        },
    )
    muon_learning_rate: float | None = field(
        default=None,
        metadata={"help": "peak rate of Muon, which then moves the matrices of layers; default AdamW moves all"},
    )
    probe: str | None = field(
        default=None,
        metadata={
            "help": "COLLECTION[:SPLIT] (split: dev) that is searched while training; nDCG@10 is logged with the losses"
        },
    )
    probe_steps: int = field(default=500, metadata={"help": "optimisation steps from one probe to the next"})
    probe_patience: int | None = field(
        default=None,
        metadata={"help": "stop when so many probes brought no gain, after there has been one; default never"},
    )
    probe_keep_best: bool = field(
        default=False, metadata={"help": "save the weights of the best probe in place of the last ones"}
    )
    precision: str = field(
        default="auto",
        metadata={"help": "fp32, bf16 or fp16; auto is bf16 where the machine is faster by it, as the log says"},
    )
    float32_matmul_precision: str = field(
        default="highest", metadata={"help": "of products of float32 matrices, as torch has it: highest, high, medium"}
    )
    overwrite: bool = field(
        default=False, metadata={"help": "replace what hf_dense wrote there from other inputs or settings"}
    )
    license: str = field(default="other", metadata={"help": "of the weights, for the card"})


def check_options(options: PretrainingOptions, training: TrainingArguments) -> None:
    """Raise `InputError` for an option that another one would set aside."""
    if options.backbone and options.backbone_config is not None:
        raise InputError(
            f"backbone_config is of an encoder from scratch, but this starts from {options.backbone}; leave it out, "
            "or say 'backbone: null' in a file (--config) behind the one that names the backbone."
        )
    if options.vocab_size is not None and (ready := options.tokenizer or options.backbone):
        raise InputError(
            f"vocab_size is of a tokenizer that is trained on the corpus, but that of {ready} is used; leave it out."
        )
    if options.muon_learning_rate is not None:
        _check_muon(options.muon_learning_rate, options, training)
    if options.probe_keep_best and training.load_best_model_at_end:
        raise InputError(
            "probe_keep_best and load_best_model_at_end both choose the weights to save, by the probe and by the "
            "held-out loss; leave one of them out."
        )


def _check_muon(rate: float, options: PretrainingOptions, training: TrainingArguments) -> None:
    """Raise `InputError` for a rate that Muon cannot have, or for what does not go with it."""
    if not 0 < rate <= 1:
        raise InputError(f"muon_learning_rate is {rate}; it must be above 0, and no training learns at a rate above 1.")
    if options.decoder_learning_rate is not None:
        raise InputError("muon_learning_rate is the encoder's and the decoders'; leave decoder_learning_rate out.")
    if training.optim not in ("adamw_torch", "adamw_torch_fused"):
        optimizer = getattr(training.optim, "value", training.optim)
        raise InputError(
            f"muon_learning_rate has AdamW beside Muon, and --optim is {optimizer}; leave one of them out."
        )
    if "fp16" in (options.precision, training.mixed_precision) or training.fp16:
        raise InputError("Muon knows nothing of losses that fp16 scales; choose bf16 or fp32 for muon_learning_rate.")


def given_mapping(value: dict[str, Any] | str | None, name: str) -> dict[str, Any]:
    """An option that is a mapping, which flags give as JSON; nothing where it is not given.

    Raises:
        InputError: it is no mapping.
    """
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        raise InputError(f"--{name} must be JSON such as '{{\"a\": 1}}', not {value!r}.") from error
    if found is not None and not isinstance(found, dict):
        raise InputError(f"--{name} must be a mapping, not {value!r}.")
    return found or {}
