"""What a model is, as far as it decides on vectors and scores; whatever the name or place it was loaded by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dense.storage.fingerprints import fingerprint_tokenizer, fingerprint_values, fingerprint_weights

_BY_THE_WAY: Final = {"_name_or_path", "architectures", "auto_map", "dtype", "transformers_version"}


def encoder_fingerprint(encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Of a model's weights and configuration, and of its tokenizer."""
    return fingerprint_values(
        {
            "weights": fingerprint_weights(encoder),
            "configuration": _configuration(encoder),
            "tokenizer": fingerprint_tokenizer(tokenizer),
        }
    )


def retriever_fingerprint(model: SentenceTransformer | CrossEncoder) -> str:
    """Of a retriever or a cross-encoder: its weights and tokenizer, and how it reads, pools and compares texts."""
    facts = ("max_seq_length", "prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim", "activation_fn")
    found = {fact: getattr(model, fact, None) for fact in facts}
    return fingerprint_values({**_parts(model), "modules": _modules(model), **found})


def parts_fingerprint(model: SentenceTransformer) -> str:
    """Of all of a retriever but its `RetrieverSettings` (pooling, norm, similarity, prompts, longest text)."""
    modules = _modules(module for module in model if not isinstance(module, Normalize))
    for _, config in modules:
        config.pop("pooling_mode", None)
    facts = {fact: getattr(model, fact, None) for fact in ("default_prompt_name", "truncate_dim")}
    return fingerprint_values({**_parts(model), "modules": modules, **facts})


def _parts(model: SentenceTransformer | CrossEncoder) -> dict[str, Any]:
    """Weights, configuration and tokenizer."""
    tokenizer = getattr(model, "tokenizer", None)
    return {
        "weights": fingerprint_weights(model),
        "configuration": _configuration(getattr(model[0], "model", None)),
        "tokenizer": None if tokenizer is None else fingerprint_tokenizer(tokenizer),
        "lower case": getattr(model[0], "do_lower_case", None),
    }


def _modules(modules: Iterable[nn.Module]) -> list[tuple[str, dict[str, Any]]]:
    return [(type(module).__name__, getattr(module, "get_config_dict", dict)()) for module in modules]


def _configuration(encoder: Any) -> dict[str, Any]:
    config = getattr(encoder, "config", None)
    return {name: value for name, value in config.to_dict().items() if name not in _BY_THE_WAY} if config else {}
