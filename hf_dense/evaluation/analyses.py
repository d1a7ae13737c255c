"""What a retriever's vectors look like, and how its quality grows: the papers' analyses, as figures to draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import bm25s
import numpy as np
import Stemmer
from datasets import Dataset
from numpy.typing import NDArray
from scipy.stats import bootstrap
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedTokenizerBase

from hf_dense.data.contexts import CONTEXTS
from hf_dense.data.corpus import check_texts
from hf_dense.errors import InputError
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.hub.loading import is_retriever, load_retriever
from hf_dense.hub.retriever_settings import RetrieverSettings
from hf_dense.hub.retrievers import build_retriever
from hf_dense.storage.manifest import Manifest, difference

CONTEXT_COLUMNS: Final = (*CONTEXTS, "queries")
_ALIKE: Final = 0.95  # share of the random pairs that a pair must surpass to count as correlated

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LengthSimilarity:
    """How alike random texts of one length are.

    Attributes:
        shortest: least number of tokens in the bucket, special tokens included.
        longest: greatest number.
        texts: how many texts are of that length.
        mean: cosine similarity of the pairs.
        deviation: its standard deviation.
    """

    shortest: int
    longest: int
    texts: int
    mean: float
    deviation: float


@dataclass(frozen=True)
class ContextCorrelation:
    """How much passages and their contexts have in common, beside passages and contexts of other passages.

    Attributes:
        context: column of the corpus.
        pairs: how many were compared.
        similarity: mean cosine similarity.
        random_similarity: of the random pairs.
        words: mean share of the context's content words that the passage has too.
        random_words: of the random pairs.
        correlated: share of the pairs that are more similar than 95 % of the random pairs.
    """

    context: str
    pairs: int
    similarity: float
    random_similarity: float
    words: float
    random_words: float
    correlated: float


@dataclass(frozen=True)
class CurvePoint:
    """One evaluation on a curve.

    Attributes:
        curve: its name.
        x: steps, share of the training queries, or whatever was varied.
        value: mean of the metric over the queries.
        low: lower end of the 95 % bootstrap (percentile) interval over the queries.
        high: upper end.
    """

    curve: str
    x: float
    value: float
    low: float
    high: float


def similarity_by_length(
    model: str | Path | SentenceTransformer,
    texts: Sequence[str],
    *,
    lengths: Sequence[int],
    pairs: int = 1000,
    seed: int = 0,
) -> list[LengthSimilarity]:
    """Measure how alike the vectors of random texts are, by the length of the texts.

    An encoder that tells long texts apart badly gives them all nearly the same vector.

    Args:
        model: an exported retriever, a pre-training checkpoint, whose vectors are its bottlenecks, or an encoder,
            whose vectors are the states at [CLS].
        texts: of any length; those above the last of `lengths` are left out.
        lengths: greatest number of tokens of each bucket. Tokens are counted as the model reads them: with [CLS] and
            [SEP], and cut at its longest input, which for an encoder is the last of `lengths`.
        pairs: drawn in each bucket, with replacement; the two texts of a pair are different members of `texts`.
        seed: of the draw.

    Returns:
        One row for each bucket with two texts or more.

    Raises:
        InputError: nothing to load, no bucket has two texts, or lengths or pairs that make no sense.

    Source: SEED-Encoder, figures 1(b) and 5.
    """
    ends = sorted(set(lengths))
    if not ends or ends[0] < 1 or pairs < 1:
        raise InputError("The lengths and the number of pairs must be at least 1.")
    if not texts:
        raise InputError("There is no text to compare; give at least two of one length.")
    retriever = as_retriever(model, ends[-1])
    if not isinstance(retriever.tokenizer, PreTrainedTokenizerBase):
        raise InputError(f"{model} has no tokenizer of transformers, which texts are measured by.")
    encoded = retriever.tokenizer(list(texts), truncation=True, max_length=retriever.max_seq_length, verbose=False)
    tokens = np.array([len(ids) for ids in encoded["input_ids"]])
    generator = np.random.default_rng(seed)
    rows = []
    for start, end in zip([1, *(length + 1 for length in ends)], ends, strict=False):
        members = np.flatnonzero((tokens >= start) & (tokens <= end))
        if len(members) < 2:
            continue
        first = generator.integers(len(members), size=pairs)
        second = (first + generator.integers(1, len(members), size=pairs)) % len(members)
        drawn, places = np.unique(np.stack([first, second]), return_inverse=True)
        vectors = unit_vectors(retriever, [texts[members[at]] for at in drawn])
        one, other = vectors[places.reshape(2, -1)]
        similarity = (one * other).sum(axis=1)
        rows.append(LengthSimilarity(start, end, len(members), float(similarity.mean()), float(similarity.std())))
    if not rows:
        raise InputError(f"No two texts are of one length up to {ends[-1]} tokens; give more texts or other lengths.")
    return rows


def pair_correlation(
    model: str | Path | SentenceTransformer, corpus: Dataset, *, pairs: int = 1000, seed: int = 0
) -> list[ContextCorrelation]:
    """Measure how many contexts are about the same as their passages, without annotators.

    A passage stands beside its own context and beside that of another passage drawn, whatever its document. A pair is
    correlated where its cosine similarity surpasses that of 95 % of these random pairs.

    Args:
        model: an exported retriever.
        corpus: `text` and one or more of `CONTEXT_COLUMNS`; of a list (`queries`) one member is drawn.
        pairs: greatest number of passages drawn from the corpus, at least 2.
        seed: of the draws.

    Returns:
        One row for each context column, in the order of `CONTEXT_COLUMNS`.

    Raises:
        InputError: nothing to load, no context column, or a column with fewer than two contexts among those drawn.

    Source: query-as-context, table 5.
    """
    columns = [name for name in CONTEXT_COLUMNS if name in corpus.column_names]
    if not columns:
        raise InputError(
            f"The corpus has none of the context columns {', '.join(CONTEXT_COLUMNS)}; it has: "
            f"{', '.join(corpus.column_names)}."
        )
    check_texts(corpus, columns)
    if pairs < 2:
        raise InputError(f"{pairs} pairs cannot be compared with others; draw at least 2.")
    retriever, generator = load_retriever(model), np.random.default_rng(seed)
    sample = corpus.select(generator.permutation(len(corpus))[:pairs])
    texts = [text or "" for text in sample["text"]]
    passages, passage_words = unit_vectors(retriever, texts), _content_words(texts)
    rows = []
    for name in columns:
        contexts = [_one_of(value, generator) for value in sample[name]]
        kept = [at for at, context in enumerate(contexts) if context.strip() and texts[at].strip()]
        if len(kept) < 2:
            raise InputError(f"The column {name!r} holds fewer than two contexts for the passages drawn; draw more.")
        contexts = [contexts[at] for at in kept]
        vectors, words = unit_vectors(retriever, contexts, queries=name == "queries"), _content_words(contexts)
        rows.append(_correlation(name, passages[kept], vectors, [passage_words[at] for at in kept], words))
    return rows


def _correlation(
    name: str, passages: Floats, contexts: Floats, passage_words: list[set[str]], context_words: list[set[str]]
) -> ContextCorrelation:
    """Passages with their own contexts, row by row, against the same with the context of the row before."""
    own, others = np.arange(len(passages)), np.roll(np.arange(len(passages)), 1)
    similarity, random_similarity = ((passages * contexts[partners]).sum(axis=1) for partners in (own, others))
    shared, random_shared = (
        [_share(context_words[partner], words) for words, partner in zip(passage_words, partners, strict=True)]
        for partners in (own, others)
    )
    return ContextCorrelation(
        context=name,
        pairs=len(passages),
        similarity=float(similarity.mean()),
        random_similarity=float(random_similarity.mean()),
        words=float(np.mean(shared)),
        random_words=float(np.mean(random_shared)),
        correlated=float((similarity > np.quantile(random_similarity, _ALIKE)).mean()),
    )


def curves(
    results: Mapping[str, Sequence[tuple[float, str | Path]]], *, metric: str = "mrr@10", seed: int = 0
) -> list[CurvePoint]:
    """Read how a metric changes with the training steps, with the number of training queries, or the like.

    Args:
        results: name of a curve -> its points: x, and a directory that `evaluate_retriever` wrote.
        metric: one of those that the results hold.
        seed: of the bootstrap over the queries.

    Returns:
        The points, curve after curve, by x.

    Raises:
        InputError: a curve with fewer than two points, with two of one x, or with an x that is no finite number; no
            result or no such metric in a directory; or results over different queries, or over fewer than two, or of
            different collections, protocols or splits.

    Source: MASTER, figure 3; SimLM, figure 3.
    """
    points = []
    asked: set[str] = set()
    first: Manifest | None = None
    for name, places in results.items():
        if len({x for x, _ in places}) < max(len(places), 2):
            raise InputError(f"The curve {name!r} needs at least two results, each at an x of its own.")
        if not all(math.isfinite(x) for x, _ in places):
            raise InputError(f"A result of the curve {name!r} stands at no number; give each an x that is one.")
        for x, directory in sorted(places, key=lambda place: place[0]):
            result = RetrievalResult.load(directory)
            if metric not in result.per_query:
                raise InputError(f"{directory} has no {metric!r}; it has: {', '.join(result.per_query)}.")
            scores = result.per_query[metric]
            asked = asked or set(scores)
            if set(scores) != asked or len(scores) < 2:
                raise InputError(f"{directory} does not cover the queries of the other results, or only one.")
            manifest = Manifest.load(directory) or Manifest("", "")
            first = first or manifest
            if other := difference(_measured_on(first), _measured_on(manifest), (first.sources, manifest.sources)):
                raise InputError(f"{directory} was measured with {other}; give results that are alike in that.")
            points.append(curve_point(name, x, scores, seed))
    if not points:
        raise InputError("There is no curve to draw; give at least two results.")
    return points


def _measured_on(manifest: Manifest) -> dict[str, Any]:
    """What all evaluations on a curve have in common."""
    return {name: manifest.made_from.get(name) for name in ("collection", "protocol", "split")}


def curve_point(curve: str, x: float, scores: Mapping[str, float], seed: int = 0) -> CurvePoint:
    """The point of a curve that scores give; `seed` is the bootstrap's. One query tells nothing of others: 0 to 1."""
    values = np.array([scores[query] for query in sorted(scores)])
    if len(values) == 1:
        return CurvePoint(curve, x, float(values[0]), 0.0, 1.0)
    interval = bootstrap(
        (values,), np.mean, method="percentile", batch=256, rng=np.random.default_rng(seed)
    ).confidence_interval
    return CurvePoint(curve, x, float(values.mean()), float(interval.low), float(interval.high))


