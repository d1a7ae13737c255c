"""A pre-training step as released implementations compute it: what `benchmarks/pretraining.py` compares ours with.

Written from the methods' equations and driven by a method's declaration, so that it is one function for all of them. It
has the weights of one of our models and reads the same views, and calls nothing of the model's forward pass but single
layers of PyTorch. What is plain about it:

- every encoder reads its view in a pass of its own, with transformers' `BertModel`, every layer at every position;
- decoders work on all positions, padding included, with masks that are added to the scores of attention;
- the vocabulary is projected at every position, (batch, length, vocabulary), and the positions that are not scored are
  left out by `cross_entropy(ignore_index=-100)`;
- SimLM's generator scores every position too.

Where releases differ among themselves it takes the faster way: attention is PyTorch's `scaled_dot_product_attention`
throughout (theirs is spelled out), DupMAE's bag of words reads the scores that the encoder's own loss has, SimLM's
generator draws at masked positions only, and views are as long as the batch's longest text. `pad_views` makes them as
long as the model can read, which is what MASTER's release does. (Those of Condenser, coCondenser, CoT-MAE and
query-as-context's coCondenser do so too, but on texts that were cut to fill that length.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertModel
from transformers.activations import ACT2FN

from hf_dense.modeling.configuration_bottleneck import Bag, BottleneckConfig, Decoder
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining

Views = Mapping[str, Mapping[str, Tensor]]

HIDDEN_SCORE = -1e4  # added to the score of a position that may not be seen; finite also in half precision


class PlainPretraining(nn.Module):
    """Any method on BERT, with a copy of a model's weights; called with views, it gives the loss.

    Args:
        model: whose weights are copied. Its bottleneck is the state of [CLS], its losses are those of tokens, contrasts
            and bags of words.
    """

    def __init__(self, model: BottleneckForPreTraining) -> None:
        super().__init__()
        self.config: BottleneckConfig = model.config
        self.backbone = BertModel(model.config.backbone, add_pooling_layer=False)
        self.backbone.load_state_dict(model.encoder.backbone.state_dict())
        self.head, self.decoders, self.bag_heads = map(deepcopy, (model.head, model.decoders, model.bag_heads))
        self.generator: nn.Module | None = deepcopy(getattr(model, "generator", None))
        self.activation = ACT2FN[model.config.backbone.hidden_act]
        self.train(model.training)

    def train(self, mode: bool = True) -> PlainPretraining:
        """Training mode for all but the generator, which is frozen."""
        super().train(mode)
        if self.generator is not None:
            self.generator.eval()
        return self

    def forward(self, views: Views) -> Tensor:
        """The weighted sum of all losses."""
        config = self.config
        views = {name: self.replace(view) if "uniform" in view else view for name, view in views.items()}
        states = {name: self.encode(views[name]) for name in config.encoder_specs}
        scores = {name: self.project(layers[-1], "mlm") for name, layers in states.items()}
        losses = {name: token_loss(scored, views[name]["labels"]) for name, scored in scores.items()}
        for name, spec in config.decoder_specs.items():
            view = views[config.scored[name]]
            losses[name] = token_loss(self.project(self.decode(name, view, states), spec.head), view["labels"])
        for name, encoder in config.contrasts.items():
            losses[name] = contrast(states[encoder][-1][:, 0])
        for name, (encoder, bag) in config.bags.items():
            found = scores[encoder] if bag.head == "mlm" else self.bag_heads[encoder](states[encoder][-1])
            losses[name] = bag_loss(found, views[encoder], bag)
        return torch.stack([config.weights[name] * loss for name, loss in losses.items()]).sum()

    def encode(self, view: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """(batch, length, dim) states of every layer, the embeddings at 0."""
        read = {key: view[key] for key in ("input_ids", "attention_mask", "token_type_ids") if key in view}
        return tuple(self.backbone(**read, output_hidden_states=True).hidden_states)

    def project(self, hidden: Tensor, head: str) -> Tensor:
        """(batch, length, dim) states -> (batch, length, vocabulary) scores."""
        words = self.backbone.embeddings.word_embeddings.weight
        if head == "tied":
            return F.linear(hidden, words)
        return F.linear(self.head.norm(self.activation(self.head.dense(hidden))), words, self.head.bias)

    def decode(self, name: str, view: Mapping[str, Tensor], states: Mapping[str, tuple[Tensor, ...]]) -> Tensor:
        """(batch, length, dim) last states of a decoder."""
        spec: Decoder = self.config.decoder_specs[name]
        stack: Any = self.decoders[spec.shares or name]
        embeddings, ids = self.backbone.embeddings, view["input_ids"]
        bottleneck = states[spec.encoder][-1][:, :1]  # (batch, 1, dim)
        if spec.reads_hidden:
            memory = states[spec.encoder][self.config.hidden_layers[name]]
        elif spec.inputs == "own_embeddings":
            own = stack.embeddings
            placed = embeddings.word_embeddings(ids) + own.positions.weight[: ids.shape[1]]
            memory = self.drop(own.norm(placed))
        else:
            memory = embeddings(input_ids=ids)
        if spec.entry == "first":
            memory = torch.cat([bottleneck.to(memory.dtype), memory[:, 1:]], dim=1)
        stream, repeated = memory, bottleneck.expand(-1, ids.shape[1], -1)
        if spec.stream == "bottleneck":
            stream = repeated + embeddings.position_embeddings.weight[: ids.shape[1]]
        elif spec.stream == "bottleneck_embedded":
            stream = embeddings(inputs_embeds=repeated)
        if spec.norm == "gpt2":
            stream = self.drop(stream)
        mask = additive_mask(spec, view)
        for layer in stack.layers:
            attended = memory if spec.stream != "inputs" else stream
            stream = self.layer(layer, spec, stream, attended, mask, bottleneck)
        return stream if stack.norm is None else stack.norm(stream)

    def layer(self, part: Any, spec: Decoder, stream: Tensor, memory: Tensor, mask: Tensor, h: Tensor) -> Tensor:
        """One layer of a decoder: BERT's, or one that normalises what it reads."""
        if spec.norm == "backbone":
            stream = part.attention_norm(stream + self.drop(self.attend(part.attention, stream, memory, mask)))
            return part.output_norm(stream + self.drop(part.down(self.activation(part.up(stream)))))
        read = part.attention_norm(stream)
        stream = stream + self.drop(self.attend(part.attention, read, read, mask))
        if spec.entry == "cross_attention":  # to the bottleneck alone: a softmax over one key is 1
            stream = stream + self.drop(part.entry.output(part.entry.value(h.expand_as(stream))))
        return stream + self.drop(part.down(self.activation(part.up(part.output_norm(stream)))))

    def attend(self, part: Any, stream: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Multi-head attention from `stream` to `memory`, both (batch, length, dim)."""
        backbone = self.config.backbone
        heads = [
            projected.unflatten(-1, (backbone.num_attention_heads, -1)).transpose(1, 2)
            for projected in (part.query(stream), part.key(memory), part.value(memory))
        ]
        dropout = backbone.attention_probs_dropout_prob if self.training else 0.0
        mixed = F.scaled_dot_product_attention(*heads, attn_mask=mask.to(heads[0].dtype), dropout_p=dropout)
        return part.output(mixed.transpose(1, 2).flatten(-2))

    def drop(self, hidden: Tensor) -> Tensor:
        """The backbone's dropout."""
        return F.dropout(hidden, self.config.backbone.hidden_dropout_prob, self.training)

    @torch.no_grad()
    def replace(self, view: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """SimLM's view with a token of the generator's at every mask, drawn by the numbers that the view brings."""
        assert self.generator is not None
        read = {key: view[key] for key in ("input_ids", "attention_mask", "token_type_ids") if key in view}
        masked = view["uniform"] >= 0
        cumulative = self.generator(**read).logits.float()[masked].softmax(dim=-1).cumsum(dim=-1)
        threshold = view["uniform"][masked][:, None] * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, threshold, right=True)[:, 0].clamp(max=cumulative.shape[1] - 1)
        return {**view, "input_ids": view["input_ids"].masked_scatter(masked, drawn)}


def token_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over the scored positions, from the scores of all."""
    return F.cross_entropy(scores.flatten(0, 1).float(), labels.flatten(), ignore_index=-100)


def contrast(vectors: Tensor) -> Tensor:
    """Every vector (batch, dim) must find its partner, rows 2k and 2k + 1, by dot product among all others."""
    with torch.autocast(vectors.device.type, enabled=False):
        scores = vectors.float() @ vectors.float().T
    partner = torch.arange(len(scores), device=scores.device) ^ 1
    return F.cross_entropy(scores.fill_diagonal_(float("-inf")), partner)


def bag_loss(scores: Tensor, view: Mapping[str, Tensor], bag: Bag) -> Tensor:
    """DupMAE's: the distinct tokens of a text from the greatest of the scores (batch, length, vocabulary)."""
    present, scored = view["attention_mask"].bool(), view["labels"] != -100
    readable = present if bag.masked else present & ~scored
    added = torch.zeros(present.shape, device=present.device).masked_fill(~readable, HIDDEN_SCORE)
    likelihood = (scores[:, 1:] + added[:, 1:, None].to(scores.dtype)).max(dim=1).values.float().log_softmax(dim=-1)
    inner = present.clone()
    inner[:, 0] = False
    inner.scatter_(1, present.sum(dim=1, keepdim=True) - 1, False)
    text = torch.where(scored, view["labels"], view["input_ids"])
    wanted = torch.zeros_like(likelihood).scatter_add_(1, text, inner.to(likelihood)).clamp(max=1.0)
    if bag.target == "mean":
        wanted = wanted / inner.sum(dim=1, keepdim=True)
    return -(wanted * likelihood).sum(dim=1).mean()


def additive_mask(spec: Decoder, view: Mapping[str, Tensor]) -> Tensor:
    """(batch, 1, 1 or length, length) what is added to scores of attention: 0, or `HIDDEN_SCORE` at what is hidden."""
    seen = view["attention_mask"].bool()[:, None, :]
    if spec.attention_kind == "sampled":
        seen = seen & view["visible"]
    elif spec.attention_kind == "causal":
        place = torch.arange(seen.shape[-1], device=seen.device)
        back = place[:, None] - place
        near = (back >= 0) & (back < (int(spec.attention_value) or len(place)))
        seen = seen & (near | (place == 0))
    return torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, HIDDEN_SCORE)[:, None]


def pad_views(config: BottleneckConfig, views: Views, max_length: int) -> dict[str, dict[str, Tensor]]:
    """Views as long as the texts of their kind can be: `max_length`, or half of it where they hold half of a text."""
    fill = {"input_ids": int(config.backbone.pad_token_id), "labels": -100, "uniform": -1.0}
    padded: dict[str, dict[str, Tensor]] = {}
    for name, view in views.items():
        more = longest(config.views[name].sources, max_length) - view["input_ids"].shape[1]
        padded[name] = {
            key: F.pad(tensor, (0, more, 0, more) if key == "visible" else (0, more), value=fill.get(key, 0))
            for key, tensor in view.items()
        }
    return padded


def longest(sources: Iterable[str], max_length: int) -> int:
    """Tokens of the longest text of some sources, [CLS] and [SEP] included."""
    room = max_length - 2
    halves = {"first_half": room // 2, "second_half": room - room // 2}
    return max(halves.get(source, room) for source in sources) + 2
