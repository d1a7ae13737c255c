"""Training queries that are held out, and what a checkpoint is chosen by on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from hf_dense.data.splits import even_draw, plain_query
from hf_dense.errors import InputError
from hf_dense.finetuning.lists import Entry, PassageLists, share
from hf_dense.finetuning.negatives import DEPTH

_NAME: Final = "validation"
_RANKED: Final = 50  # negatives that a re-ranker is chosen by
RERANKING_METRIC: Final = f"eval_{_NAME}_mrr@10"


@dataclass(frozen=True)
class QueryShares:
    """Which queries are trained on, and which are held out.

    Args:
        fraction: share of the queries that is used (few-shot training).
        validation: share of these that is held out.
        seed: of the shares.
    """

    fraction: float
    validation: float
    seed: int

    def trained_on(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that are trained on.

        Raises:
            InputError: the fraction leaves none.
        """
        used = self._used(entries)
        asked = self._asked(used)
        return [entry for entry in used if plain_query(entry.query) not in asked]

    def held_out(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that are held out.

        Raises:
            InputError: there are none.
        """
        used = self._used(entries)
        asked = self._asked(used)
        found = [entry for entry in used if plain_query(entry.query) in asked]
        if not found:
            raise InputError(f"The share validation {self.validation} of the training queries holds none; raise it.")
        return found

    def _used(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        return share(entries, self.fraction, self.seed) if self.fraction < 1 else entries

    def _asked(self, entries: Sequence[Entry]) -> set[str]:
        """What is asked by those held out: drawn by seed and id alone, and whoever asks the same goes with them."""
        return {
            plain_query(entry.query)
            for entry in entries
            if even_draw(f"tuning:{self.seed}:{entry.id}") < self.validation
        }


def search_metric(similarity: str) -> str:
    """The name of the metric of `validation_search` that is chosen by."""
    return f"eval_{_NAME}_{similarity}_mrr@10"


def validation_search(entries: Sequence[Entry], passages: PassageLists, most: int) -> InformationRetrievalEvaluator:
    """MRR@10 of a retriever on queries held out, in a part of the corpus.

    Args:
        entries: of the queries, with negatives.
        passages: the corpus.
        most: passages that are searched: the positives, then negatives by their rank, then others.
    """
    names = dict.fromkeys(name for entry in entries for name in entry.positives)
    ranked = (entry.negatives[rank] for rank in range(DEPTH) for entry in entries if rank < len(entry.negatives))
    for name in chain(ranked, passages.ids):
        if len(names) >= most:
            break
        names[name] = None
    return InformationRetrievalEvaluator(
        queries={entry.id: entry.query for entry in entries},
        corpus=dict(zip(names, passages.texts(list(names)), strict=True)),
        relevant_docs={entry.id: set(entry.positives) for entry in entries},
        mrr_at_k=[10],
        ndcg_at_k=[10],
        accuracy_at_k=[10],
        precision_recall_at_k=[10],
        map_at_k=[10],
        write_csv=False,
        name=_NAME,
    )


def validation_ranking(entries: Sequence[Entry], passages: PassageLists) -> CrossEncoderRerankingEvaluator:
    """MRR@10 of a re-ranker on the lists of queries held out.

    Args:
        entries: of the queries, with negatives.
        passages: the corpus.

    Raises:
        InputError: none of them has a negative.
    """
    samples: list[dict[str, str | list[str]]] = [
        {
            "query": entry.query,
            "positive": passages.texts(entry.positives),
            "negative": passages.texts(entry.negatives[:_RANKED]),
        }
        for entry in entries
        if entry.negatives
    ]
    if not samples:
        raise InputError(
            f"None of the {len(entries):,} queries held out has a negative to rank the positive above; raise "
            "validation, or mine with a smaller margin, skip or filter_margin."
        )
    return CrossEncoderRerankingEvaluator(samples, at_k=10, name=_NAME, write_csv=False)