def unit_vectors(retriever: SentenceTransformer, texts: Sequence[str], *, queries: bool = False) -> Floats:
    """(texts, dimensions) vectors of length 1, so that inner products are cosine similarities."""
    encode = retriever.encode_query if queries else retriever.encode_document
    vectors = np.asarray(encode(list(texts), batch_size=64, show_progress_bar=False), dtype=np.float64)
    norms: Floats = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(norms, np.finfo(np.float64).tiny)


def as_retriever(model: str | Path | SentenceTransformer, max_length: int) -> SentenceTransformer:
    """A retriever; an encoder, or a pre-training checkpoint, becomes one that reads texts of `max_length` tokens.

    Raises:
        InputError: nothing to load.
    """
    if isinstance(model, SentenceTransformer) or is_retriever(model):
        return load_retriever(model)
    return build_retriever(model, RetrieverSettings(max_length=max_length))


def _one_of(value: str | list[str] | None, generator: np.random.Generator) -> str:
    """A context, drawn where there are several; "" where there is none."""
    if isinstance(value, list):
        value = value[int(generator.integers(len(value)))] if value else ""
    return value or ""


def _content_words(texts: Sequence[str]) -> list[set[str]]:
    """The stems of each text's words that are no stop words."""
    stemmer = Stemmer.Stemmer("english")
    words = bm25s.tokenize(list(texts), stopwords="en_plus", stemmer=stemmer, return_ids=False, show_progress=False)
    return [set(found) for found in words]


def _share(words: set[str], of: set[str]) -> float:
    return len(words & of) / len(words) if words else 0.0
