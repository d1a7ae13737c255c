"""Open-domain question answering: whether the passages that a retriever finds hold the answer."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from hf_dense.data.answers import has_answer
from hf_dense.data.collections import load_answers, load_corpus, load_qrels, load_queries
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.errors import InputError
from hf_dense.evaluation.costs import CostMeter
from hf_dense.evaluation.measures import mean_metrics
from hf_dense.evaluation.result import RESULT_FILE, RetrievalResult
from hf_dense.evaluation.retrieval import check_asked
from hf_dense.hub.loading import load_retriever
from hf_dense.search.dense import Places
from hf_dense.search.first_stage import BM25, open_search
from hf_dense.storage.legacy import atomic_directory, check_replaceable

_QUERIES: Final = 1_000  # whose passages are read at once


def evaluate_answers(
    model: str | Path | SentenceTransformer,
    collection: str | Path,
    split: str,
    *,
    name: str,
    output_dir: str | Path,
    depths: Sequence[int] = (20, 100),
    batch_size: int = 64,
) -> RetrievalResult:
    """Count the questions for which one of the best passages holds an answer.

    Source: top-k retrieval accuracy of DPR (Karpukhin et al., 2020), with its rule for answers (`has_answer`) on the
    text of a passage, without the title.

    Args:
        model: an exported directory, a Hub id, a loaded model, or `"bm25"` (English stop words and stemmer).
        collection: its queries have answers; what is searched is title + " " + text.
        split: the queries of its judgements are asked, relevant passages or not, and all queries where it has no
            judgement; queries without answers are left out.
        name: of the retriever, in results and tables.
        output_dir: receives `result.json` and `rankings.parquet`, complete or not at all. The vectors of the corpus
            stand in `<output_dir>.partial` until then; a run that was killed goes on with them.
        depths: numbers k of passages that are read.
        batch_size: texts encoded at once.

    Returns:
        `answer_recall@k` for every depth: 1 for a query with an answer in its first k passages, else 0, and the mean.

    Raises:
        InputError: nothing to load, no answers are known, an empty question, a depth below 1, or an `output_dir` that
            holds something else.
    """
    check_replaceable(output_dir, marker=RESULT_FILE)
    if not depths or min(depths) < 1:
        raise InputError(f"depths are {list(depths)}; name at least one, each 1 or more.")
    questions = _questions(collection, split)
    corpus = load_corpus(collection)
    work = Path(f"{output_dir}.partial")
    names, passages = list(questions), corpus["id"][:]
    first: dict[str, float] = {}
    rankings: dict[str, dict[str, float]] = {}
    retriever = model if model == BM25 else load_retriever(model)
    with CostMeter(retriever) as meter:
        search = open_search(retriever, PassageTexts(corpus), work, batch_size)
        for start in range(0, len(names), _QUERIES):
            part = names[start : start + _QUERIES]
            scores, places = search([questions[query][0] for query in part], max(depths))
            answers = [questions[query][1] for query in part]
            for query, row, found in zip(part, scores.tolist(), places.tolist(), strict=True):
                rankings[query] = {
                    passages[place]: score for place, score in zip(found, row, strict=True) if place >= 0
                }
            first |= zip(part, answer_ranks(places, corpus, answers), strict=True)
    per_query = {
        f"answer_recall@{depth}": {query: float(rank <= depth) for query, rank in first.items()} for depth in depths
    }
    origin = meter.describe(len(corpus), [question for question, _ in questions.values()], search)
    result = RetrievalResult(name, split, mean_metrics(per_query), per_query, meter.seconds, origin)
    with atomic_directory(output_dir) as target:
        result.save(target, rankings)
    shutil.rmtree(work)
    return result


def answer_ranks(places: Places, corpus: Dataset, answers: Sequence[Sequence[str]]) -> list[float]:
    """The rank, from 1, of the first passage that holds an answer to each query; infinite where none does.

    Args:
        places: (queries, hits) rows of the corpus, best first, -1 for none.
        corpus: column `text`.
        answers: strings, for each query.

    >>> corpus = Dataset.from_dict({"text": ["a cat", "a dog"]})
    >>> answer_ranks(np.array([[1, 0], [0, -1]]), corpus, [["cat"], ["dog"]])
    [2, inf]
    """
    found = np.unique(places[places >= 0])
    texts = dict(zip(found.tolist(), corpus[found]["text"], strict=True))
    return [
        next(
            (rank for rank, place in enumerate(row, start=1) if place >= 0 and has_answer(texts[place], strings)),
            float("inf"),
        )
        for row, strings in zip(places.tolist(), answers, strict=True)
    ]


def _questions(collection: str | Path, split: str) -> dict[str, tuple[str, list[str]]]:
    """Text and answers of each query that is asked, by id."""
    qrels, known, queries = load_qrels(collection, split), load_answers(collection), load_queries(collection)
    answers = {query: strings for query in qrels or known if (strings := known.get(query))}
    if not answers:
        raise InputError(f"No query of split {split!r} in {collection} has an answer.")
    texts = dict(zip(queries["id"], queries["text"], strict=True))
    check_asked({query: texts[query] for query in answers}, collection)
    return {query: (texts[query], strings) for query, strings in answers.items()}
