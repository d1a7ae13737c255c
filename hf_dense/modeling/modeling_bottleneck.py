"""Bottlenecked masked auto-encoding: encode every view, decode every view through its bottleneck, sum the losses.

One forward pass runs every method; what differs between methods is the declaration in the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import logging
from transformers.utils.generic import ModelOutput

from .bottleneck_backbones import Backbone, build_backbone, family_of, quiet_loading, same_vocabulary
from .bottleneck_bag import bag_loss
from .bottleneck_declaration import Bag, Decoder
from .bottleneck_decoder import Block, DecoderStack, ResidualLinear, VocabularyHead
from .bottleneck_encoder import LayerRunner, layer_masks, token_types
from .bottleneck_gather import gather_rows
from .bottleneck_layout import FlatRows, Rows, counted, join_views, pool, take_rows, tokens_of
from .bottleneck_losses import IGNORED, pair_loss, token_loss
from .bottleneck_plan import BagRows, Plan, Reading
from .configuration_bottleneck import BottleneckConfig

logger = logging.get_logger(__name__)

Views = Mapping[str, Mapping[str, Tensor]]  # by name of the view, and of what it holds

_LEAST = 1e-6  # a batch in which nothing is scored has the loss 0, not 0 / 0; counts are shares of whole numbers


@dataclass
class PreTrainingOutput(ModelOutput):
    """What a pre-training step gives back.

    Args:
        loss: weighted sum of the losses (scalar).
        losses: every loss by the name of its encoder or decoder (scalars, unweighted).
        bottlenecks: (batch, dim) bottleneck vectors by encoder name.
    """

    loss: Tensor | None = None
    losses: dict[str, Tensor] | None = None
    bottlenecks: dict[str, Tensor] | None = None


class Encoded(NamedTuple):
    """What decoders and losses read of an encoder's view.

    Args:
        bottleneck: (batch, dim).
        last: (n, dim) last states of the tokens that are read, of all views.
        at: (rows,) the row of `last` of each token of this view that is read, in the order of the view's `FlatRows`.
        inner: (rows, dim) states of inner layers that a decoder reads, by the number of the layer, in that order.
    """

    bottleneck: Tensor
    last: Tensor
    at: Tensor
    inner: dict[int, Tensor]

    def states(self, layout: FlatRows) -> Tensor:
        """(rows, dim) last states in the order of the view's layout, where all are read."""
        return take_rows(self.last, self.at)


