"""The documentation itself, to be asked for: the sentences that stood for queries are part of it again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from datasets import Dataset, concatenate_datasets

from hf_dense.data.collections import judged_splits, load_corpus, load_qrels, query_texts


def read_documentation(collection: str | os.PathLike[str]) -> Dataset:
    """The passages of a collection, then a passage for the summary of every document that was left out of them.

    Args:
        collection: what `build_python_docs` wrote.

    Returns:
        Columns `id` (`document#position`, or `document#summary`), `title` and `text`.

    Raises:
        InputError: it is no collection.
    """
    passages = load_corpus(collection).select_columns(["id", "title", "text"])
    rows = list(_summaries(str(collection)))
    return concatenate_datasets([passages, Dataset.from_list(rows, features=passages.features)])


def _summaries(collection: str) -> Iterator[dict[str, Any]]:
    texts = query_texts(collection)
    for split in judged_splits(collection):
        for query, grades in load_qrels(collection, split).items():
            for document in dict.fromkeys(passage.rpartition("#")[0] for passage in grades):
                yield {"id": f"{document}#summary", "title": document, "text": f"{texts[query]}."}
