"""From a checkpoint to directories that others load without our code."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_dense.errors import InputError
from hf_dense.hub.cards import write_model_card
from hf_dense.hub.fingerprints import encoder_fingerprint, retriever_fingerprint
from hf_dense.hub.lineage import lineage_of
from hf_dense.hub.loading import drop_pooler, is_cross_encoder, load_encoder, load_tokenizer, quiet_loading
from hf_dense.methods import METHODS
from hf_dense.modeling.bottleneck_backbones import FAMILIES
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import is_main_process
from hf_dense.storage.staged import Staged

PoolingMode = Literal["cls", "mean"]
Similarity = Literal["dot", "cosine"]

_ROLES = ("query", "document")


def export_sentence_transformer(
    checkpoint: str | Path,
    out: str | os.PathLike[str] | Output,
    *,
    max_length: int,
    pooling: PoolingMode = "cls",
    normalize: bool = False,
    similarity: Similarity = "dot",
    prompts: Mapping[str, str] | None = None,
) -> Path:
    """Write the encoder of `checkpoint` as a Sentence-Transformers directory that holds no custom code.

    Args:
        checkpoint: directory or Hub id of an hf_dense pre-training checkpoint, or of a plain encoder;
            its tokenizer is beside it.
        out: where the directory appears, complete or not at all.
        max_length: longest input in tokens, special tokens included; longer texts are cut.
        pooling: `cls`, the bottleneck that pre-training trained, or `mean` over the tokens.
        normalize: divide each vector by its norm, as a part of the model.
        similarity: what the model's `similarity` computes, and what fine-tuning and search follow.
        prompts: text put before each `query` or `document`; none by default.

    Returns:
        The directory; `SentenceTransformer` loads it without hf_dense and without remote code.

    Raises:
        InputError: no checkpoint or no tokenizer there, a tokenizer without [CLS] or that disagrees with the
            checkpoint's vocabulary, a length the encoder cannot take, an option outside its values, or `out` holds
            something else (see `Output.stage`).
    """
    _check_options(pooling, similarity, prompts or {})
    tokenizer, encoder = load_tokenizer(checkpoint), load_encoder(checkpoint)
    check_fit(tokenizer, encoder.config, checkpoint, max_length, pooling)
    every_prompt = {role: (prompts or {}).get(role, "") for role in _ROLES}

    def write(work: Staged) -> None:
        transformer = as_module(encoder, tokenizer, work.pieces, max_length)
        modules: list[nn.Module] = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)]
        if normalize:
            modules.append(Normalize())
        model = SentenceTransformer(modules=modules, similarity_fn_name=similarity, prompts=every_prompt, device="cpu")
        model.save_pretrained(str(work.result), create_model_card=False)

    settings = {
        "max_length": max_length,
        "pooling": pooling,
        "normalize": normalize,
        "similarity": similarity,
        "prompts": every_prompt,
    }
    return write_export(out, "retriever", checkpoint, encoder_fingerprint(encoder, tokenizer), write, settings)


def export_encoder(checkpoint: str | Path, out: str | os.PathLike[str] | Output) -> Path:
    """Write the encoder of `checkpoint`, without pooler, as a plain transformers directory.

    Args:
        checkpoint: directory or Hub id of an hf_dense pre-training checkpoint, or of a plain encoder; its tokenizer is
            beside it.
        out: where the directory appears, complete or not at all.

    Returns:
        The directory; `AutoModel.from_pretrained` loads it without hf_dense and without remote code.

    Raises:
        InputError: no checkpoint or no tokenizer there, more tokens than the encoder has, or `out` holds something
            else (see `Output.stage`).
    """
    tokenizer, encoder = load_tokenizer(checkpoint), load_encoder(checkpoint)
    _check_vocabulary(tokenizer, encoder.config, checkpoint)

    def write(work: Staged) -> None:
        encoder.save_pretrained(work.result)
        tokenizer.save_pretrained(work.result)

    return write_export(out, "encoder", checkpoint, encoder_fingerprint(encoder, tokenizer), write)


def export_cross_encoder(
    checkpoint: str | Path, out: str | os.PathLike[str] | Output, max_length: int | None = None
) -> Path:
    """Write a trained re-ranker, or another classifier of sequences, as a plain Sentence-Transformers directory.

    Args:
        checkpoint: directory or Hub id of a model with a head for sequences, its tokenizer beside it.
        out: where the directory appears, complete or not at all.
        max_length: longest pair in tokens, special tokens included; the checkpoint's own where None.

    Returns:
        The directory; `CrossEncoder` loads it without hf_dense and gives what `CrossEncoder(checkpoint)` does: raw
        logits for a re-ranker trained here.

    Raises:
        InputError: nothing to load, no head for sequences, a tokenizer that does not fit, more tokens than the encoder
            has positions, or `out` holds something else (see `Output.stage`).
    """
    tokenizer = load_tokenizer(checkpoint)
    if not is_cross_encoder(checkpoint):
        raise InputError(f"{checkpoint} has no head that scores pairs; train a re-ranker from it first.")
    with quiet_loading():
        model = CrossEncoder(str(checkpoint), device="cpu")
    if max_length is None:
        _check_vocabulary(tokenizer, model.config, checkpoint)
    else:
        check_fit(tokenizer, model.config, checkpoint, max_length, "mean")
    fingerprint = retriever_fingerprint(model)
    model.max_seq_length = max_length or model.max_seq_length

    def write(work: Staged) -> None:
        model.save_pretrained(str(work.result), create_model_card=False)

    return write_export(out, "cross-encoder", checkpoint, fingerprint, write, {"max_length": model.max_seq_length})


def write_export(
    out: str | os.PathLike[str] | Output,
    kind: str,
    checkpoint: str | Path,
    fingerprint: str,
    write: Callable[[Staged], None],
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> Path:
    """Stage an export: its files, its manifest with the steps that made the checkpoint, and its card.

    Args:
        out: where the directory appears, complete or not at all.
        kind: of output.
        checkpoint: directory or Hub id of what is exported.
        fingerprint: of that.
        write: writes the files into the `result` of the work that it is given; `pieces` may hold what it needs
            meanwhile.
        settings: of the export.
        seed: of its draws.

    Returns:
        The directory.

    Raises:
        InputError: as `Output.stage` does.
    """
    sources = {"checkpoint": Source(str(checkpoint), fingerprint)}
    with Output.of(out).stage(kind, settings or {}, sources, seed=seed) as work:
        if not work.done and is_main_process():
            work.facts["lineage"] = lineage = lineage_of(checkpoint)
            if not any(step["method"] for step in lineage):
                work.facts |= _method(checkpoint)
            write(work)
            manifest = replace(work.manifest, facts=work.facts)
            write_model_card(work.result, manifest, name=str(work.path))
    return work.path


def _method(checkpoint: str | Path) -> dict[str, str]:
    """The method that a checkpoint was pre-trained with, where its configuration says so."""
    try:
        name = AutoConfig.from_pretrained(str(checkpoint), trust_remote_code=False).model_type
    except (OSError, ValueError):  # a retriever without an encoder of transformers
        return {}
    return {"method": name} if name in METHODS else {}


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
    encoder.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    with quiet_loading():
        module: Transformer = Transformer(str(scratch), max_seq_length=max_length, **options)
    drop_pooler(module)
    return module


def _check_options(pooling: str, similarity: str, prompts: Mapping[str, str]) -> None:
    for name, value, allowed in (
        ("pooling", pooling, get_args(PoolingMode)),
        ("similarity", similarity, get_args(Similarity)),
        *(("A prompt's role", role, _ROLES) for role in prompts),
    ):
        if value not in allowed:
            raise InputError(f"{name} is {value!r}; it must be one of: {', '.join(allowed)}.")


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
    if pooling == "cls" and tokenizer("a")["input_ids"][:1] != [tokenizer.cls_token_id]:
        raise InputError(f"The tokenizer of {checkpoint} does not put [CLS] first; cls pooling needs it.")
    _check_vocabulary(tokenizer, config, checkpoint)
    longest = max_length
    if config.model_type in FAMILIES:
        longest = FAMILIES[config.model_type].shape(config).positions
    if max_length > longest:
        raise InputError(f"max_length is {max_length} tokens; the encoder of {checkpoint} takes at most {longest}.")


def _check_vocabulary(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, checkpoint: str | Path) -> None:
    if len(tokenizer) > config.vocab_size:
        raise InputError(
            f"The tokenizer of {checkpoint} has {len(tokenizer)} tokens, its encoder only {config.vocab_size}."
        )
