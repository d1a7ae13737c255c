"""Configuration shared by the pre-training methods: a backbone, and one declaration of encoders and decoders.

Each paper is a subclass with its own declaration (`modeling_retromae.py`, ...), in the vocabulary of
`bottleneck_declaration.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy, deepcopy
from dataclasses import asdict, fields
from difflib import get_close_matches
from typing import Any, ClassVar, Generic, Self, TypeVar

from torch import nn
from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto import CONFIG_MAPPING

from .bottleneck_backbones import FULL, Shape, family_of
from .bottleneck_declaration import Bag, Decoder, Encoder, View, parse_source

__all__ = [
    "Bag",
    "BottleneckConfig",
    "Decoder",
    "Encoder",
    "Json",
    "View",
    "build_config",
    "check_keys",
    "merge",
    "parse_source",
    "resolved",
]

Json = dict[str, Any]  # plain data by name, as JSON has it
Spec = TypeVar("Spec", Encoder, Decoder)
Part = TypeVar("Part", Encoder, Decoder, View, Bag)
Result = TypeVar("Result")


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Json:
    """`base` with `changes` laid over it, dictionaries merged key by key."""
    merged = dict(deepcopy(base))
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def check_keys(argument: str, values: Mapping[str, Any], default: str) -> None:
    """Raise `ValueError` for a key that a configuration of the model type, `default` where none is named, has not.

    What transformers has written, which names its version, may have others, and passes; and so does a model type that
    it does not know, which `build_config` refuses.
    """
    kind = values.get("model_type", default)
    if kind not in CONFIG_MAPPING or "transformers_version" in values:
        return
    known = CONFIG_MAPPING[kind]()
    unknown = [name for name in values if not hasattr(known, name) and name != "attn_implementation"]
    if unknown:
        raise ValueError(f"{argument} has the key {unknown[0]!r}, which a {kind!r} configuration does not have.")


def build_config(argument: str, values: Json, default: str) -> PreTrainedConfig:
    """The configuration that a dictionary describes, of the model type `default` where it names none.

    Raises:
        ValueError: transformers does not know the model type; the message names `argument`.
    """
    kind = values.get("model_type", default)
    if kind not in CONFIG_MAPPING:
        raise ValueError(f"{argument} has the model_type {kind!r}, which transformers does not know.")
    return CONFIG_MAPPING[kind](**{name: value for name, value in values.items() if name != "model_type"})


def _overlay(base: Mapping[str, Json | None], changes: Json | None, kind: str) -> Json:
    """A declaration with changes laid over it; None takes an entry out, a new name must say what it reads."""
    changes = changes or {}
    if not isinstance(changes, Mapping):
        raise ValueError(f"The changes to a method's {kind.lower()}s are {changes!r}, not a mapping by name.")
    for name, change in changes.items():
        if base and name not in base and "view" not in (change or {}):
            raise ValueError(f"There is no {kind} {name!r} to change; there is: {', '.join(base)}.")
    merged = merge(base, changes)
    for name, change in changes.items():
        if isinstance(change, Mapping):
            before = base.get(name) or {}
            _refuse_without_effect(name, before.get("view"), change.get("view"), merged[name].get("view"))
    return merged


def _plain(declared: Mapping[str, Spec]) -> Json:
    """A declaration as dictionaries."""
    return {name: asdict(spec) for name, spec in declared.items()}


def _refuse_without_effect(name: str, before: object, change: object, view: object) -> None:
    """Raise `ValueError` where a change sets what the view, which draws no tokens to hide, does not read.

    What a checkpoint stores is complete, and passes.
    """
    if not isinstance(change, Mapping) or not isinstance(view, Mapping) or len(change) == len(fields(View)):
        return
    unread = {"none": ("rate", "fill"), "complement": ("rate",)}.get(str(view.get("select", View.select)), ())
    old = before if isinstance(before, Mapping) else asdict(View())
    for field_name in unread:
        if field_name in change and change[field_name] != old[field_name]:
            raise ValueError(
                f"View.{field_name} of {name!r} would have no effect: with select={view['select']!r} the view draws no "
                "tokens to hide. Change select, or what a position may see (attention='sampled:0.x')."
            )


def _build(kind: type[Spec], name: str, values: object) -> Spec:
    """One `Encoder` or `Decoder` from its dictionary; an unknown field is an error that lists the known ones."""
    built = {"view": {}, **_known(kind, name, values)}
    if built["view"] is not None or kind is Encoder:
        built["view"] = View(**_known(View, name, built["view"]))
    if built.get("bag") is not None:
        built["bag"] = Bag(**_known(Bag, name, built["bag"]))
    return kind(**built)


def _known(kind: type[Part], name: str, values: object) -> Json:
    """`values`; raises `ValueError` unless they are a mapping of fields of `kind`."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{kind.__name__} of {name!r} is {values!r}; it must be a mapping of its fields.")
    known = [item.name for item in fields(kind)]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(f"{kind.__name__} of {name!r} has no field {unknown[0]!r}; it has: {', '.join(known)}.")
    return dict(values)


