"""Two encoders, one for queries and one for passages, that share no weights; and what a retriever is made of."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm, Normalize, Router, StaticEmbedding
from torch import nn

from hf_dense.errors import InputError

_ROUTES: Final = "router_config.json"  # beside the modules of a model of two encoders
_DEVIATION: Final = 0.02  # of new weights, as BERT's


def two_encoders(model: SentenceTransformer) -> bool:
    """Whether queries and passages go through modules of their own."""
    return isinstance(model[0], Router)


def parts_of(model: SentenceTransformer) -> list[nn.Module]:
    """The modules of a retriever in their order; of two encoders those of each, one after the other."""
    found: list[nn.Module] = []
    for module in model:
        routes: list[Any] = [*module.sub_modules.values()] if isinstance(module, Router) else [[module]]
        found += [part for route in routes for part in route]
    return found


def check_tunable(model: SentenceTransformer) -> None:
    """Raise `InputError` where a retriever reads by static embeddings, which are not fine-tuned here."""
    if any(isinstance(part, StaticEmbedding) for part in parts_of(model)):
        raise InputError("Static embeddings are not fine-tuned here; Sentence-Transformers' own trainer does that.")


def reader_of(model: SentenceTransformer, role: str) -> nn.Module:
    """The module that reads the texts of a role, `query` or `document`."""
    first: nn.Module = model[0]
    if not isinstance(first, Router):
        return first
    routes: dict[str, Any] = dict(first.sub_modules.items())
    reader: nn.Module = routes[role if role in routes else first.default_route or next(iter(routes))][0]
    return reader


def untie(model: SentenceTransformer) -> SentenceTransformer:
    """A retriever whose queries and passages are encoded by two encoders that share no weights.

    Args:
        model: a retriever, whose modules become those of passages, and copies of them those of queries; one that has
            two encoders is given back.

    Returns:
        The retriever; a norm at the end stays what both share. `SentenceTransformer` saves and loads it as it is.

    Source: Karpukhin et al. 2020, arXiv:2004.04906, section 3.1: two independent encoders, both begun from BERT.
    """
    if two_encoders(model):
        return model
    own, shared = _divided(model)
    router = Router.for_query_document([deepcopy(module) for module in own], own)
    return _like(model, [router, *shared])


def project(model: SentenceTransformer, seed: int) -> SentenceTransformer:
    """A retriever with a linear layer and a norm behind its pooling, as SEED-Encoder's fine-tuning adds them.

    Args:
        model: a retriever; one that has such a head is given back, and its modules are used, not copied.
        seed: of the new weights.

    Raises:
        InputError: it has two encoders, or its vectors are of no known length.

    Source: the released fine-tuning of arXiv:2102.09206 (the paper does not say it): LN(W h + b), W of N(0, 0.02).
    """
    if any(isinstance(one, Dense) and isinstance(two, LayerNorm) for one, two in pairwise(parts_of(model))):
        return model
    with model.truncate_embeddings(None):
        width = model.get_embedding_dimension()
    if two_encoders(model) or width is None:
        raise InputError("A projection is added to one encoder; add it before its weights are shared no more.")
    own, shared = _divided(model)
    weight = torch.empty(width, width).normal_(std=_DEVIATION, generator=torch.Generator().manual_seed(seed))
    linear = Dense(width, width, activation_function=None, init_weight=weight, init_bias=torch.zeros(width))
    return _like(model, [*own, linear, LayerNorm(width), *shared])


def check_one_encoder(model: str | Path) -> None:
    """Raise `InputError` where a directory is one of two encoders."""
    if (Path(model) / _ROUTES).is_file():
        parts = sorted(file.parent.name for file in Path(model).glob("*_0_*/config.json"))
        named = " or ".join(str(Path(model) / part) for part in parts)
        raise InputError(f"{model} has two encoders, and one is wanted here; name one of them, {named}.")


def _divided(model: SentenceTransformer) -> tuple[list[Any], list[Any]]:
    """All modules but a norm at the end, and that."""
    modules: list[Any] = list(model)
    at = len(modules) - isinstance(modules[-1], Normalize)
    return modules[:at], modules[at:]


def _like(model: SentenceTransformer, modules: Sequence[nn.Module]) -> SentenceTransformer:
    """A retriever of other modules that reads and compares texts as one does."""
    similarity: Any = model.similarity_fn_name
    prompts: Any = dict(model.prompts)
    made = SentenceTransformer(
        modules=list(modules),
        similarity_fn_name=similarity,
        prompts=prompts,
        default_prompt_name=model.default_prompt_name,
        truncate_dim=model.truncate_dim,
        device=str(model.device),
    )
    made.model_card_data.local_files_only = True  # as in load_retriever
    return made
