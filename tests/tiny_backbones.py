"""A tiny configuration of every backbone family, all with the same special tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import (
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedConfig,
    RobertaConfig,
    XLMRobertaConfig,
)

VOCABULARY, HIDDEN = 100, 32
PAD, CLS, SEP, MASK = 0, 2, 3, 4

_TOKENS = {"vocab_size": VOCABULARY, "pad_token_id": PAD}
_SIZES = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
}


def _like_bert(kind: type[PreTrainedConfig], **more: Any) -> Callable[[float], PreTrainedConfig]:
    def build(dropout: float) -> PreTrainedConfig:
        rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        return kind(**_TOKENS, **_SIZES, **rates, **more)

    return build


def _distilbert(dropout: float) -> PreTrainedConfig:
    sizes = {"dim": HIDDEN, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 24}
    return DistilBertConfig(**_TOKENS, **sizes, dropout=dropout, attention_dropout=dropout)


def _modernbert(dropout: float) -> PreTrainedConfig:
    """Three layers, the second and third seeing two tokens to either side."""
    special = {"bos_token_id": CLS, "cls_token_id": CLS, "eos_token_id": SEP, "sep_token_id": SEP}
    rates = {"attention_dropout": dropout, "mlp_dropout": dropout, "embedding_dropout": dropout}
    sizes = {**_SIZES, "num_hidden_layers": 3, "local_attention": 4}
    return ModernBertConfig(**_TOKENS, **sizes, **special, **rates)


BACKBONES: dict[str, Callable[[float], PreTrainedConfig]] = {
    "bert": _like_bert(BertConfig),
    "roberta": _like_bert(RobertaConfig, type_vocab_size=1),
    "xlm-roberta": _like_bert(XLMRobertaConfig, type_vocab_size=1),
    "electra": _like_bert(ElectraConfig, embedding_size=HIDDEN),
    "electra-small": _like_bert(ElectraConfig, embedding_size=16),
    "distilbert": _distilbert,
    "mpnet": _like_bert(MPNetConfig),
    "modernbert": _modernbert,
}
