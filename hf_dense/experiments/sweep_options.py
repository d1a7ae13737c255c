"""The options of a sweep; nothing heavy is imported, so that help is there at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SWEEPS: Final = {
    "masking": "share of tokens masked",
    "steps": "pre-training steps",
    "fraction": "share of the training queries",
    "queries": "training queries",
}
FEW: Final = ("fraction", "queries")  # each has a second line, without pre-training


@dataclass
class SweepOptions:
    """What is varied, and what stays the same."""

    sweep: str = field(
        metadata={
            "help": "what is varied: masking (share of tokens masked), steps (of pre-training, 0 for none), fraction "
            "(share of the training queries) or queries (how many of them, 0 for no fine-tuning), these two with and "
            "without pre-training"
        }
    )
    values: list[float] = field(metadata={"help": "its values; all others are compared with the first"})
    collection: str = field(metadata={"help": "directory with corpus, queries and judgements for train and --split"})
    out: str = field(metadata={"help": "receives sweep.md, sweep.png and sweep.json; goes on where it stopped"})
    method: str | None = field(default=None, metadata={"help": "pre-training method"})
    method_options: dict | str | None = field(  # type: ignore[type-arg]
        default=None,
        metadata={"help": 'more options of hf-dense pretrain, such as \'{"decoders": {"decoder": {"layers": 1}}}\''},
    )
    part: str = field(default="decoder", metadata={"help": "masking: whose tokens, encoder or decoder"})
    model: str | None = field(
        default=None, metadata={"help": "fraction, queries: pre-trained encoder or checkpoint, in place of --method"}
    )
    backbone: str | None = field(
        default=None, metadata={"help": "encoder that pre-training starts from; none starts from random weights"}
    )
    hidden: int = field(default=128, metadata={"help": "from random weights: width of the encoder"})
    layers: int = field(default=2, metadata={"help": "from random weights: its number of layers"})
    vocabulary: int = field(default=4000, metadata={"help": "from random weights: tokens, trained on the corpus"})
    max_length: int = field(default=64, metadata={"help": "longest text in tokens, special tokens included"})
    similarity: str = field(default="cosine", metadata={"help": "dot or cosine"})
    pretraining: dict | str | None = field(  # type: ignore[type-arg]
        default=None,
        metadata={"help": "changes to the TrainingArguments of pre-training, such as '{\"max_steps\": 10000}'"},
    )
    finetuning: dict | str | None = field(  # type: ignore[type-arg]
        default=None, metadata={"help": "changes to those of fine-tuning, such as '{\"temperature\": 0.02}'"}
    )
    split: str = field(default="dev", metadata={"help": "queries that are measured"})
    metric: str = field(
        default="mrr@10", metadata={"help": "metric that is drawn and tested: ndcg@10, mrr@10 or recall@100"}
    )
    seeds: list[int] = field(default_factory=lambda: [0], metadata={"help": "every value is run with each"})
    side_by_side: int = field(default=1, metadata={"help": "runs at once, in processes of one thread each"})
    overwrite: bool = field(default=False, metadata={"help": "replace what was made from other inputs or settings"})


@dataclass
class AblationOptions:
    """What an ablation takes beside its variants, and what all of them share."""

    out: str = field(metadata={"help": "receives sweep.md, sweep.png and sweep.json; goes on where it stopped"})
    collection: str = field(
        default="", metadata={"help": "that all are fine-tuned and measured on (default: the fine-tuning's)"}
    )
    split: str = field(default="dev", metadata={"help": "queries that are measured"})
    metric: str = field(default="mrr@10", metadata={"help": "that is tested: ndcg@10, mrr@10 or recall@100"})
    seeds: list[int] = field(default_factory=lambda: [0], metadata={"help": "every variant is run with each"})
    side_by_side: int = field(default=1, metadata={"help": "trials at once, in processes of one thread each"})
    overwrite: bool = field(default=False, metadata={"help": "replace what was made from other inputs or settings"})
