"""The columns of a published collection: corpus, queries and relevance judgements (qrels)."""

from __future__ import annotations

from typing import Final

from datasets import Features, List, Value

CORPUS: Final = Features(
    {
        "id": Value("string"),
        "title": Value("string"),
        "section": Value("string"),  # headings that the passage stands under, below the title: "Install > Windows"
        "text": Value("string"),
        "document": Value("string"),  # the document the passage was cut from
        "position": Value("int32"),  # place of the passage in its document, from 0
        "split": Value("string"),  # split of the document: train, dev or test
    }
)
QUERIES: Final = Features({"id": Value("string"), "text": Value("string")})
ANSWERED: Final = Features({**QUERIES, "answers": List(Value("string"))})  # queries whose answers are known
QRELS: Final = Features({"query-id": Value("string"), "corpus-id": Value("string"), "score": Value("int32")})
# One row for a query to train on: pairs (no negatives), triples and lists; scores are empty where there are none.
TRAINING: Final = Features(
    {
        "query_id": Value("string"),
        "query": Value("string"),
        "positives": List(Value("string")),  # ids of passages, as all that follow
        "negatives": List(Value("string")),
        "positive_scores": List(Value("float32")),
        "negative_scores": List(Value("float32")),
    }
)
SPLITS: Final = ("train", "dev", "test")
