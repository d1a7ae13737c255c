"""A pre-training method as data: which views of a text encoder and decoders see, and what is scored.

`View`, `Encoder` and `Decoder` are the vocabulary; `BottleneckConfig` holds one declaration (named encoders and named
decoders) and the backbone. Each paper is a subclass with its own declaration (`modeling_retromae.py`, ...).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto import CONFIG_MAPPING

from .bottleneck_backbones import Shape, family_of

_ALLOWED: dict[str, tuple[str, ...]] = {
    "select": ("none", "random", "superset", "complement", "keywords:inverse_count", "keywords:tfidf"),
    "fill": ("mask", "bert", "generator"),
    "labels": ("hidden", "every", "next", "replaced"),
    "stream": ("inputs", "bottleneck", "bottleneck_embedded"),
    "entry": ("first", "cross_attention"),
    "norm": ("backbone", "pre", "gpt2"),
    "head": ("mlm", "tied"),
    "init": ("random", "last_layers"),
}
# The columns a derived source comes from.
_COLUMNS = {
    "titled": ("title", "text"),
    "first_half": ("text",),
    "second_half": ("text",),
    "query": ("queries",),
}
_TYPES: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float)}
_ATTENTION = re.compile(r"full|causal(:[1-9]\d*)?|sampled:0?\.\d+")
_INPUTS = re.compile(r"embeddings|own_embeddings|hidden:(half|\d+)")


def _check_fields(spec: Any) -> None:
    """Raise `ValueError` where a field is not of its type or not one of its values."""
    for item in fields(spec):
        value, kind = getattr(spec, item.name), _TYPES.get(str(item.type))
        if kind is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ValueError(f"{type(spec).__name__}.{item.name} is {value!r}; it must be of type {item.type}.")
    for name in ("weight", "contrast"):
        if getattr(spec, name, 0) < 0:
            raise ValueError(f"{type(spec).__name__}.{name} is {getattr(spec, name)}; a loss weight is not negative.")
    for name in _ALLOWED:
        value = getattr(spec, name, None)
        if value is not None and value not in _ALLOWED[name]:
            raise ValueError(f"{type(spec).__name__}.{name} is {value!r}; allowed: {', '.join(_ALLOWED[name])}.")


@dataclass(frozen=True)
class View:
    """How a row of the corpus is rendered for one encoder or decoder.

    Args:
        sources: columns read. Several columns make several rows of the batch per corpus row, interleaved
            (row 2k and row 2k+1 come from one corpus row): CoT-MAE's encoder reads `("text", "neighbour")` and its
            decoder `("neighbour", "text")`, so each row is rebuilt from its partner's bottleneck. Besides columns:
            `titled` (title [SEP] text, the text with token type 1), `first_half` and `second_half` of the text, `query`
            (one of the column `queries`, drawn at every visit) and `queries` (all of them, with [SEP] between). `a+b`
            draws one of several at every visit, `a:2+b:1` by weight.
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
        allowed = {"target": ("mean", "sum"), "masked": (True, False), "head": ("mlm", "own")}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ValueError(f"Bag.{name} is {getattr(self, name)!r}; allowed: {', '.join(map(str, values))}.")
        if isinstance(self.weight, bool) or not isinstance(self.weight, (int, float)) or self.weight < 0:
            raise ValueError(f"Bag.weight is {self.weight!r}; a loss weight is a number, not negative.")


@dataclass(frozen=True)
class Encoder:
    """The deep encoder reading a view; its last hidden state at [CLS] is the bottleneck.

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


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, dictionaries merged key by key."""
    merged = dict(deepcopy(base))
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _overlay(kind: type, declared: Mapping[str, Any], changes: Any) -> dict[str, Any]:
    """A method's declaration with changes laid over it; None takes an entry out, a new name must say what it reads."""
    if not isinstance(changes or {}, Mapping):
        raise ValueError(f"The changes to a method's {kind.__name__.lower()}s are {changes!r}, not a mapping by name.")
    for name, change in (changes or {}).items():
        if declared and name not in declared and "view" not in (change or {}):
            raise ValueError(f"There is no {kind.__name__} {name!r} to change; there is: {', '.join(declared)}.")
    merged = merge({name: asdict(spec) for name, spec in declared.items()}, changes or {})
    return {name: values for name, values in merged.items() if values is not None}


