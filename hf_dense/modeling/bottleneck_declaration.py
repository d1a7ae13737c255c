"""The vocabulary in which a pre-training method is declared: views of a text, encoders and decoders.

Every value is checked when it is made, and a message lists what is allowed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields

_ALLOWED: dict[str, tuple[str, ...]] = {
    "View.select": ("none", "random", "superset", "complement", "keywords:inverse_count", "keywords:tfidf"),
    "View.fill": ("mask", "bert", "generator"),
    "View.labels": ("hidden", "every", "next", "replaced"),
    "Bag.target": ("mean", "sum"),
    "Bag.head": ("mlm", "own"),
    "Decoder.stream": ("inputs", "bottleneck", "bottleneck_embedded"),
    "Decoder.entry": ("first", "cross_attention"),
    "Decoder.norm": ("backbone", "pre", "gpt2"),
    "Decoder.head": ("mlm", "tied"),
    "Decoder.init": ("random", "last_layers"),
}
# The columns a derived source comes from.
_COLUMNS = {
    "titled": ("title", "text"),
    "first_half": ("text",),
    "second_half": ("text",),
    "query": ("queries",),
}
_TYPES: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float), "bool": bool}
_ATTENTION = re.compile(r"full|causal(:[1-9]\d*)?|sampled:0?\.\d+")
_INPUTS = re.compile(r"embeddings|own_embeddings|hidden:(half|\d+)")


def _check_fields(spec: View | Bag | Encoder | Decoder) -> None:
    """Raise `ValueError` where a field is not of its type or not one of its values."""
    for item in fields(spec):
        name, value = f"{type(spec).__name__}.{item.name}", getattr(spec, item.name)
        kind = _TYPES.get(str(item.type))
        if kind is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            raise ValueError(f"{name} is {value!r}; it must be of type {item.type}.")
        if name in _ALLOWED and value not in _ALLOWED[name]:
            raise ValueError(f"{name} is {value!r}; allowed: {', '.join(_ALLOWED[name])}.")
        if item.name in ("weight", "contrast") and not 0 <= value < math.inf:
            raise ValueError(f"{name} is {value}; a loss weight is finite and not negative.")


@dataclass(frozen=True)
class View:
    """How a row of the corpus is rendered for one encoder or decoder.

    Args:
        sources: columns read. Several columns make several rows of the batch per corpus row, interleaved
            (row 2k and row 2k+1 come from one corpus row): CoT-MAE's encoder reads `("text", "neighbour")` and its
            decoder `("neighbour", "text")`, so each row is rebuilt from its partner's bottleneck. Besides columns:
            `titled` (title [SEP] text, the text with token type 1), `first_half` and `second_half` of the text, `query`
            (one of the column `queries`, drawn in every epoch) and `queries` (all of them, with [SEP] between). `a+b`
            draws one of several in every epoch, `a:2+b:1` by weight.
        select: hidden tokens: `none`; `random` whole words; of a decoder, a `superset` of what its encoder's view
            hides, or the `complement` (exactly the other tokens); `keywords:tfidf`, whole words drawn by TF-IDF
            (MASTER's paper), or `keywords:inverse_count`, by one over their count in the corpus (its released code).
        rate: fraction of tokens hidden, special tokens not counted; a complement's follows from its encoder's.
        fill: what stands at hidden tokens: `mask` (always [MASK]), `bert` (80 % [MASK], 10 % random, 10 % unchanged),
            or what a `generator` draws for it (SimLM).
        labels: scored positions: `hidden` tokens, `every` token, or the `next` token of every position; `replaced`: for
            every token, whether the generator put another one in its place (ELECTRA's task, an ablation of SimLM).
    """

    sources: tuple[str, ...] = ("text",)
    select: str = "random"
    rate: float = 0.30
    fill: str = "bert"
    labels: str = "hidden"

    def __post_init__(self) -> None:
        sources = (self.sources,) if isinstance(self.sources, str) else tuple(self.sources)
        object.__setattr__(self, "sources", sources)
        _check_fields(self)
        if not self.sources or not all(isinstance(source, str) for source in sources):
            raise ValueError(f"View.sources is {self.sources!r}; name at least one column, such as ('text',).")
        if not 0.0 < self.rate <= 1.0:
            raise ValueError(f"View.rate is {self.rate}; it is a fraction of tokens, above 0 and at most 1.")
        for part in (part for source in self.sources for part in parse_source(source)):
            if not part or not re.fullmatch(r"\w+", part):
                raise ValueError(f"View.sources has {part!r}; a source is a column, 'a+b', or 'a:2+b:1' with weights.")
        if self.labels == "replaced" and self.fill != "generator":
            raise ValueError("View.labels='replaced' asks which tokens a generator replaced; set fill='generator'.")
        if self.select == "none" and self.labels == "hidden":
            raise ValueError("View.labels='hidden' with select='none' scores nothing; use 'every' or 'next'.")

    @property
    def columns(self) -> list[str]:
        """The corpus columns it reads."""
        parts = [part for source in self.sources for part in parse_source(source)]
        return list(dict.fromkeys(column for part in parts for column in _COLUMNS.get(part, (part,))))


def parse_source(source: str) -> dict[str, float]:
    """What a source draws from, and the probability of each.

    >>> parse_source("neighbour")
    {'neighbour': 1.0}
    >>> parse_source("neighbour:3+query:1")
    {'neighbour': 0.75, 'query': 0.25}

    Raises:
        ValueError: a weight is not a positive number.
    """
    weights: dict[str, float] = {}
    for part in source.split("+"):
        name, _, weight = part.partition(":")
        if not re.fullmatch(r"|\d+(\.\d+)?", weight) or (weight and float(weight) <= 0):
            raise ValueError(f"The source {source!r} gives {name!r} the weight {weight!r}; it is a positive number.")
        weights[name] = float(weight or 1)
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


@dataclass(frozen=True)
class Bag:
    """The bag-of-words loss (DupMAE): the passage's words from the encoder's states, without their order.

    Every position scores the vocabulary; a word's score is its greatest over the positions.

    Args:
        weight: weight of the loss in the sum.
        target: `mean`: every distinct token counts one over the number of tokens (released code), or `sum`: one (the
            paper's equation 8 as printed; as many times as strong as the text has tokens).
        masked: whether masked positions score too (released code) or not (paper).
        head: the encoder's `mlm` head (released code), or a linear map of its `own` (paper).
    """

    weight: float = 0.1
    target: str = "mean"
    masked: bool = True
    head: str = "mlm"

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclass(frozen=True)
class Encoder:
    """The deep encoder reading a view; the bottleneck is its last hidden state at [CLS], or the mean of its last
    hidden states (`BottleneckConfig.bottleneck`).

    Args:
        view: what it reads.
        weight: weight of its own token loss (masked language modelling) in the sum.
        contrast: weight of the contrastive loss between the bottlenecks of partners (coCondenser); the other texts of
            the batch, on all processes, are the negatives. 0 = none. Partners are a row's two sources; where the view
            reads one source, two rows of one document, which the sampler then draws one after the other.
        bag: the bag-of-words loss on its states; None = none.
    """

    view: View = field(default_factory=View)
    weight: float = 1.0
    contrast: float = 0.0
    bag: Bag | None = None

    def __post_init__(self) -> None:
        _check_fields(self)
        if self.view.labels == "next":
            raise ValueError("An Encoder sees every token, so its view cannot have labels='next'.")
        if self.view.select in ("superset", "complement"):
            raise ValueError(f"An Encoder cannot have select={self.view.select!r}; it refers to an encoder's view.")
        if self.bag and self.view.labels != "hidden":
            raise ValueError("An Encoder with a bag has labels='hidden'.")
        if self.contrast and len(self.view.sources) > 2:
            raise ValueError("An Encoder with contrast reads two sources, the partners of each pair, or one.")


@dataclass(frozen=True)
class Decoder:
    """A weak decoder rebuilding a view from the bottleneck.

    Args:
        view: what it reads and must rebuild; None is its encoder's view (Condenser).
        encoder: name of the encoder whose bottleneck it gets.
        layers: number of Transformer layers.
        inputs: `embeddings` of the backbone (shared); `own_embeddings`: the shared word matrix with the decoder's own
            positions and layer norm (SEED-Encoder); or `hidden:k`: what the encoder's k-th layer gave (Condenser;
            `hidden:half` is the layer half way up), of the encoder's view, so `view` is None then.
        stream: the residual stream: its `inputs`, or the `bottleneck` at every position plus position embeddings, raw
            (RetroMAE) or through the embedding block (`bottleneck_embedded`, DupMAE); inputs are only attended then.
        attention: what a position may see: `full`, `causal` (the inputs up to itself), `causal:k` (the last k of them
            and position 0), `sampled:rate` (for every position its own draw of hidden whole words, and never itself).
        entry: how the bottleneck enters: in place of the `first` input, or by `cross_attention` in every layer.
        norm: layers of the `backbone`'s kind (BERT's: norm after each part; ModernBERT's: before); `pre`, with the norm
            before each part; `gpt2`, the same with dropout on the inputs and smaller initial weights of what is added
            to the residual stream (by 1 / sqrt(2 layers)).
        head: token scores by the encoder's `mlm` head, or by the `tied` word matrix alone.
        init: weights it starts with: `random`, or those of the backbone's `last_layers` (SimLM) when training starts
            from a checkpoint.
        shares: name of another decoder whose layers it uses; its own when empty (MASTER's shared decoder).
        weight: weight of its loss in the sum.
    """

    view: View | None = field(default_factory=View)
    encoder: str = "encoder"
    layers: int = 2
    inputs: str = "embeddings"
    stream: str = "inputs"
    attention: str = "full"
    entry: str = "first"
    norm: str = "backbone"
    head: str = "mlm"
    init: str = "random"
    shares: str = ""
    weight: float = 1.0

    def __post_init__(self) -> None:
        _check_fields(self)
        if self.layers < 1:
            raise ValueError(f"Decoder.layers is {self.layers}; a decoder has at least one layer.")
        if not _ATTENTION.fullmatch(self.attention) or (self.attention_kind == "sampled" and not self.attention_value):
            raise ValueError(
                f"Decoder.attention is {self.attention!r}; allowed: full, causal, causal:k (k >= 1), sampled:0.x."
            )
        if self.init == "last_layers" and (self.norm != "backbone" or self.entry != "first"):
            raise ValueError("A Decoder with init='last_layers' has norm='backbone' and entry='first', as its source.")
        if not _INPUTS.fullmatch(self.inputs):
            raise ValueError(
                f"Decoder.inputs is {self.inputs!r}; allowed: embeddings, own_embeddings, hidden:half, "
                "hidden:k (output of the encoder's k-th layer)."
            )
        if (self.view is None) != self.reads_hidden:
            raise ValueError("A Decoder with inputs='hidden:k', and no other, has view=None: it reads its encoder's.")
        if self.reads_hidden and (self.stream != "inputs" or self.attention_kind == "sampled"):
            raise ValueError("A Decoder with inputs='hidden:k' has stream='inputs' and no sampled attention.")
        if self.view is not None and self.view.labels == "next" and self.attention_kind != "causal":
            raise ValueError("A Decoder that predicts the next token (labels='next') needs attention='causal:k'.")
        if self.stream != "inputs" and (self.layers != 1 or self.norm != "backbone"):
            raise ValueError("A Decoder whose stream is the bottleneck has one layer, norm='backbone' (RetroMAE).")
        if self.entry == "cross_attention" and self.norm != "pre":
            raise ValueError("A Decoder with entry='cross_attention' has norm='pre' (SEED-Encoder).")

    @property
    def reads_hidden(self) -> bool:
        """Whether it reads an inner layer of its encoder."""
        return self.inputs.startswith("hidden:")

    @property
    def attention_kind(self) -> str:
        """`full`, `causal` or `sampled`."""
        return self.attention.split(":")[0]

    @property
    def attention_value(self) -> float:
        """k of `causal:k`, rate of `sampled:rate`, 0 for `full` and `causal`."""
        return float(self.attention.partition(":")[2] or 0)
