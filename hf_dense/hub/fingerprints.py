"""What a model is, as far as it decides on vectors and scores; whatever the name or place it was loaded by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final, TypeGuard

from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dense.hub.retriever_settings import settings_of
from hf_dense.hub.towers import parts_of, two_encoders
from hf_dense.storage.fingerprints import fingerprint_tokenizer, fingerprint_values, fingerprint_weights

BY_THE_WAY: Final = {"_name_or_path", "architectures", "auto_map", "dtype", "transformers_version"}
"""What a configuration says that does not decide on its model."""
_UNREAD: Final = (  # in names of settings that no vector depends on
    *("dropout", "initializer", "use_cache", "gradient", "tie_word"),
    *("label", "finetuning_task", "problem_type", "output_", "return_dict", "torchscript"),
)


def encoder_fingerprint(encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Of a model's weights and configuration, and of its tokenizer."""
    return fingerprint_values(
        {
            "weights": fingerprint_weights(encoder),
            "configuration": _configuration(encoder),
            "tokenizer": _tokenizer(tokenizer, encoder),
        }
    )


def retriever_fingerprint(model: SentenceTransformer | CrossEncoder) -> str:
    """Of a retriever or a cross-encoder: its weights and tokenizer, and how it reads, pools and compares texts."""
    facts = ("max_seq_length", "prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim", "activation_fn")
    found = {fact: getattr(model, fact, None) for fact in facts}
    return fingerprint_values({**_parts(model), "modules": _modules(_all(model)), **found})


def parts_fingerprint(model: SentenceTransformer) -> str:
    """Of all of a retriever but its `RetrieverSettings` (pooling, norm, similarity, prompts, longest text)."""
    modules = _modules(module for module in _all(model) if not isinstance(module, Normalize))
    for _, config in modules:
        for setting in ("pooling_mode", "query_length", "document_length"):
            config.pop(setting, None)
    facts = {fact: getattr(model, fact, None) for fact in ("default_prompt_name", "truncate_dim")}
    return fingerprint_values({**_parts(model), "modules": modules, **facts})


def making_of(model: SentenceTransformer) -> dict[str, Any]:
    """How a retriever makes vectors, beside its weights: settings, modules and its encoder's own options, by name."""
    settings = {**asdict(settings_of(model)), "prompts": {role: text for role, text in model.prompts.items() if text}}
    modules = {f"module {at} ({kind})": config for at, (kind, config) in enumerate(_modules(model))}
    facts = {fact: getattr(model, fact, None) for fact in ("default_prompt_name", "truncate_dim")}
    config = getattr(model.transformers_model, "config", None)
    own = {} if config is None else type(config)().to_dict()  # others are of those who saved it
    read = {name: value for name, value in _configuration(model.transformers_model).items() if name in own}
    read = {name: value for name, value in read.items() if not any(word in name for word in _UNREAD)}
    return {**settings, **modules, **facts, "encoder": read}


def _parts(model: SentenceTransformer | CrossEncoder) -> dict[str, Any]:
    """Weights, configuration and tokenizer."""
    tokenizer, encoder = getattr(model, "tokenizer", None), getattr(model[0], "model", None)
    pairs = encoder if isinstance(model, CrossEncoder) else None
    return {
        "weights": fingerprint_weights(model),
        "configuration": _configuration(encoder),
        "tokenizer": None if tokenizer is None else _tokenizer(tokenizer, pairs),
        "lower case": getattr(model[0], "do_lower_case", None),
        **({"encoders": _encoders(model)} if _has_two(model) else {}),
    }


def _has_two(model: SentenceTransformer | CrossEncoder) -> TypeGuard[SentenceTransformer]:
    return isinstance(model, SentenceTransformer) and two_encoders(model)


def _all(model: SentenceTransformer | CrossEncoder) -> list[nn.Module]:
    """The modules; before those of two encoders what says which is for what."""
    return [model[0], *parts_of(model)] if _has_two(model) else list(model)


def _encoders(model: SentenceTransformer) -> list[Any]:
    """Configuration, tokenizer and longest text of two encoders."""
    readers = [part for part in parts_of(model) if hasattr(part, "tokenizer")]
    return [
        [_configuration(getattr(one, "model", None)), _tokenizer(one.tokenizer), one.max_seq_length]
        for one in readers
        if isinstance(one.tokenizer, PreTrainedTokenizerBase | Tokenizer)
    ]


def _tokenizer(tokenizer: PreTrainedTokenizerBase | Tokenizer, pairs: Any = None) -> str:
    """A tokenizer, and what it does beside tokens: where it pads, which moves positions; how it reads pairs.

    Args:
        tokenizer: of the model.
        pairs: encoder that reads pairs of texts, which may tell them apart.
    """
    found = fingerprint_tokenizer(tokenizer)
    if getattr(tokenizer, "padding_side", "right") != "right":
        found += ", pads on the left"
    kinds = getattr(getattr(pairs, "config", None), "type_vocab_size", 0)
    if kinds > 1 and "token_type_ids" not in getattr(tokenizer, "model_input_names", ()):
        found += ", tells no parts of a pair"
    return found


def _modules(modules: Iterable[nn.Module]) -> list[tuple[str, dict[str, Any]]]:
    return [(type(module).__name__, getattr(module, "get_config_dict", dict)()) for module in modules]


def _configuration(encoder: Any) -> dict[str, Any]:
    config = getattr(encoder, "config", None)
    return {name: value for name, value in config.to_dict().items() if name not in BY_THE_WAY} if config else {}
