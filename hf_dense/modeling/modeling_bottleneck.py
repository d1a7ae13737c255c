"""The engine: encode every view, decode every view through its bottleneck, sum the losses.

One forward pass runs every method; what differs between methods is the declaration in the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import logging
from transformers.utils.generic import ModelOutput

from .bottleneck_backbones import build_backbone, family_of, head_state, same_vocabulary
from .bottleneck_decoder import DecoderStack, VocabularyHead
from .bottleneck_layout import PaddedRows
from .bottleneck_losses import IGNORED, token_loss
from .configuration_bottleneck import BottleneckConfig, Decoder

logger = logging.get_logger(__name__)


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


class BottleneckModel(PreTrainedModel):
    """The encoder alone; `pooler_output` is the bottleneck, the last hidden state at the first position."""

    config: BottleneckConfig
    config_class = BottleneckConfig
    base_model_prefix = "encoder"
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
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutputWithPooling:
        """Encode a batch.

        Args:
            input_ids: (batch, length) token ids.
            attention_mask: (batch, length), 1 = token, 0 = padding.
            kwargs: anything else the backbone takes (token_type_ids, position_ids, output_hidden_states, ...).

        Returns:
            `last_hidden_state` (batch, length, dim) and `pooler_output` (batch, dim), the bottleneck.
        """
        kwargs.pop("return_dict", None)
        output = self.backbone(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        hidden = output.last_hidden_state
        return BaseModelOutputWithPooling(
            last_hidden_state=hidden,
            pooler_output=hidden[:, 0],
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
        self.family = family_of(config.backbone)
        shape = self.family.shape(config.backbone)
        self.head = VocabularyHead(shape, config.vocab_size)
        self.decoders = nn.ModuleDict({name: DecoderStack(shape, spec) for name, spec in config.decoder_specs.items()})
        self.encoder_specs = config.encoder_specs
        self.decoder_specs = config.decoder_specs
        self.post_init()  # type: ignore[no-untyped-call]

    @classmethod
    def from_backbone(cls, name_or_path: str, **config: Any) -> BottleneckForPreTraining:
        """Start pre-training from a published encoder, with its masked-language-model head when it has one.

        Args:
            name_or_path: directory or Hub id of an encoder checkpoint.
            config: changes to the method's configuration (`encoders`, `decoders`, `crop`).

        Returns:
            The model; every tensor that had to be initialised at random is named in a log line.

        Raises:
            ValueError: the backbone's family is not supported, or its vocabulary disagrees with its configuration.
        """
        source, report = AutoModelForMaskedLM.from_pretrained(name_or_path, output_loading_info=True)
        family = family_of(source.config)
        model = cls(cls.config_class(backbone_config=source.config, **config))
        if not same_vocabulary(source.config, source):
            raise ValueError(f"The word matrix of {name_or_path} disagrees with vocab_size={source.config.vocab_size}.")
        model.encoder.backbone.load_state_dict(source.base_model.state_dict(), strict=True)
        new = ["decoders." + name for name in model.decoders]
        head = head_state(family, source.state_dict())
        if head is None or set(family.head.values()) & set(report["missing_keys"]):
            new.append("head")
        if head is not None:
            model.head.load_state_dict(head)
        logger.warning(f"Newly initialised, not in {name_or_path}: {', '.join(new)}.")
        return model

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)  # type: ignore[no-untyped-call]
        if isinstance(module, VocabularyHead):
            init.zeros_(module.bias)

    def get_input_embeddings(self) -> nn.Module:
        """The word embeddings."""
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the word embeddings."""
        self.encoder.set_input_embeddings(value)

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize the word matrix, and the head's bias with it; new tokens start with bias 0."""
        words: nn.Embedding = super().resize_token_embeddings(*args, **kwargs)
        old, size = self.head.bias, words.weight.shape[0]
        bias = old.new_zeros(size)
        bias[: len(old)] = old.detach()[:size]
        self.head.bias = nn.Parameter(bias, requires_grad=old.requires_grad)
        return words

    def forward(
        self, views: Mapping[str, Mapping[str, Tensor]], counts: Mapping[str, Tensor] | None = None
    ) -> PreTrainingOutput:
        """One pre-training step.

        Args:
            views: for every encoder and decoder, by name: `input_ids`, `attention_mask`, `labels` (batch, length),
                and `visible` (batch, length, length) where the decoder samples what it sees. See `ViewCollator`.
            counts: what to divide each summed token loss by (scalars, by loss name); the number of scored tokens of
                this batch when absent. A trainer gives its share of the count over all processes and accumulated
                batches, so that the loss does not depend on how a batch is cut.

        Returns:
            The loss, its parts by name, and the bottlenecks.

        Raises:
            ValueError: a view is missing.
        """
        missing = [name for name in (*self.encoder_specs, *self.decoder_specs) if name not in views]
        if missing:
            raise ValueError(f"The batch lacks the view {missing[0]!r}; it has: {', '.join(views)}.")
        sums: dict[str, tuple[Tensor, Tensor]] = {}
        bottlenecks: dict[str, Tensor] = {}
        for name, hidden in self.encode(views).items():
            bottlenecks[name] = PaddedRows(views[name]).first(hidden)
            sums[name] = self.score(hidden, views[name]["labels"], "mlm")
        for name, spec in self.decoder_specs.items():
            hidden = self.decode(name, PaddedRows(views[name]), bottlenecks[spec.encoder])
            sums[name] = self.score(hidden, views[name]["labels"], spec.head)
        weights = self.config.weights
        losses = {
            name: total / (count.clamp(min=1) if counts is None else counts[name])
            for name, (total, count) in sums.items()
        }
        loss = torch.stack([weights[name] * value for name, value in losses.items()]).sum()
        return PreTrainingOutput(loss=loss, losses=losses, bottlenecks=bottlenecks)

    def encode(self, views: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Last hidden states (batch, length, dim) of every encoder's view."""
        return {
            name: self.encoder(views[name]["input_ids"], views[name].get("attention_mask")).last_hidden_state
            for name in self.encoder_specs
        }

    def decode(self, name: str, layout: PaddedRows, bottleneck: Tensor) -> Tensor:
        """Last hidden states (batch, length, dim) of a decoder reading `layout` through `bottleneck` (batch, dim)."""
        spec, stack, positions = self.decoder_specs[name], self.decoders[name], layout.positions()
        assert isinstance(stack, DecoderStack)
        if stack.embeddings is not None:
            memory = stack.embeddings(self.get_input_embeddings()(layout.input_ids), positions)
        else:
            memory = self.family.embed(self.encoder.backbone, positions, ids=layout.input_ids)
        if spec.entry == "first":
            memory = layout.replace_first(memory, bottleneck)
        spread = layout.spread(bottleneck)
        stream = self._stream(spec, memory, spread, positions)
        hidden: Tensor = stack(stream, memory, layout.visibility(spec), spread)
        return hidden

    def _stream(self, spec: Decoder, memory: Tensor, spread: Tensor, positions: Tensor) -> Tensor:
        """The residual stream a decoder starts from (batch, length, dim)."""
        if spec.stream == "bottleneck":
            return spread + self.family.position_vectors(self.encoder.backbone, positions)
        if spec.stream == "bottleneck_embedded":
            return self.family.embed(self.encoder.backbone, positions, words=spread)
        return memory

    def score(self, hidden: Tensor, labels: Tensor, head: str) -> tuple[Tensor, Tensor]:
        """Summed token loss; the vocabulary projection is computed at scored positions only.

        Args:
            hidden: (batch, length, dim) last hidden states.
            labels: (batch, length) token ids, `IGNORED` where nothing is scored.
            head: `mlm`, the masked-language-model head, or `tied`, the word matrix alone.

        Returns:
            The sum over scored tokens and their number (scalars).
        """
        scored = labels != IGNORED
        features, bias = hidden[scored], None
        if head == "mlm":
            features, bias = self.head(features), self.head.bias
        words = self.get_input_embeddings().weight
        assert isinstance(words, Tensor)
        return token_loss(features, labels[scored], words, bias), scored.sum()