class BottleneckModel(PreTrainedModel):
    """The encoder alone; `pooler_output` is the bottleneck: the last hidden state at the first position, or the mean
    over all tokens where the configuration has `bottleneck="mean"`.

    A checkpoint's decoders, heads and whatever else stands beside the encoder are left out in silence.
    """

    config: BottleneckConfig
    config_class = BottleneckConfig
    base_model_prefix = "encoder"
    _keys_to_ignore_on_load_unexpected = [r"^(?!encoder\.|backbone\.)"]
    supports_gradient_checkpointing = True
    _supports_sdpa = True

    def __init__(self, config: BottleneckConfig) -> None:
        super().__init__(config)
        self.backbone = build_backbone(config.backbone)
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Module:
        """The word embeddings."""
        return self.backbone.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the word embeddings."""
        self.backbone.set_input_embeddings(value)

    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, **kwargs: object
    ) -> BaseModelOutputWithPooling:
        """Encode a batch.

        Args:
            input_ids: (batch, length) token ids.
            attention_mask: (batch, length), 1 = token, 0 = padding.
            kwargs: anything else the backbone takes (token_type_ids, position_ids, output_hidden_states, ...).

        Returns:
            `last_hidden_state` (batch, length, dim) and `pooler_output` (batch, dim), the bottleneck.
        """
        kwargs["return_dict"] = True  # whatever is asked for, and whatever the backbone's configuration says
        output = self.backbone(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        hidden = output.last_hidden_state
        return BaseModelOutputWithPooling(
            last_hidden_state=hidden,
            pooler_output=pool(hidden, attention_mask, self.config.bottleneck),
            hidden_states=output.get("hidden_states"),
            attentions=output.get("attentions"),
        )


class BottleneckForPreTraining(PreTrainedModel):
    """Encoder, masked-language-model head and decoders of one method.

    The forward pass is a loop over encoders and a loop over decoders of `config`; there is no code per method.
    """

    config: BottleneckConfig
    config_class = BottleneckConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    accepts_loss_kwargs = False

    def __init__(self, config: BottleneckConfig) -> None:
        super().__init__(config)
        self.encoder = BottleneckModel(config)
        self.encoder._keys_to_ignore_on_load_unexpected = []  # a part's patterns hold for the whole; none do here
        self.family = family_of(config.backbone)
        self.runner = LayerRunner(self.family, config.backbone)
        shape = self.family.shape(config.backbone)
        self.head = VocabularyHead(shape, config.vocab_size)
        self.encoder_specs, self.decoder_specs = config.encoder_specs, config.decoder_specs
        self.view_names, self.scored, self.hidden_layers = list(config.views), config.scored, config.hidden_layers
        self.contrasts, self.bags, self.weights = config.contrasts, config.bags, config.weights
        self.decoders = nn.ModuleDict()
        for name, spec in self.decoder_specs.items():
            if not spec.shares:
                kinds = self.family.attention_kinds(config.backbone, spec.layers, spec.init == "last_layers")
                self.decoders[name] = DecoderStack(shape, spec, kinds)
        own = [encoder for encoder, bag in config.bags.values() if bag.head == "own"]
        self.bag_heads = nn.ModuleDict({name: nn.Linear(shape.hidden, config.vocab_size) for name in own})
        self.post_init()  # type: ignore[no-untyped-call]

    @classmethod
    def from_backbone(cls, name_or_path: str, **config: Any) -> BottleneckForPreTraining:
        """Start pre-training from a published encoder, with its masked-language-model head when it has one.

        Args:
            name_or_path: directory or Hub id of an encoder checkpoint.
            config: changes to the method's configuration (`encoders`, `decoders`, `crop`, `bottleneck`).

        Returns:
            The model; every tensor that had to be initialised at random is named in a log line, and one says so where
            the checkpoint scores tokens by a matrix that is not its word matrix, which takes its place.

        Raises:
            ValueError: the backbone's family is not supported, weights of the encoder are absent, or its vocabulary
                disagrees with its configuration.
        """
        family = family_of(AutoConfig.from_pretrained(name_or_path, trust_remote_code=False))
        with quiet_loading():
            source, report = AutoModelForMaskedLM.from_pretrained(
                name_or_path, output_loading_info=True, trust_remote_code=False
            )
        absent = sorted(key for key in report["missing_keys"] if key.startswith(f"{source.base_model_prefix}."))
        if absent:
            raise ValueError(f"{name_or_path} has no weights for {absent[0]} of its encoder.")
        model = cls(cls.config_class(backbone_config=source.config, **config))
        if not same_vocabulary(source.config, source):
            raise ValueError(f"The word matrix of {name_or_path} disagrees with vocab_size={source.config.vocab_size}.")
        model.encoder.backbone.load_state_dict(source.base_model.state_dict(), strict=True)
        new = model.start_decoders()
        if set(family.head.values()) & set(report["missing_keys"]):
            new.append("head")
        else:
            model._take_head(source)
        if new:
            logger.warning(f"Newly initialised, not in {name_or_path}: {', '.join(new)}.")
        return model

    def _take_head(self, source: PreTrainedModel) -> None:
        """Take the head of a masked language model, all but a matrix of its own in place of the word matrix."""
        theirs, names = source.state_dict(), self.family.head
        found = {ours: theirs[names[ours]] for ours in self.head.state_dict() if names[ours] in theirs}
        self.head.load_state_dict({"bias": torch.zeros_like(self.head.bias), **found})  # ModernBERT's may have no bias
        projection, words = source.get_output_embeddings(), source.get_input_embeddings()
        assert isinstance(projection, nn.Linear)
        assert isinstance(words, nn.Embedding)
        if not torch.equal(projection.weight, words.weight):
            logger.warning(
                f"{source.name_or_path} scores tokens by a matrix of its own, which is left out: the word matrix takes "
                "its place."
            )

    def start_decoders(self) -> list[str]:
        """Give decoders that are declared so the backbone's last layers.

        Returns:
            The names of the parts beside encoder and head that keep their random weights.
        """
        names = [name for name, spec in self.decoder_specs.items() if spec.init == "last_layers" and not spec.shares]
        for name in names:
            stack = self.decoders[name]
            assert isinstance(stack, DecoderStack)
            layers = self.family.layers(self.backbone)[-len(stack.layers) :]
            for ours, theirs in zip(stack.layers, layers, strict=True):
                ours.load_state_dict(self.family.rename_layer(theirs.state_dict()))
            final = self.family.final_norm(self.backbone)
            if stack.norm is not None and final is not None:
                stack.norm.load_state_dict(final.state_dict())
        new = ["decoders." + name for name in self.decoders if name not in names]
        return new + ["bag_heads." + name for name in self.bag_heads]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)  # type: ignore[no-untyped-call]
        if isinstance(module, VocabularyHead):
            init.zeros_(module.bias)
        if isinstance(module, ResidualLinear) and module.scale != 1.0:
            init.normal_(module.weight, std=self.config.initializer_range * module.scale)

    @property
    def backbone(self) -> Backbone:
        """The encoder's backbone, as its `Family` sees it."""
        return cast(Backbone, self.encoder.backbone)

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resize the word matrix, and with it what else has a row for every token; such rows start at 0."""
        words: nn.Embedding = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        size = words.weight.shape[0]
        self.head.bias = _resized(self.head.bias, size)
        for head in self.bag_heads.values():
            assert isinstance(head, nn.Linear)
            head.weight, head.bias = _resized(head.weight, size), _resized(head.bias, size)
            head.out_features = size
        return words

    def compile_parts(self, **options: Any) -> None:
        """Compile the feed-forward part of every layer of encoder and decoders, once for any number of rows.

        A step as a whole compiles too, in one graph, but anew whenever a batch has other groups of texts of similar
        length, or another number of scored tokens.

        Args:
            options: of `torch.compile` (`backend`, `mode`).
        """
        layers = [module for module in self.modules() if isinstance(module, Block)]
        for block in [self.runner.block, self.runner.first, *layers]:
            compiled: Any = torch.compile(partial(Block.expand, block), dynamic=True, **options)
            block.expand = compiled  # type: ignore[method-assign]

    def forward(
        self,
        views: Views,
        counts: Mapping[str, Tensor] | None = None,
        plan: Plan | None = None,
    ) -> PreTrainingOutput:
        """One pre-training step.

        Args:
            views: for every encoder, and every decoder that does not read its encoder's, by name: `input_ids`,
                `attention_mask`, `labels` (batch, length), and `visible` (batch, length, length) where the decoder
                samples what it sees. See `ViewCollator`.
            counts: what to divide each summed loss by (scalars, by loss name); `count_scored` of this batch when
                absent. A trainer gives its share of the count over all processes and accumulated batches, so that the
                loss does not depend on how a batch is cut.
            plan: of these views, made before they went to the device, so that the device is not waited for.

        Returns:
            The loss, its parts by name, and the bottlenecks.

        Raises:
            ValueError: a view is missing.
        """
        self._check(views)
        counts = self.count_scored(views) if counts is None else counts
        plan = self.plan(views) if plan is None else plan
        encoded = self.encode(views, plan)
        layouts = {name: FlatRows(view, plan.views[name].places) for name, view in views.items()}
        sums = {}
        for name, part in encoded.items():
            sums[name] = self._score_encoder(name, layouts[name], part, views[name]["labels"], plan.views[name])
        for name, spec in self.decoder_specs.items():
            view = self.scored[name]
            sums[name] = self.score_decoder(
                name, layouts[view], encoded[spec.encoder], views[view]["labels"], plan.views[view]
            )
        for name, encoder in self.contrasts.items():
            sums[name] = self.contrast(encoded[encoder].bottleneck, counted(views[encoder]))
        for name, (encoder, bag) in self.bags.items():
            read = plan.views[encoder].bag
            assert read is not None
            sums[name] = self.score_bag(encoder, bag, encoded[encoder], layouts[encoder], views[encoder], read)
        losses = {name: total / counts[name].clamp(min=_LEAST) for name, total in sums.items()}
        loss = torch.stack([self.weights[name] * value for name, value in losses.items()]).sum()
        bottlenecks = {name: part.bottleneck for name, part in encoded.items()}
        return PreTrainingOutput(loss=loss, losses=losses, bottlenecks=bottlenecks)

    def count_scored(self, views: Views) -> dict[str, Tensor]:
        """What each summed loss is a mean over (scalars, float32, by loss name): scored tokens, or texts."""
        self._check(views)
        tokens = {name: scored_tokens(views[view]).sum() for name, view in self.scored.items()}
        over_texts = self.contrasts | {name: encoder for name, (encoder, _) in self.bags.items()}
        texts = {name: counted(views[encoder]).sum() for name, encoder in over_texts.items()}
        return {name: count.float() for name, count in (tokens | texts).items()}

    def plan(self, views: Views) -> Plan:
        """What a step must know of its views on the host; to be made before they go to a device."""
        return Plan(self.config, views)

    def shown(self, views: Views, plan: Plan) -> Views:
        """The views as encoders and decoders read them, with what is drawn on the device filled in."""
        return views

    def _check(self, views: Views) -> None:
        missing = [name for name in self.view_names if name not in views]
        if missing:
            raise ValueError(f"The batch lacks the view {missing[0]!r}; it has: {', '.join(views)}.")

    def encode(self, views: Views, plan: Plan | None = None, every: bool = False) -> dict[str, Encoded]:
        """Read every encoder's view, in one pass for all.

        The last layer is computed for the first tokens and those that are scored alone, unless the bottleneck is a mean
        of all, a bag of words is read from all, or `every` asks for all (of a plan that is not given).
        """
        names = list(self.encoder_specs)
        plan = Plan(self.config, {name: views[name] for name in names}, every) if plan is None else plan
        read = join_views([views[name] for name in names])
        layout = FlatRows(read, plan.joined)
        types = token_types(self.config.backbone, read, layout)
        kept = set(self.hidden_layers.values())
        last, inner = self.runner.run(self.backbone, layout, types, plan.last, kept)
        return {
            name: self._encoded(FlatRows(views[name], plan.views[name].places), last, inner, plan.views[name])
            for name in names
        }

    def read_bottlenecks(self, views: Views, plan: Plan) -> dict[str, Tensor]:
        """The bottlenecks (batch, dim) of a batch, or a chunk of one, by encoder name; nothing is decoded."""
        return {name: encoded.bottleneck for name, encoded in self.encode(views, plan).items()}

    def _encoded(self, layout: FlatRows, last: Tensor, inner: Mapping[int, Tensor], read: Reading) -> Encoded:
        """The part of a pass that one view has."""
        assert read.last is not None
        assert read.joined is not None
        if self.config.bottleneck == "mean":
            bottleneck = layout.means(take_rows(last, read.last))
        else:
            bottleneck = take_rows(last, read.last[layout.where[:, 0]])
        return Encoded(
            bottleneck, last, read.last, {at: take_rows(states, read.joined) for at, states in inner.items()}
        )

    def decode(
        self,
        name: str,
        layout: FlatRows,
        bottleneck: Tensor,
        inner: Mapping[int, Tensor] | None = None,
        read: Rows | None = None,
    ) -> Tensor:
        """Last states (read rows, dim) of a decoder reading `layout` through `bottleneck` (batch, dim).

        `inner` are its encoder's states by the number of the layer, of which it reads one where its inputs are hidden
        states; `read` are the rows that are wanted, all when absent.
        """
        spec, positions = self.decoder_specs[name], layout.positions
        stack = self.decoders[spec.shares or name]
        assert isinstance(stack, DecoderStack)
        if spec.reads_hidden:
            assert inner is not None
            memory = inner[self.hidden_layers[name]]
        elif stack.embeddings is not None:
            memory = stack.embeddings(self.get_input_embeddings()(layout.input_ids), positions)
        else:
            memory = self.family.embed(self.backbone, positions, ids=layout.input_ids)
        if spec.entry == "first":
            memory = layout.replace_first(memory, bottleneck)
        stream = self._stream(spec, memory, bottleneck, layout)
        masks = layer_masks(self.family, self.backbone, layout, memory, spec)
        hidden: Tensor = stack(stream, memory, masks, bottleneck, read)
        return hidden

    def _stream(self, spec: Decoder, memory: Tensor, bottleneck: Tensor, layout: FlatRows) -> Tensor:
        """The residual stream a decoder starts from (rows, dim)."""
        if spec.stream == "inputs":
            return memory
        expanded = bottleneck.index_select(0, layout.text)
        if spec.stream == "bottleneck_embedded":
            return self.family.embed(self.backbone, layout.positions, words=expanded)
        vectors = self.family.position_vectors(self.backbone, layout.positions)
        return expanded if vectors is None else expanded + vectors

    def _score_encoder(self, name: str, layout: FlatRows, encoded: Encoded, labels: Tensor, read: Reading) -> Tensor:
        """Summed token loss of an encoder's view; a scalar."""
        assert read.scored is not None
        at = read.scored.at
        hidden = take_rows(encoded.last, encoded.at[at])
        return self.score_view(name, hidden, layout.flatten(labels)[at], layout.input_ids[at], "mlm")

    def score_decoder(self, name: str, layout: FlatRows, encoded: Encoded, labels: Tensor, read: Reading) -> Tensor:
        """Summed token loss of a decoder.

        Args:
            name: of the decoder.
            layout: of the view that it reads and rebuilds.
            encoded: what its encoder made of its own view.
            labels: (batch, length) of the decoder's view.
            read: what is read of that view.

        Returns:
            The sum (scalar).
        """
        assert read.scored is not None
        at, spec = read.scored.at, self.decoder_specs[name]
        hidden = self.decode(name, layout, encoded.bottleneck, encoded.inner, read.scored)
        view = self.scored[name]
        return self.score_view(view, hidden, layout.flatten(labels)[at], layout.input_ids[at], spec.head)

    def score_view(self, name: str, hidden: Tensor, targets: Tensor, shown: Tensor, head: str) -> Tensor:
        """Summed loss of last states (n, dim) at the scored tokens of the view called `name`; a scalar.

        Args:
            name: of the view.
            hidden: (n, dim) states of what read it.
            targets: (n,) the tokens' labels.
            shown: (n,) the token ids that were read there.
            head: see `score`.
        """
        return self.score(hidden, targets, head)

    def score(self, hidden: Tensor, targets: Tensor, head: str) -> Tensor:
        """Summed token loss.

        Args:
            hidden: (n, dim) last hidden states of scored tokens.
            targets: (n,) token ids.
            head: `mlm`, the masked-language-model head, or `tied`, the word matrix alone.

        Returns:
            The sum (scalar).
        """
        features, bias = hidden, None
        if head == "mlm":
            features, bias = self.head(hidden), self.head.bias
        words = self.get_input_embeddings().weight
        assert isinstance(words, Tensor)
        return token_loss(features, targets, words, bias)

    def contrast(self, bottleneck: Tensor, counted: Tensor) -> Tensor:
        """Summed contrastive loss of this process's texts against those of all processes.

        Args:
            bottleneck: (batch, dim); rows 2k and 2k + 1 are partners.
            counted: (batch,) bool; a text that does not count is neither anchor nor negative.

        Returns:
            Scalar.

        Raises:
            ValueError: a text has no partner.
        """
        if len(bottleneck) % 2:
            raise ValueError(
                f"A batch of {len(bottleneck)} texts leaves one without the partner it is contrasted with."
            )
        candidates, offset = gather_rows(bottleneck)
        return pair_loss(bottleneck, counted, candidates, gather_rows(counted)[0], offset)

    def score_bag(
        self, name: str, bag: Bag, encoded: Encoded, layout: FlatRows, view: Mapping[str, Tensor], read: BagRows
    ) -> Tensor:
        """Summed bag-of-words loss of an encoder's view; a scalar."""
        features = take_rows(encoded.states(layout), read.read)
        if bag.head == "own":
            head = self.bag_heads[name]
            assert isinstance(head, nn.Linear)
            words, bias = head.weight, head.bias
        else:
            matrix = self.get_input_embeddings().weight
            assert isinstance(matrix, Tensor)
            features, words, bias = self.head(features), matrix, self.head.bias
        labels = layout.flatten(view["labels"])
        tokens = torch.where(labels == IGNORED, layout.input_ids, labels)[read.sought]
        texts = counted(view)[layout.order]
        return bag_loss(features, read.lengths, tokens, read.texts, texts, words, bias, bag.target == "mean")


