"""Cross-encoders: loading one, and passages ranked anew by its scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder, CrossEncoderModelCardData
from torch import nn
from tqdm.auto import tqdm
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from hf_dense.data.hub_names import model_folder
from hf_dense.errors import InputError
from hf_dense.hub.loading import (
    check_dropout,
    check_weights,
    cut_to_positions,
    load_tokenizer,
    longest_text,
    one_thread,
    plain_loading,
    scoring_class,
)
from hf_dense.methods import METHODS
from hf_dense.search.turns import reading

_PIECE: Final = 100  # queries
_CHARACTERS: Final = 16  # of a question, for each token of a pair: at most so many are read anew with every passage


def load_reranker(
    base: str | Path | CrossEncoder, max_length: int | None = None, *, new_head: bool = False
) -> CrossEncoder:
    """Load a cross-encoder of one score, whose `predict` gives raw logits; a loaded one is set so too.

    Args:
        base: a directory, a Hub id or a loaded cross-encoder.
        max_length: tokens of a pair; its own where None.
        new_head: whether an encoder without a head is given a new one.

    Raises:
        InputError: nothing there, no head or one of several scores, or more tokens than there are positions.
    """
    reranker: CrossEncoder = base if isinstance(base, CrossEncoder) else _load(str(base), new_head)
    config = reranker.config
    if config is None or reranker.num_labels != 1:
        raise InputError(f"The cross-encoder gives {reranker.num_labels} scores to a pair; a re-ranker gives one.")
    if max_length is not None:
        positions = longest_text(config)
        if not 4 <= max_length <= positions:
            raise InputError(f"max_length is {max_length}; the encoder takes pairs of 4 to {positions:.0f} tokens.")
        reranker.max_seq_length = max_length
    if getattr(config, "type_vocab_size", 2) < 2:  # RoBERTa's kind tells the parts of a pair by separators alone
        names = reranker.tokenizer.model_input_names
        reranker.tokenizer.model_input_names = [name for name in names if name != "token_type_ids"]
    reranker.activation_fn = nn.Identity()
    return reranker


def _load(base: str, new_head: bool) -> CrossEncoder:
    load_tokenizer(base)
    # Without this the Hub is asked whether the directory is a model there.
    card = CrossEncoderModelCardData(local_files_only=True)
    with plain_loading("a cross-encoder", base):
        place = model_folder(base)
        config = AutoConfig.from_pretrained(place, trust_remote_code=False)
        if new_head and config.model_type in METHODS:
            raise InputError(
                f"{base} is a pre-training checkpoint, and a re-ranker starts from a plain encoder; write one with "
                f"hf-dense export {base} --kind encoder."
            )
        kind = scoring_class(base)
        if kind is None and not new_head:
            raise InputError(f"{base} has no head that scores pairs; train a re-ranker from it first.")
        if kind is AutoModelForSequenceClassification and config.num_labels != 1:
            raise InputError(f"The head of {base} gives {config.num_labels} scores to a pair; a re-ranker gives one.")
        reranker: CrossEncoder = CrossEncoder(place, num_labels=1, model_card_data=card, trust_remote_code=False)
        check_weights(base, kind or AutoModel, pooled=kind is not None)
        check_dropout(reranker, base)
        cut_to_positions(reranker, base)
        with one_thread():
            reranker.predict([("a", "a")], show_progress_bar=False)  # its tokens may be none of its encoder
    return reranker


def rerank(
    reranker: str | Path | CrossEncoder,
    queries: Mapping[str, str],
    candidates: Mapping[str, Sequence[str]],
    texts: Mapping[str, str],
    batch_size: int = 64,
) -> dict[str, dict[str, float]]:
    """Score the candidates of every query with a cross-encoder.

    Args:
        reranker: a directory, a Hub id, or a loaded cross-encoder.
        queries: texts by id.
        candidates: ids of passages by the id of their query.
        texts: of passages by id, the title first where there is one.
        batch_size: pairs read at once.

    Returns:
        Query id -> passage id -> raw logit.

    Raises:
        InputError: nothing to load, a query or passage has no text, or a score is no number.
    """
    check_batch(batch_size)
    for query, passages in candidates.items():
        unknown = [name for name in passages if name not in texts]
        if query not in queries or unknown:
            what = f"passage {unknown[0]!r}, a candidate of query {query!r}," if unknown else f"query {query!r}"
            raise InputError(f"The {what} has no text.")
    model, names = load_reranker(reranker), list(candidates)
    found: dict[str, dict[str, float]] = {}
    with tqdm(total=sum(map(len, candidates.values())), desc="Re-ranking", unit=" passages") as bar:
        for start in range(0, len(names), _PIECE):
            part = names[start : start + _PIECE]
            lists = [(queries[name], [texts[passage] for passage in candidates[name]]) for name in part]
            for name, scores in zip(part, predict_scores(model, lists, batch_size, bar.update), strict=True):
                found[name] = dict(zip(candidates[name], scores.tolist(), strict=True))
    return found


def predict_scores(
    model: CrossEncoder,
    lists: Sequence[tuple[str, Sequence[str]]],
    batch_size: int,
    done: Callable[[int], object],
) -> list[NDArray[np.float32]]:
    """Raw logits of the passages of each query; pairs of like length are read together.

    Args:
        lists: queries with their passages, as texts.
        batch_size: pairs read at once.
        done: called with the number of pairs of each batch.

    Returns:
        (passages,) logits for each query, in the order of its passages.

    Raises:
        InputError: a score is no number.
    """
    with reading(model):
        read = [(read_part(model, query), passages) for query, passages in lists]
    pairs = [(query, passage) for query, passages in read for passage in passages]
    order = longest_first(pairs)
    scores = np.empty(len(pairs), np.float32)
    for start in range(0, len(order), batch_size):
        part = order[start : start + batch_size]
        texts = [pairs[at] for at in part]
        with reading(model):
            scores[part] = model.predict(
                texts, batch_size=batch_size, activation_fn=nn.Identity(), show_progress_bar=False
            )
        done(len(part))
    if not np.isfinite(scores).all():
        query, _ = pairs[int(np.flatnonzero(~np.isfinite(scores))[0])]
        raise InputError(f"The re-ranker's score of a passage is no number (query {query!r}); train it again.")
    return np.split(scores, np.cumsum([len(passages) for _, passages in lists])[:-1])


def longest_first(pairs: Sequence[tuple[str, str]]) -> list[int]:
    """The places of pairs by the length of both texts, so that those read together are padded little."""
    return sorted(range(len(pairs)), key=lambda at: -len(pairs[at][0]) - len(pairs[at][1]))


def read_part(model: CrossEncoder, question: str) -> str:
    """The beginning of an endless question, which is read anew with every passage that it is asked of.

    Args:
        model: the cross-encoder.
        question: a text.

    Returns:
        Its first characters where their first tokens are those of the whole, as many as a pair may have; else all of
        it. Scores stay as they are; where a passage too has more tokens than a pair may have, the token that cannot be
        halved between the two may go to the other.
    """
    tokens = model.max_seq_length
    if tokens is None or len(question) <= _CHARACTERS * tokens:
        return question
    start = question[: _CHARACTERS * tokens]
    ids = [model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in (start, question)]
    return start if ids[0][:tokens] == ids[1][:tokens] else question


def check_batch(batch_size: int) -> None:
    """Raise `InputError` where no pair would be read at once."""
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; at least one pair is read at once.")
