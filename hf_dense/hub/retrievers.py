"""Retrievers in memory, from a model at any point of its making; its own settings stay unless others are given."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_model
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_dense.errors import InputError, as_sentence
from hf_dense.hub.loading import (
    check_makes_vectors,
    check_vocabulary,
    drop_pooler,
    is_retriever,
    load_config,
    load_encoder,
    load_retriever,
    load_tokenizer,
)
from hf_dense.hub.retriever_settings import (
    DEFAULTS,
    RetrieverSettings,
    check_can_cut,
    check_choices,
    checkpoint_settings,
    set_lengths,
    settings_of,
)
from hf_dense.hub.towers import two_encoders
from hf_dense.modeling.bottleneck_backbones import FAMILIES, quiet_loading

logger = logging.getLogger(__name__)

_NOTHING: Final = RetrieverSettings()


def build_retriever(model: str | Path, given: RetrieverSettings = _NOTHING) -> SentenceTransformer:
    """A retriever with its model's own settings, but for those that are given; a log line names each that differs.

    Args:
        model: directory or Hub id of a Sentence-Transformers model, whose modules are kept, of a pre-training
            checkpoint, or of a plain encoder, which is pooled at [CLS] and compared by the dot product.
        given: what is chosen.

    Raises:
        InputError: nothing to load, a choice that the model cannot follow, or no length is known.
    """
    check_choices(given)
    if is_retriever(model):
        retriever = load_retriever(model)
        own = settings_of(retriever)
        _change(retriever, own, given, model)
    else:
        check_makes_vectors(model)
        tokenizer, encoder = load_tokenizer(model), load_encoder(model)
        own = checkpoint_settings(load_config(model) or encoder.config, tokenizer)
        retriever = assemble(encoder, tokenizer, DEFAULTS.updated(own).updated(given), model)
    for change in own.changes(given):
        logger.warning("%s: %s, which is its own.", model, change)
    return retriever


def as_module(
    encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, scratch: Path, max_length: int, **options: Any
) -> Transformer:
    """An encoder as the first module of a Sentence-Transformers model, without pooler.

    Args:
        encoder: of transformers.
        tokenizer: of the encoder.
        scratch: an empty directory.
        max_length: longest input in tokens.
        options: of `Transformer`.
    """
    # Not by the encoder's save_pretrained: of several processes, each with its own directory, the first alone writes.
    encoder.config.architectures = [type(encoder).__name__]
    encoder.config.save_pretrained(scratch)
    for weights in encoder.parameters():  # a part of a larger matrix (NomicBERT's Wqkv) is not saved
        if weights.untyped_storage().nbytes() > weights.nbytes:
            weights.data = weights.data.clone(memory_format=torch.contiguous_format)
    save_model(encoder, str(scratch / "model.safetensors"), metadata={"format": "pt"})
    tokenizer.save_pretrained(scratch)
    with quiet_loading():
        module: Transformer = Transformer(str(scratch), max_seq_length=max_length, **options)
    drop_pooler(module)
    return module


def check_fit(
    tokenizer: PreTrainedTokenizerBase,
    config: PreTrainedConfig,
    checkpoint: str | Path,
    max_length: int,
    pooling: str,
) -> None:
    """Pass when tokenizer, encoder, length and pooling go together.

    Raises:
        InputError: they do not.
    """
    if max_length < 2:
        raise InputError(f"max_length is {max_length}; it must be at least 2 tokens.")
    with as_sentence(f"The tokenizer of {checkpoint} cannot be used"):
        tokenizer("a")
    if pooling == "cls":
        _check_cls(tokenizer, checkpoint)
    check_vocabulary(tokenizer, config, checkpoint)
    longest = max_length
    if config.model_type in FAMILIES:
        longest = FAMILIES[config.model_type].shape(config).positions
    if max_length > longest:
        raise InputError(f"max_length is {max_length} tokens; the encoder of {checkpoint} takes at most {longest}.")


def _check_cls(tokenizer: PreTrainedTokenizerBase, checkpoint: str | Path) -> None:
    """Raise `InputError` where the first state of a text is not that of [CLS]."""
    if tokenizer("a")["input_ids"][:1] != [tokenizer.cls_token_id]:
        raise InputError(
            f"The tokenizer of {checkpoint} does not put [CLS] first; cls pooling needs it, and mean pooling "
            "(--pooling mean) does not."
        )


def assemble(
    encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, settings: RetrieverSettings, model: str | Path
) -> SentenceTransformer:
    """An encoder with pooling, and a norm where the settings have one.

    Args:
        encoder: of transformers.
        tokenizer: of the encoder.
        settings: all of them.
        model: what both are of, for errors.

    Raises:
        InputError: no length is known, or they do not go together.
    """
    length, pooling = settings.max_length, str(settings.pooling)
    if length is None:
        raise InputError(f"{model} does not say how long its texts are; name it: hf-dense export --max_length N.")
    check_fit(tokenizer, encoder.config, model, length, pooling)
    if tokenizer.padding_side != "right":
        tokenizer.padding_side = "right"  # else positions, and the first state, depend on the texts beside it
    with tempfile.TemporaryDirectory() as scratch:
        transformer = as_module(encoder, tokenizer, Path(scratch), length)
    width = transformer.get_embedding_dimension()
    pooled = Pooling(width, pooling_mode=pooling.split("+"), include_prompt=settings.include_prompt is not False)
    modules: list[nn.Module] = [transformer, pooled]
    if settings.normalize:
        modules.append(Normalize())
    retriever = SentenceTransformer(
        modules=modules,
        similarity_fn_name=settings.similarity,  # type: ignore[arg-type]
        prompts=dict(settings.prompts or {}),
    )
    retriever.model_card_data.local_files_only = True  # as in load_retriever
    set_lengths(retriever, length, settings.query_length)
    return retriever


def _change(retriever: SentenceTransformer, own: RetrieverSettings, given: RetrieverSettings, name: str | Path) -> None:
    """Set what is given, in place; all other modules stay."""
    if given.pooling not in (None, own.pooling):
        if two_encoders(retriever):
            raise InputError(f"{name} has two encoders, whose pooling stays; leave the choice of pooling out.")
        at = next((at for at, module in enumerate(retriever) if isinstance(module, Pooling)), None)
        if at is None:
            raise InputError(f"{name} has no pooling that could be another; leave the choice of pooling out.")
        if given.pooling == "cls":
            _check_cls(retriever.tokenizer, name)
        width = retriever[at].embedding_dimension
        retriever[at] = Pooling(width, given.pooling, include_prompt=retriever[at].include_prompt)
    if given.normalize and not own.normalize:
        retriever.append(Normalize())
    elif given.normalize is False and own.normalize:
        del retriever[-1]
    if given.similarity is not None:
        retriever.similarity_fn_name = given.similarity  # type: ignore[assignment]
    retriever.prompts.update(given.prompts or {})
    if given.max_length is not None:
        check_can_cut(retriever)
        encoder: Any = retriever.transformers_model
        if encoder is not None:
            check_fit(retriever.tokenizer, encoder.config, name, given.max_length, str(given.pooling or own.pooling))
    if given.max_length is not None or given.query_length is not None:
        length = given.max_length or own.max_length
        if length is None:
            raise InputError(f"{name} does not say how long its texts are; give max_length with query_length.")
        queries = given.query_length or own.query_length
        set_lengths(retriever, length, queries if given.query_length or queries is None else min(queries, length))
