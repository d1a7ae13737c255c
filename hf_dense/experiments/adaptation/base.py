"""Whether an adaptation can start from a model: found before documents are cut, queries made and speeds measured."""

from __future__ import annotations

from typing import Any, get_args

from sentence_transformers import SentenceTransformer

from hf_dense.errors import InputError
from hf_dense.experiments.adaptation.options import NO_METHOD
from hf_dense.hub.loading import is_checkpoint, is_retriever
from hf_dense.hub.retriever_settings import PoolingMode, Similarity, embedder_settings
from hf_dense.hub.towers import check_tunable
from hf_dense.modeling.bottleneck_backbones import FAMILIES
from hf_dense.pretraining.vocabulary import Vocabulary


def check_base(model: SentenceTransformer, name: str, pretrained: bool) -> None:
    """Pass when every arm can be made of a model.

    Args:
        model: the base as a retriever.
        name: directory or Hub id that it was loaded from.
        pretrained: whether there are arms that are pre-trained.

    Raises:
        InputError: its similarity is neither dot nor cosine; it cannot be fine-tuned; or, where it is to be
            pre-trained, it pools where no bottleneck can be, or would lose a part of itself, its encoder is of no
            supported family, or its tokenizer lacks a token that pre-training needs.
    """
    if model.similarity_fn_name not in get_args(Similarity):
        raise InputError(
            f"{name} compares its vectors by {model.similarity_fn_name!r}, and search needs dot or cosine; make a copy "
            "that does so with hf-dense export --similarity."
        )
    check_tunable(model)
    if pretrained and not is_checkpoint(name):
        try:
            _check_pretrainable(model, name)
        except InputError as error:
            raise InputError(f"{error} With --method {NO_METHOD} it is adapted without pre-training.") from error


def _check_pretrainable(model: SentenceTransformer, name: str) -> None:
    if is_retriever(name) and (pooling := embedder_settings(name).pooling) not in get_args(PoolingMode):
        raise InputError(f"{name} pools by {pooling!r}, where no bottleneck of pre-training can be.")
    encoder: Any = model.transformers_model
    if encoder.config.model_type not in FAMILIES:
        raise InputError(
            f"The encoder of {name} is a {encoder.config.model_type}, which is not pre-trained here; that is: "
            f"{', '.join(FAMILIES)}."
        )
    Vocabulary.of(model.tokenizer)