def model_classes(config: type[BottleneckConfig]) -> tuple[type[BottleneckModel], type[BottleneckForPreTraining]]:
    """The model classes of a method, named after its configuration: of `RetroMAEConfig`, `RetroMAEModel` (the encoder)
    and `RetroMAEForPreTraining`.

    They must be variables of the configuration's module under just these names, where loading looks for them.
    """
    method = config.__name__.removesuffix("Config")
    given = {"config_class": config, "__module__": config.__module__}
    encoder = {**given, "__doc__": f"The encoder of a {method} checkpoint."}
    pretraining = {**given, "__doc__": f"{method}'s encoder, head and decoders."}
    return (
        type(f"{method}Model", (BottleneckModel,), encoder),
        type(f"{method}ForPreTraining", (BottleneckForPreTraining,), pretraining),
    )


def scored_tokens(view: Mapping[str, Tensor]) -> Tensor:
    """(batch, length) bool: where a view has a label; at padding nothing is scored, whatever stands there."""
    return (view["labels"] != IGNORED) & tokens_of(view).bool()


def _resized(old: Tensor, size: int) -> nn.Parameter:
    """A parameter with `size` rows, new ones 0."""
    new = old.new_zeros(size, *old.shape[1:])
    new[: len(old)] = old.detach()[:size]
    return nn.Parameter(new, requires_grad=old.requires_grad)
