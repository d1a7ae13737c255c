"""From a checkpoint to directories that others load without our code."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from sentence_transformers import CrossEncoder, CrossEncoderModelCardData, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedTokenizerBase

from hf_dense.errors import InputError
from hf_dense.hub.loading import drop_pooler, load_encoder, load_tokenizer, quiet_loading
from hf_dense.modeling.bottleneck_backbones import FAMILIES
from hf_dense.storage.legacy import atomic_directory, check_replaceable

PoolingMode = Literal["cls", "mean"]
Similarity = Literal["dot", "cosine"]

_ROLES = ("query", "document")


def export_sentence_transformer(
    checkpoint: str | Path,
    output_dir: str | Path,
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
        output_dir: where the directory appears, complete or not at all; an earlier export is replaced.
        max_length: longest input in tokens, special tokens included; longer texts are cut.
        pooling: `cls`, the bottleneck that pre-training trained, or `mean` over the tokens.
        normalize: divide each vector by its norm, as a part of the model.
        similarity: what the model's `similarity` computes, and what fine-tuning and search follow.
        prompts: text put before each `query` or `document`; none by default.

    Returns:
        `output_dir`; `SentenceTransformer(output_dir)` loads it without hf_dense and without remote code.

    Raises:
        InputError: no checkpoint or no tokenizer there, a tokenizer without [CLS] or that disagrees with the
            checkpoint's vocabulary, a length the encoder cannot take, an option outside its values, an
            `output_dir` that holds something else.
    """
    check_replaceable(output_dir, marker="modules.json")
    _check_options(pooling, similarity, prompts or {})
    tokenizer = load_tokenizer(checkpoint)
    encoder = load_encoder(checkpoint)
    check_fit(tokenizer, encoder.config, checkpoint, max_length, pooling)
    target = Path(output_dir)
    with tempfile.TemporaryDirectory() as plain, atomic_directory(target) as work:
        encoder.save_pretrained(plain)
        tokenizer.save_pretrained(plain)
        with quiet_loading():
            transformer = Transformer(plain, max_seq_length=max_length)
        drop_pooler(transformer)
        modules: list[nn.Module] = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)]
        if normalize:
            modules.append(Normalize())
        model = SentenceTransformer(
            modules=modules,
            similarity_fn_name=similarity,
            prompts={role: (prompts or {}).get(role, "") for role in _ROLES},
            device="cpu",
        )
        model.model_card_data.local_files_only = True  # as in load_retriever
        model.save_pretrained(str(work))
    return target


def export_encoder(checkpoint: str | Path, output_dir: str | Path) -> Path:
    """Write the encoder of `checkpoint`, without pooler, as a plain transformers directory.

    Args:
        checkpoint: directory or Hub id of an hf_dense pre-training checkpoint, or of a plain encoder; its tokenizer is
            beside it.
        output_dir: an absent or empty directory, which appears complete or not at all.

    Returns:
        `output_dir`; `AutoModel.from_pretrained(output_dir)` loads it without hf_dense and without remote code.

    Raises:
        InputError: no checkpoint or no tokenizer there, more tokens than the encoder has, or something is in
            `output_dir`.
    """
    _check_empty(output_dir)
    tokenizer = load_tokenizer(checkpoint)
    encoder = load_encoder(checkpoint)
    _check_vocabulary(tokenizer, encoder.config, checkpoint)
    with atomic_directory(output_dir) as work:
        encoder.save_pretrained(work)
        tokenizer.save_pretrained(work)
    return Path(output_dir)


def export_cross_encoder(checkpoint: str | Path, output_dir: str | Path, max_length: int | None = None) -> Path:
    """Write a trained re-ranker, or another classifier of sequences, as a plain Sentence-Transformers directory.

    Args:
        checkpoint: directory or Hub id of a model with a head for sequences, its tokenizer beside it.
        output_dir: an absent or empty directory, which appears complete or not at all.
        max_length: longest pair in tokens, special tokens included; the checkpoint's own where None.

    Returns:
        `output_dir`; `CrossEncoder(output_dir)` loads it without hf_dense and gives what `CrossEncoder(checkpoint)`
        does: raw logits for a re-ranker trained here.

    Raises:
        InputError: nothing to load, no head for sequences, a tokenizer that does not fit, more tokens than the encoder
            has positions, or something is in `output_dir`.
    """
    _check_empty(output_dir)
    tokenizer = load_tokenizer(checkpoint)
    try:
        config = AutoConfig.from_pretrained(str(checkpoint), trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot load a cross-encoder from {checkpoint}.") from error
    if not any(name.endswith("ForSequenceClassification") for name in config.architectures or ()):
        raise InputError(f"{checkpoint} has no head that scores pairs; train a re-ranker from it first.")
    if max_length is None:
        _check_vocabulary(tokenizer, config, checkpoint)
    else:
        check_fit(tokenizer, config, checkpoint, max_length, "mean")
    card = CrossEncoderModelCardData(local_files_only=True)  # as in load_retriever
    with quiet_loading():
        model = CrossEncoder(str(checkpoint), max_length=max_length, model_card_data=card, device="cpu")
    with atomic_directory(output_dir) as work:
        model.save_pretrained(str(work))
    return Path(output_dir)


def _check_empty(output_dir: str | Path) -> None:
    """Plain directories have no file that tells an earlier export from a checkpoint, so neither is replaced."""
    target = Path(output_dir)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise InputError(f"{output_dir} holds something already; name another place or remove it.")


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