def _stored(declared: Mapping[str, Spec], specs: Mapping[str, Spec]) -> Json:
    """Specifications as JSON would give them back: lists, not tuples; None for what was taken out."""
    kept = {name: json.loads(json.dumps(asdict(spec))) for name, spec in specs.items()}
    return kept | dict.fromkeys(name for name in declared if name not in specs)


class resolved(Generic[Result]):
    """A property that follows from a configuration's encoders and decoders: computed once, and anew when they changed.

    Results are kept in a slot beside the configuration's attributes, so that no copy, comparison or file has them.
    What a caller gets is a copy.
    """

    def __init__(self, compute: Callable[[Any], Result]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, config: BottleneckConfig | None, owner: type[BottleneckConfig]) -> Result:
        if config is None:
            return self  # type: ignore[return-value]  # of the class: the property itself
        results = config._results()
        if self not in results:
            results[self] = self.compute(config)
        result: Result = copy(results[self])
        return result


class BottleneckConfig(PreTrainedConfig):
    """Configuration of a pre-training method: backbone, encoders, decoders.

    Args:
        backbone_config: configuration of the encoder (a `PreTrainedConfig` or its dictionary); BERT-base when absent.
        encoders: changes to the method's encoders, by name, e.g. `{"encoder": {"view": {"rate": 0.4}}}`; None in place
            of an encoder's changes takes it out.
        decoders: changes to the method's decoders, by name, e.g. `{"decoder": {"layers": 1}}`.
        crop: which part of a text longer than the model's length is read: its `head`, or a `random` window.
        bottleneck: the vector of a text: `cls`, the last hidden state of its first token, or `mean`, the mean of the
            last hidden states of all its tokens, [CLS] and [SEP] included.
        retriever: how the embedder that pre-training started from makes its vectors (`pooling`, `normalize`,
            `similarity`, `prompts`, `max_length`); a record, which the model does not read.

    `encoders` and `decoders` are stored complete, as dictionaries (None for what was taken out); `encoder_specs`
    and `decoder_specs` give them as `Encoder` and `Decoder`. Raises `ValueError` for anything outside the vocabulary,
    for an unknown argument that resembles one of these, for one that belongs in `backbone_config`, and for keys there
    that such a configuration does not have. What a checkpoint stores is taken as it is.
    """

    __slots__ = ("_resolved",)

    model_type = "bottleneck"
    sub_configs: ClassVar[dict[str, type[AutoConfig]]] = {"backbone_config": AutoConfig}
    declared_encoders: ClassVar[dict[str, Encoder]] = {}
    declared_decoders: ClassVar[dict[str, Decoder]] = {}
    declared_crop: ClassVar[str] = "head"
    has_generator: ClassVar[bool] = False

    backbone_config: Json | PreTrainedConfig | None = None
    encoders: Json | None = None
    decoders: Json | None = None
    crop: str | None = None
    bottleneck: str = "cls"
    retriever: Json | None = None

    def __post_init__(self, **kwargs: object) -> None:
        self._refuse_slips(kwargs)
        self.backbone_config = self._part("backbone_config", "bert")
        if not self._is_stored:
            self._refuse_settings_of(self.backbone, kwargs)
        self._read_both_sides()
        self.crop = self.crop or self.declared_crop
        self.encoders = _overlay(_plain(self.declared_encoders), self.encoders, "Encoder")
        self.decoders = _overlay(_plain(self.declared_decoders), self.decoders, "Decoder")
        kwargs.setdefault("auto_map", self._remote_classes())
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]
        self._check()
        self.encoders = _stored(self.declared_encoders, self.encoder_specs)
        self.decoders = _stored(self.declared_decoders, self.decoder_specs)

    @property
    def _is_stored(self) -> bool:
        """Whether this is what a checkpoint stores, and no configuration that is being written."""
        return self.transformers_version is not None

    def _part(self, argument: str, default: str) -> PreTrainedConfig:
        """The configuration that an argument is, or describes by keys, which are checked unless they are stored."""
        given = getattr(self, argument)
        if isinstance(given, PreTrainedConfig):
            return given
        if not self._is_stored:
            check_keys(argument, given or {}, default)
        return build_config(argument, given or {}, default)

    @classmethod
    def _refuse_settings_of(cls, backbone: PreTrainedConfig, given: Mapping[str, object]) -> None:
        """Raise `ValueError` for a setting of the backbone that is none here, unless it is what the backbone has."""
        own = {item.name for item in fields(backbone)} | set(backbone.attribute_map)
        for name in sorted((own - {item.name for item in fields(PreTrainedConfig)}) & set(given)):
            if hasattr(cls, name) or given[name] != getattr(backbone, name):
                raise ValueError(
                    f"{cls.__name__} has no argument {name!r}: it is of the backbone; say it in backbone_config."
                )

    def _read_both_sides(self) -> None:
        """Raise `ValueError` for a backbone that is a decoder.

        A stored one has been pre-trained as an encoder all the same, by code that did not look, and becomes one.
        """
        for name in ("is_decoder", "add_cross_attention"):
            if getattr(self.backbone, name, False):
                if not self._is_stored:
                    raise ValueError(
                        f"An encoder reads to both sides, and a backbone with {name}=True does not; set it to False."
                    )
                setattr(self.backbone, name, False)

    @classmethod
    def _own(cls) -> list[str]:
        """The arguments that other configurations have not."""
        general = {item.name for item in fields(PreTrainedConfig)}
        return [item.name for item in fields(cls) if item.name not in general]

    @classmethod
    def _refuse_slips(cls, given: Iterable[str]) -> None:
        """Raise `ValueError` where an argument resembles one that methods have; transformers would take any name."""
        own = cls._own()
        for name in sorted(set(given) - set(own)):
            near = [item for item in own if item.startswith(name)] or get_close_matches(name, own, n=1, cutoff=0.8)
            if near:
                raise ValueError(f"{cls.__name__} has no argument {name!r}; did you mean {near[0]!r}?")

    @classmethod
    def from_dict(cls, config_dict: Json, **kwargs: object) -> Self:
        """A configuration from its dictionary, as a checkpoint stores it, with changes laid over it.

        Args:
            config_dict: what is stored.
            kwargs: arguments of the class: encoders, decoders and configurations are changed key by key, others
                replaced; and what transformers takes beside.

        Returns:
            The configuration.

        Raises:
            ValueError: as the constructor, or an encoder or decoder to be changed is not there.
        """
        cls._refuse_slips(kwargs)
        stored = config_dict.get("backbone_config") or {}
        backbone = stored if isinstance(stored, PreTrainedConfig) else build_config("backbone_config", stored, "bert")
        cls._refuse_settings_of(backbone, kwargs)
        changes = {name: kwargs.pop(name) for name in cls._own() if name in kwargs}
        return super().from_dict(cls._changed(config_dict, changes) if changes else config_dict, **kwargs)

    @classmethod
    def _changed(cls, stored: Json, changes: Json) -> Json:
        """The dictionary of a configuration with changes laid over it, those to encoders and decoders checked."""
        changed = {**stored, **changes}
        for name in cls.sub_configs:
            old, new = stored.get(name), changes.get(name)
            old = old.to_dict() if isinstance(old, PreTrainedConfig) else old
            if isinstance(old, Mapping) and isinstance(new, Mapping):
                check_keys(name, new, old["model_type"])
                changed[name] = merge(old, new)
        encoders = _overlay(_plain(cls.declared_encoders), stored.get("encoders"), "Encoder")
        decoders = _overlay(_plain(cls.declared_decoders), stored.get("decoders"), "Decoder")
        changed["encoders"] = _overlay(encoders, changes.get("encoders"), "Encoder")
        changed["decoders"] = _overlay(decoders, changes.get("decoders"), "Decoder")
        return changed

    def __getstate__(self) -> Json:  # what copies and pickles hold: without the slot
        return self.__dict__

    def _results(self) -> dict[object, Any]:
        """What has been computed from the encoders and decoders as they are now."""
        declared, results = getattr(self, "_resolved", (None, {}))
        if declared != (self.encoders, self.decoders):
            results = {}
            self._resolved: tuple[object, dict[object, Any]] = (deepcopy((self.encoders, self.decoders)), results)
        return results

    def _remote_classes(self) -> dict[str, str]:
        """The `auto_map` under which a checkpoint loads where this package is not installed."""
        method = f"{type(self).__module__.rpartition('.')[2]}.{type(self).__name__.removesuffix('Config')}"
        kinds = {"AutoConfig": "Config", "AutoModel": "Model", "AutoModelForPreTraining": "ForPreTraining"}
        return {auto: method + kind for auto, kind in kinds.items()}

    def _check(self) -> None:
        encoders, decoders = self.encoder_specs, self.decoder_specs
        if self.crop not in ("head", "random"):
            raise ValueError(f"crop is {self.crop!r}; allowed: head, random.")
        if self.bottleneck not in ("cls", "mean"):
            raise ValueError(f"bottleneck is {self.bottleneck!r}; allowed: cls, mean.")
        if not self.has_generator and any(view.fill == "generator" for view in self.views.values()):
            raise ValueError(f"View.fill='generator' needs a generator, which {self.model_type} has not; simlm has.")
        layers = int(self.backbone.num_hidden_layers)
        if layers < 1:
            raise ValueError(f"The backbone has num_hidden_layers={layers}; an encoder has at least one layer.")
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
        for name in (*encoders, *decoders):
            is_word = isinstance(name, str) and re.fullmatch(r"[\w -]+", name)
            if not is_word or (name in decoders and hasattr(nn.ModuleDict, name)):
                raise ValueError(f"An encoder or a decoder cannot be named {name!r}; give it another name.")
            if name in self.contrasts or name in self.bags:
                raise ValueError(f"The loss of an encoder is named {name!r} already; give this one another name.")
        family = family_of(self.backbone)
        shape, kinds = family.shape(self.backbone), family.attention_kinds(self.backbone, layers, copied=True)
        for name, decoder in decoders.items():
            if decoder.init == "random" and FULL not in kinds:
                raise ValueError(
                    f"New layers, such as those of decoder {name!r}, see the whole text, as no layer of this backbone "
                    f"does; give it one with {FULL!r} in layer_types."
                )
            _check_backbone(name, decoder, shape, layers)
            _check_decoder(name, decoder, encoders, decoders)

    @resolved
    def encoder_specs(self) -> dict[str, Encoder]:
        """The encoders by name."""
        given = (self.encoders or {}).items()
        return {name: _build(Encoder, name, values) for name, values in given if values is not None}

    @resolved
    def decoder_specs(self) -> dict[str, Decoder]:
        """The decoders by name."""
        given = (self.decoders or {}).items()
        return {name: _build(Decoder, name, values) for name, values in given if values is not None}

    @resolved
    def weights(self) -> dict[str, float]:
        """The weight of each loss in the sum, by name: encoders, decoders, `<encoder>_contrast`, `<encoder>_bag`."""
        encoders, decoders = self.encoder_specs, self.decoder_specs
        tokens = {name: spec.weight for name, spec in (encoders | decoders).items()}
        contrasts = {loss: encoders[name].contrast for loss, name in self.contrasts.items()}
        return tokens | contrasts | {loss: bag.weight for loss, (_, bag) in self.bags.items()}

    @resolved
    def views(self) -> dict[str, View]:
        """The views a batch holds, by the name of the encoder or decoder that they are made for."""
        encoders = {name: spec.view for name, spec in self.encoder_specs.items()}
        return encoders | {name: spec.view for name, spec in self.decoder_specs.items() if spec.view is not None}

    @resolved
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

    @resolved
    def contrasts(self) -> dict[str, str]:
        """The encoder whose bottlenecks a contrastive loss compares, by loss name."""
        return {f"{name}_contrast": name for name, spec in self.encoder_specs.items() if spec.contrast}

    @resolved
    def bags(self) -> dict[str, tuple[str, Bag]]:
        """The encoder and the declaration of a bag-of-words loss, by loss name."""
        return {f"{name}_bag": (name, spec.bag) for name, spec in self.encoder_specs.items() if spec.bag is not None}

    @resolved
    def sources(self) -> list[str]:
        """The corpus columns the method needs, in order of first use."""
        return list(dict.fromkeys(column for view in self.views.values() for column in view.columns))

    @resolved
    def needs_keywords(self) -> bool:
        """Whether a view hides keywords, for which the words of the corpus are counted."""
        return any(view.select.startswith("keywords") for view in self.views.values())

    @resolved
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