def _build(kind: type, name: str, values: Any) -> Any:
    """One `Encoder` or `Decoder` from its dictionary; an unknown field is an error that lists the known ones."""
    _check_names(kind, name, values)
    built = {"view": {}, **values}
    for key, cls in (("view", View), ("bag", Bag)):
        absent = built.get(key) is None and (key == "bag" or kind is Decoder)
        if key in built and not absent:
            _check_names(cls, name, built[key])
            built[key] = cls(**built[key])
    return kind(**built)


def _check_names(kind: type, name: str, values: Any) -> None:
    """Raise `ValueError` unless `values` is a mapping of fields of `kind`."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{kind.__name__} of {name!r} is {values!r}; it must be a mapping of its fields.")
    known = [item.name for item in fields(kind)]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(f"{kind.__name__} of {name!r} has no field {unknown[0]!r}; it has: {', '.join(known)}.")


class BottleneckConfig(PreTrainedConfig):
    """Configuration shared by all methods.

    Args:
        backbone_config: configuration of the encoder (a `PreTrainedConfig` or its dictionary); BERT-base when absent.
        encoders: changes to the method's encoders, by name, e.g. `{"encoder": {"view": {"rate": 0.4}}}`; None in place
            of an encoder's changes takes it out.
        decoders: changes to the method's decoders, by name, e.g. `{"decoder": {"layers": 1}}`.
        crop: which part of a text longer than the model's length is read: its `head`, or a `random` window.

    `encoders` and `decoders` are stored complete, as dictionaries (None for what was taken out); `encoder_specs`
    and `decoder_specs` give them as `Encoder` and `Decoder`. Raises `ValueError` for anything outside the vocabulary.
    """

    model_type = "bottleneck"
    sub_configs: ClassVar[dict[str, Any]] = {"backbone_config": AutoConfig}
    declared_encoders: ClassVar[dict[str, Encoder]] = {}
    declared_decoders: ClassVar[dict[str, Decoder]] = {}
    declared_crop: ClassVar[str] = "head"
    has_generator: ClassVar[bool] = False

    backbone_config: dict[str, Any] | PreTrainedConfig | None = None
    encoders: dict[str, Any] | None = None
    decoders: dict[str, Any] | None = None
    crop: str | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if not isinstance(self.backbone_config, PreTrainedConfig):
            values = dict(self.backbone_config or {})
            kind = values.pop("model_type", "bert")
            if kind not in CONFIG_MAPPING:
                raise ValueError(f"backbone_config has the model_type {kind!r}, which transformers does not know.")
            self.backbone_config = CONFIG_MAPPING[kind](**values)
        self.crop = self.crop or self.declared_crop
        self.encoders = _overlay(Encoder, self.declared_encoders, self.encoders)
        self.decoders = _overlay(Decoder, self.declared_decoders, self.decoders)
        kwargs.setdefault("auto_map", self._remote_classes())
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]
        self._check()
        self.encoders = _stored(self.declared_encoders, self.encoder_specs)
        self.decoders = _stored(self.declared_decoders, self.decoder_specs)

    def _remote_classes(self) -> dict[str, str]:
        """The `auto_map` under which a checkpoint loads where this package is not installed."""
        module = type(self).__module__.rpartition(".")[2]
        name = type(self).__name__.removesuffix("Config")
        return {
            "AutoConfig": f"{module}.{name}Config",
            "AutoModel": f"{module}.{name}Model",
            "AutoModelForPreTraining": f"{module}.{name}ForPreTraining",
        }

    def _check(self) -> None:
        encoders, decoders = self.encoder_specs, self.decoder_specs
        if self.crop not in ("head", "random"):
            raise ValueError(f"crop is {self.crop!r}; allowed: head, random.")
        if not self.has_generator and any(view.fill == "generator" for view in self.views.values()):
            raise ValueError(f"View.fill='generator' needs a generator, which {self.model_type} has not; simlm has.")
        layers = int(self.backbone.num_hidden_layers)
        for name, layer in self.hidden_layers.items():
            if layer >= layers:
                raise ValueError(
                    f"Decoder {name!r} reads encoder layer {layer}; the encoder has {layers}, and after the last one "
                    "nothing is left to the bottleneck. Set inputs='hidden:k' with a smaller k, or 'hidden:half'."
                )
        if self.siblings and any(len(view.sources) != 1 for view in self.views.values()):
            raise ValueError("Where an encoder contrasts sibling rows, every view reads one source.")
        shared = set(encoders) & set(decoders)
        if shared:
            raise ValueError(f"An encoder and a decoder are both named {sorted(shared)[0]!r}; names must differ.")
        shape = family_of(self.backbone).shape(self.backbone)
        for name, decoder in decoders.items():
            _check_backbone(name, decoder, shape, layers)
            if decoder.encoder not in encoders:
                raise ValueError(
                    f"Decoder {name!r} reads encoder {decoder.encoder!r}; there is: {', '.join(encoders)}."
                )
            if decoder.shares and (decoder.shares not in decoders or decoders[decoder.shares].shares):
                raise ValueError(
                    f"Decoder {name!r} shares the layers of {decoder.shares!r}, which has none of its own."
                )
            if decoder.shares and decoder.layers != decoders[decoder.shares].layers:
                raise ValueError(f"Decoder {name!r} and {decoder.shares!r} share layers but differ in their number.")
            seen = encoders[decoder.encoder].view
            if decoder.view and decoder.view.select in ("superset", "complement"):
                if decoder.view.sources != seen.sources or seen.select != "random":
                    raise ValueError(
                        f"Decoder {name!r} hides a {decoder.view.select} of what its encoder's view hides, so both "
                        "read the same sources and the encoder's tokens are hidden at random."
                    )
                if decoder.view.select == "superset" and decoder.view.rate <= seen.rate:
                    raise ValueError(
                        f"Decoder {name!r} hides a superset, so its rate is above its encoder's {seen.rate}."
                    )
            if decoder.view and len(decoder.view.sources) != len(encoders[decoder.encoder].view.sources):
                raise ValueError(f"Decoder {name!r} and its encoder {decoder.encoder!r} need equally many sources.")

    @property
    def encoder_specs(self) -> dict[str, Encoder]:
        """The encoders by name."""
        return {
            name: _build(Encoder, name, values) for name, values in (self.encoders or {}).items() if values is not None
        }

    @property
    def decoder_specs(self) -> dict[str, Decoder]:
        """The decoders by name."""
        return {
            name: _build(Decoder, name, values) for name, values in (self.decoders or {}).items() if values is not None
        }

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss in the sum, by name: encoders, decoders, `<encoder>_contrast`, `<encoder>_bag`."""
        encoders, decoders = self.encoder_specs, self.decoder_specs
        tokens = {name: spec.weight for name, spec in (encoders | decoders).items()}
        contrasts = {loss: encoders[name].contrast for loss, name in self.contrasts.items()}
        return tokens | contrasts | {loss: bag.weight for loss, (_, bag) in self.bags.items()}

    @property
    def views(self) -> dict[str, View]:
        """The views a batch holds, by the name of the encoder or decoder that they are made for."""
        encoders = {name: spec.view for name, spec in self.encoder_specs.items()}
        return encoders | {name: spec.view for name, spec in self.decoder_specs.items() if spec.view is not None}

    @property
    def scored(self) -> dict[str, str]:
        """The view whose labels a token loss reads, by loss name (that of an encoder or decoder)."""
        decoders = {name: name if spec.view else spec.encoder for name, spec in self.decoder_specs.items()}
        return {name: name for name in self.encoder_specs} | decoders

    @property
    def hidden_layers(self) -> dict[str, int]:
        """The encoder layer (0 = embeddings) that a decoder reads, by name of the decoders that read one."""
        half = str(int(self.backbone.num_hidden_layers) // 2)
        reading = {name: spec.inputs for name, spec in self.decoder_specs.items() if spec.reads_hidden}
        return {name: int(inputs.partition(":")[2].replace("half", half)) for name, inputs in reading.items()}

    @property
    def contrasts(self) -> dict[str, str]:
        """The encoder whose bottlenecks a contrastive loss compares, by loss name."""
        return {f"{name}_contrast": name for name, spec in self.encoder_specs.items() if spec.contrast}

    @property
    def bags(self) -> dict[str, tuple[str, Bag]]:
        """The encoder and the declaration of a bag-of-words loss, by loss name."""
        return {f"{name}_bag": (name, spec.bag) for name, spec in self.encoder_specs.items() if spec.bag is not None}

    @property
    def sources(self) -> list[str]:
        """The corpus columns the method needs, in order of first use."""
        return list(dict.fromkeys(column for view in self.views.values() for column in view.columns))

    @property
    def needs_keywords(self) -> bool:
        """Whether a view hides keywords, for which the words of the corpus are counted."""
        return any(view.select.startswith("keywords") for view in self.views.values())

    @property
    def siblings(self) -> bool:
        """Whether rows come in pairs of one document: an encoder contrasts a single source."""
        return any(len(spec.view.sources) == 1 for spec in self.encoder_specs.values() if spec.contrast)

    @property
    def hidden_size(self) -> int:
        """Length of the bottleneck vector."""
        return int(self.backbone.hidden_size)

    @property
    def vocab_size(self) -> int:
        """Number of rows of the word matrix."""
        return int(self.backbone.vocab_size)

    @vocab_size.setter
    def vocab_size(self, value: int) -> None:  # set by `resize_token_embeddings`
        self.backbone.vocab_size = value

    @property
    def initializer_range(self) -> float:
        """Standard deviation of newly initialised weights, the backbone's."""
        return float(getattr(self.backbone, "initializer_range", 0.02))

    @property
    def backbone(self) -> PreTrainedConfig:
        """The backbone's configuration."""
        assert isinstance(self.backbone_config, PreTrainedConfig)
        return self.backbone_config


def _check_backbone(name: str, decoder: Decoder, shape: Shape, layers: int) -> None:
    """Raise `ValueError` where a backbone cannot carry a decoder."""
    if decoder.init == "last_layers" and decoder.layers > layers - shape.modern:
        first = ", whose first cannot be copied (it has no norm before attention)" if shape.modern else ""
        raise ValueError(f"Decoder {name!r} copies {decoder.layers} encoder layers; the encoder has {layers}{first}.")
    if shape.words == shape.hidden:
        return
    sizes = f"this backbone's word vectors ({shape.words}) and hidden states ({shape.hidden}) differ in length"
    if decoder.head == "tied":
        raise ValueError(f"Decoder {name!r} scores states by word vectors (head='tied'), but {sizes}; use head='mlm'.")
    if decoder.inputs == "own_embeddings":
        raise ValueError(f"Decoder {name!r} reads word vectors as they are, but {sizes}; use inputs='embeddings'.")
    if decoder.stream == "bottleneck_embedded":
        raise ValueError(f"Decoder {name!r} embeds the bottleneck like a word, but {sizes}; use stream='bottleneck'.")


def _stored(declared: Mapping[str, Any], specs: Mapping[str, Any]) -> dict[str, Any]:
    """Specifications as JSON would give them back: lists, not tuples; None for what was taken out."""
    gone = dict.fromkeys(name for name in declared if name not in specs)
    return {name: _plain(asdict(spec)) for name, spec in specs.items()} | gone


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
