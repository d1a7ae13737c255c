"""DupMAE: RetroMAE, and the passage's bag of words from the encoder's ordinary states.

Liu, Xiao, Shao and Cao, "RetroMAE-2: Duplex Masked Auto-Encoder For Pre-Training Retrieval-Oriented Language Models"
(ACL 2023), arXiv:2305.02564.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from .bottleneck_backbones import family_of
from .bottleneck_decoder import VocabularyHead
from .bottleneck_losses import word_scores
from .configuration_bottleneck import Bag, BottleneckConfig, Decoder, Encoder, View
from .modeling_bottleneck import BottleneckForPreTraining, BottleneckModel


class DupMAEConfig(BottleneckConfig):
    """As RetroMAE, with the decoder's query through the embedding block, and the bag-of-words loss at weight 0.1.

    The defaults are the released code's, which the published checkpoints come from. The paper's: weight 1, no score
    from masked positions and a projection of its own,
    `encoders={"encoder": {"bag": {"weight": 1.0, "masked": False, "head": "own"}}}`; its equation 8 as printed, a sum,
    is `{"bag": {"target": "sum", "weight": 1.0}}` and outweighs the other losses by far.

    Args:
        dense_size: length d' of the projection of [CLS] in the hybrid vector (`DupMAEForRetrieval`).
        top_words: entries of the vocabulary vector that a passage keeps there.
    """

    model_type = "dupmae"
    declared_encoders = {"encoder": Encoder(View(rate=0.30), bag=Bag())}
    declared_decoders = {
        "decoder": Decoder(
            View(select="none", labels="every"), layers=1, stream="bottleneck_embedded", attention="sampled:0.5"
        )
    }

    dense_size: int = 384
    top_words: int = 384


class DupMAEModel(BottleneckModel):
    """The encoder of a DupMAE checkpoint."""

    config_class = DupMAEConfig
    _keys_to_ignore_on_load_unexpected = [r"^head\.", r"^decoders\.", r"^bag_heads\."]


class DupMAEForPreTraining(BottleneckForPreTraining):
    """DupMAE's encoder, head and decoder."""

    config_class = DupMAEConfig


@dataclass
class HybridOutput(ModelOutput):
    """The hybrid vector of texts, and so of queries.

    Args:
        dense: (batch, d') projection of [CLS].
        words: (batch, vocabulary) score of every token.
    """

    dense: Tensor | None = None
    words: Tensor | None = None


class PassageVectors(NamedTuple):
    """The hybrid vectors of passages, with the best entries of the vocabulary vector alone.

    Args:
        dense: (passages, d').
        values: (passages, k) scores of the kept tokens.
        tokens: (passages, k) their ids.
    """

    dense: Tensor
    values: Tensor
    tokens: Tensor


class DupMAEForRetrieval(PreTrainedModel):
    """DupMAE's representation of texts: [CLS] projected to fewer dimensions, and the best entries of the vocabulary
    vector (paper, equations 10 to 12).

    `from_pretrained` takes a DupMAE pre-training checkpoint; the projection is new then (the paper introduces it with
    fine-tuning and names no initialisation), which transformers reports.
    """

    config: DupMAEConfig
    config_class = DupMAEConfig
    base_model_prefix = "encoder"
    _keys_to_ignore_on_load_unexpected = [r"^decoders\."]
    _supports_sdpa = True

    def __init__(self, config: DupMAEConfig) -> None:
        super().__init__(config)
        self.encoder = DupMAEModel(config)
        shape = family_of(config.backbone).shape(config.backbone)
        self.head = VocabularyHead(shape, config.vocab_size)
        own = [encoder for encoder, bag in config.bags.values() if bag.head == "own"]
        self.bag_heads = nn.ModuleDict({name: nn.Linear(shape.hidden, config.vocab_size) for name in own})
        self.projection = nn.Linear(shape.hidden, config.dense_size, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> HybridOutput:
        """The hybrid vectors of unmasked texts.

        Args:
            input_ids: (batch, length) token ids.
            attention_mask: (batch, length), 1 = token, 0 = padding.

        Returns:
            `dense` (equation 10) and `words` (equation 7; every position but [CLS] scores).
        """
        hidden = self.encoder(input_ids, attention_mask).last_hidden_state
        readable = attention_mask.bool().clone()
        readable[:, 0] = False
        features, (words, bias) = hidden, self._vocabulary()
        if not self.bag_heads:
            features = self.head(hidden)
        return HybridOutput(self.projection(hidden[:, 0]), word_scores(features, readable, words, bias))

    def _vocabulary(self) -> tuple[Tensor, Tensor]:
        """Matrix and bias of the vocabulary projection."""
        for head in self.bag_heads.values():
            assert isinstance(head, nn.Linear)
            return head.weight, head.bias
        words = self.encoder.get_input_embeddings().weight
        assert isinstance(words, Tensor)
        return words, self.head.bias

    def passages(self, output: HybridOutput) -> PassageVectors:
        """What is stored of passages: the `top_words` best entries of the vocabulary vector (equation 11)."""
        assert output.dense is not None
        assert output.words is not None
        best = output.words.topk(min(self.config.top_words, output.words.shape[-1]), dim=-1)
        return PassageVectors(output.dense, best.values, best.indices)


def hybrid_scores(queries: HybridOutput, passages: PassageVectors) -> Tensor:
    """Relevance of every passage to every query.

    Args:
        queries: of n texts; their vocabulary vectors are whole.
        passages: of m texts.

    Returns:
        (n, m): the product of the dense parts, and of the entries that each passage keeps (equation 12).
    """
    assert queries.dense is not None
    assert queries.words is not None
    found = queries.words[:, passages.tokens]  # (n, m, k)
    return queries.dense @ passages.dense.T + (found * passages.values).sum(-1)
