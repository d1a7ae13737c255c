"""From a checkpoint to directories that others load without our code."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from sentence_transformers import CrossEncoder, SentenceTransformer

from hf_dense.data.hub_names import model_folder
from hf_dense.errors import InputError
from hf_dense.hub.cards import Measured, write_model_card
from hf_dense.hub.fingerprints import encoder_fingerprint, parts_fingerprint, retriever_fingerprint
from hf_dense.hub.lineage import lineage_of
from hf_dense.hub.loading import (
    check_vocabulary,
    check_weights,
    is_retriever,
    load_config,
    load_encoder,
    load_retriever,
    load_tokenizer,
    plain_loading,
    scoring_class,
)
from hf_dense.hub.retriever_settings import (
    PoolingMode,
    RetrieverSettings,
    Similarity,
    own_settings,
    settings_of,
    words_of,
)
from hf_dense.hub.retrievers import build_retriever, check_fit
from hf_dense.methods import METHODS
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import is_main_process
from hf_dense.storage.staged import Staged

logger = logging.getLogger(__name__)

_TRIED: Final = ("Some WORDS in Upper and lower case", "a longer text, " * 200)
_TOLERANCE: Final = 1e-4


def export_sentence_transformer(
    checkpoint: str | Path,
    out: str | os.PathLike[str] | Output,
    *,
    max_length: int | None = None,
    pooling: PoolingMode | None = None,
    normalize: bool | None = None,
    similarity: Similarity | None = None,
    prompts: Mapping[str, str] | None = None,
    query_length: int | None = None,
    results: Sequence[Measured] = (),
    remarks: Sequence[str] = (),
) -> Path:
    """Write a model as a Sentence-Transformers directory that holds no custom code.

    What is not given is the model's own: that of a retriever, whose modules are kept; of a pre-training checkpoint the
    place of its bottleneck, and what the embedder had that it started from. Else it is as said below. A log line names
    each choice that differs from the model's own.

    Args:
        checkpoint: directory or Hub id of a Sentence-Transformers model, of an hf_dense pre-training checkpoint, or of
            a plain encoder; its tokenizer is beside it.
        out: where the directory appears, complete or not at all.
        max_length: longest input in tokens, special tokens included; longer texts are cut. A plain encoder needs it.
        pooling: `cls` (where the model says nothing) or `mean`, over the tokens.
        normalize: divide each vector by its norm, as a part of the model; else not.
        similarity: what the model's `similarity` computes, and what fine-tuning and search follow; else `dot`.
        prompts: text put before each `query` or `document`; else none.
        query_length: longest query in tokens, special tokens included; else `max_length`.
        results: what was measured of the model, for its card.
        remarks: sentences for its card.

    Returns:
        The directory; `SentenceTransformer` loads it without hf_dense and without remote code.

    Raises:
        InputError: no checkpoint or no tokenizer there, a tokenizer without [CLS] or that disagrees with the
            checkpoint's vocabulary, a length the encoder cannot take, an option outside its values, or `out` holds
            something else (see `Output.stage`).
    """
    given = RetrieverSettings(pooling, normalize, similarity, prompts, max_length, query_length)
    retriever = build_retriever(checkpoint, given)
    if type(retriever[-1]).__name__ == "HybridHead":
        raise InputError(f"{checkpoint} is a model of hybrid vectors already, which others load; publish it as it is.")

    chosen = settings_of(retriever)

    def write(work: Staged) -> None:
        work.facts["remarks"] = [words_of(retriever), *remarks]
        work.facts |= {"results": list(results)} if results else {}
        retriever.save_pretrained(str(work.result), create_model_card=False)
        _check_written(retriever, work.result, checkpoint)

    fingerprint, settings = parts_fingerprint(retriever), asdict(chosen)
    return write_export(out, "retriever", checkpoint, fingerprint, write, settings)


def _check_written(retriever: SentenceTransformer, written: Path, checkpoint: str | Path) -> None:
    """Raise `InputError` where what is written makes other vectors: not all that a model may be set to is saved."""
    again = load_retriever(str(written)).to(retriever.device).eval()
    retriever.eval()
    for encode, other in (
        (retriever.encode_query, again.encode_query),
        (retriever.encode_document, again.encode_document),
    ):
        before, after = (one(list(_TRIED), show_progress_bar=False) for one in (encode, other))
        if before.shape != after.shape or np.abs(before - after).max() > _TOLERANCE * max(1.0, np.abs(before).max()):
            raise InputError(
                f"{checkpoint} makes its vectors by settings that Sentence-Transformers does not save (do_lower_case "
                "is one); what is written would make others."
            )


def export_encoder(checkpoint: str | Path, out: str | os.PathLike[str] | Output) -> Path:
    """Write the encoder of `checkpoint`, without pooler, as a plain transformers directory.

    How a retriever or a pre-training checkpoint makes its vectors is no part of that; the card says it, and a log line.

    Args:
        checkpoint: directory or Hub id of an hf_dense pre-training checkpoint, of a retriever, or of a plain encoder;
            its tokenizer is beside it.
        out: where the directory appears, complete or not at all.

    Returns:
        The directory; `AutoModel.from_pretrained` loads it without hf_dense and without remote code.

    Raises:
        InputError: no checkpoint or no tokenizer there, more tokens than the encoder has, or `out` holds something
            else (see `Output.stage`).
    """
    tokenizer, encoder = load_tokenizer(checkpoint), load_encoder(checkpoint)
    check_vocabulary(tokenizer, encoder.config, checkpoint)
    own = own_settings(checkpoint)
    lost = own.in_words() if own != RetrieverSettings() else ""
    if is_retriever(checkpoint):
        lost = words_of(load_retriever(checkpoint))

    def write(work: Staged) -> None:
        if lost:
            work.facts["remarks"] = [f"It does not hold what made it a retriever. {lost}"]
            logger.warning("A plain encoder does not hold what makes %s a retriever. %s", checkpoint, lost)
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
    if (kind := scoring_class(checkpoint)) is None:
        raise InputError(f"{checkpoint} has no head that scores pairs; train a re-ranker from it first.")
    with plain_loading("a cross-encoder", checkpoint):
        model = CrossEncoder(model_folder(checkpoint), device="cpu")
        check_weights(checkpoint, kind, pooled=True)
    if max_length is None:
        check_vocabulary(tokenizer, model.config, checkpoint)
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
    name = getattr(load_config(checkpoint), "model_type", None)
    return {"method": name} if name in METHODS else {}