def _check_decoder(
    name: str, decoder: Decoder, encoders: Mapping[str, Encoder], decoders: Mapping[str, Decoder]
) -> None:
    """Raise `ValueError` where a decoder disagrees with its encoder, or with the decoder whose layers it shares."""
    if decoder.encoder not in encoders:
        known = ", ".join(encoders) or "none"
        raise ValueError(f"Decoder {name!r} reads encoder {decoder.encoder!r}; there is: {known}.")
    if decoder.shares and (decoder.shares not in decoders or decoders[decoder.shares].shares):
        raise ValueError(f"Decoder {name!r} shares the layers of {decoder.shares!r}, which has none of its own.")
    if decoder.shares:
        _check_sharing(name, decoder, decoders[decoder.shares])
    view, seen = decoder.view, encoders[decoder.encoder].view
    if view is None:
        return
    if view.select in ("superset", "complement") and (view.sources != seen.sources or seen.select != "random"):
        raise ValueError(
            f"Decoder {name!r} hides a {view.select} of what its encoder's view hides, so both read the same sources "
            "and the encoder's tokens are hidden at random."
        )
    if view.select == "superset" and view.rate <= seen.rate:
        raise ValueError(f"Decoder {name!r} hides a superset, so its rate is above its encoder's {seen.rate}.")
    if view.select == "complement" and view.labels == "hidden" and seen.rate == 1.0:
        raise ValueError(f"Decoder {name!r} hides what its encoder is shown, which at the rate 1.0 is nothing.")
    if len(view.sources) != len(seen.sources):
        raise ValueError(f"Decoder {name!r} and its encoder {decoder.encoder!r} need equally many sources.")


def _check_sharing(name: str, decoder: Decoder, owner: Decoder) -> None:
    """Raise `ValueError` where a decoder says of the layers that it shares something else than their owner."""
    fixed = ["layers", "entry", "norm", "init"]
    if not decoder.reads_hidden and "own_embeddings" in (decoder.inputs, owner.inputs):
        fixed.append("inputs")
    for field_name in fixed:
        own, theirs = getattr(decoder, field_name), getattr(owner, field_name)
        if own != theirs:
            raise ValueError(
                f"Decoder {name!r} has {field_name}={own!r}, but shares the layers of {decoder.shares!r}, which has "
                f"{theirs!r}; give both the same."
            )


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
