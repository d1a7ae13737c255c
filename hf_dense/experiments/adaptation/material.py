"""What an adaptation works with: one collection, with queries to train on, to choose by and to report on."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from hf_dense.data.collections import (
    asked_again,
    content_hash,
    judged_splits,
    load_corpus,
    load_qrels,
    load_queries,
    query_texts,
)
from hf_dense.data.corpus import table_files
from hf_dense.data.labels import UNANSWERED, Labels, read_pairs
from hf_dense.data.matching import DIVIDED, UNFOUND
from hf_dense.data.passage_corpus import Cutting, build_passage_corpus, listed
from hf_dense.data.queries.collection import build_queries
from hf_dense.data.schemas import SPLITS
from hf_dense.data.splits import plain_query
from hf_dense.data.supervision import build_collection, write_collection
from hf_dense.errors import InputError
from hf_dense.evaluation.runner import asked_texts, relevant
from hf_dense.storage.fingerprints import fingerprint_values
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

TRAIN, DEV, TEST = SPLITS
PASSAGES: Final = "passages"  # the directory of those that documents are cut to
MADE_FROM: Final = ("headings", "sentences")  # passages, by no model
_SHARES: Final = "80/10/10"
_FEW: Final = 200  # labelled queries, of which none is to be trained on
_CHOOSING: Final = 500  # queries of train, at most, and at most a tenth, where no other split is to choose by
_LEAST: Final = {DEV: 5, TEST: 10}  # queries; fewer tell nothing
_ROWS: Final = 10_000  # written at once


@dataclass(frozen=True)
class Material:
    """One collection of three splits.

    Attributes:
        collection: directory with corpus, queries and judgements of train, dev (to choose by) and test (to report on).
        passages: directory of the passages as they were, where queries have taken sentences out of those in the
            collection; else the same directory.
        made: the splits whose queries were made of the passages.
        counts: of passages, and of the queries of each split.
        given: queries of the file of labelled ones.
        left_out: how many of these are not used, by reason.
    """

    collection: Path
    passages: Path
    made: tuple[str, ...]
    counts: Mapping[str, int]
    given: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)


def prepare(
    docs: str, queries: str | None, length: int, seed: int, out: Output, tokenizer: str | None = None
) -> Material:
    """Cut documents to passages, and make queries where there are none.

    Args:
        docs: documents, passages, or a collection. The splits of a collection are used as they are; those of other
            names stand for test, or for dev where there is a test; one that lacks dev gets it from train then, and one
            that lacks test reports on dev.
        queries: labelled pairs (`hf-dense data labels`); where there are fewer than 200, none is trained on.
        length: of passages cut from documents, in tokens.
        seed: of all draws.
        out: receives `passages`, `made`, `labelled` and `collection`, those that are needed.
        tokenizer: whose tokens are counted; words and punctuation marks where None.

    Raises:
        InputError: nothing can be read, both a collection with queries and a file of queries are given, judgements
            name a query or a passage that the collection lacks, or a query without words, or labels a document.
    """
    given = own_splits(docs)
    if given and queries:
        raise InputError(f"{docs} has judged queries of its own; leave --queries out, or give its passages alone.")
    if set(SPLITS) <= set(given):
        _check_enough(_judged(docs, SPLITS))
        return Material(Path(docs), Path(docs), (), _count(Path(docs)))
    corpus = docs
    if not table_files(Path(docs)):
        corpus = str(build_passage_corpus(docs, out.at(PASSAGES), Cutting(length, tokenizer)))
        _say_counts(docs, corpus)
    passages, read = corpus, Counter[str]()
    labels = _in_splits(_judged(docs, given)) if given else {}
    if queries:
        labelled = _label(queries, corpus, out.at("labelled"), seed)
        read = _say_counts(queries, labelled)
        labels = _of_passages(queries, labelled)
    made: tuple[str, ...] = ()
    few = bool(queries) and sum(len(found.queries) for found in labels.values()) < _FEW  # some were not found
    if few or TRAIN not in labels:
        if few:
            labels = {TEST: _joined(labels.values())}
        corpus = str(build_queries(corpus, out.at("made"), MADE_FROM, split=_SHARES, seed=seed))
        made = tuple(split for split in SPLITS if split in judged_splits(corpus) and split not in labels)
        labels = {split: _labels(corpus, split) for split in made} | labels
    found = _write(corpus, _three(labels, corpus, seed, made), made, out.at("collection"))
    left_out = {reason: read[reason] for reason in (UNFOUND, UNANSWERED, DIVIDED) if read[reason]}
    number = sum(read[f"queries of {split}"] for split in SPLITS) + sum(left_out.values())
    return replace(found, passages=Path(passages), given=number, left_out=left_out)


def own_splits(docs: str) -> list[str]:
    """The splits that documents have judged queries of; none but of a collection."""
    return judged_splits(docs) if Path(docs).is_dir() else []


def known_queries(material: Material) -> list[str]:
    """How many of the queries to choose by, and of those to report on, are trained on, where any is."""
    found = (asked_again(material.collection, split, TRAIN) for split in (DEV, TEST))
    return [said for said in found if said]


def _say_counts(source: str, made: str | os.PathLike[str]) -> Counter[str]:
    """What was read of a source and left out, which is shown, by what was made of it."""
    manifest = Manifest.load(made)
    counts = Counter[str](manifest.facts["counts"] if manifest else {})
    print(f"{source}: {listed(counts)}", file=sys.stderr, flush=True)
    return counts


def _label(queries: str, corpus: str, out: Output, seed: int) -> Path:
    """A collection of labelled pairs: all to report on where they are few, else divided by their documents.

    Where they ask for too few documents, all are of `train`, from which `_three` takes what it needs.
    """
    found = len(read_pairs(Path(queries)).queries)
    for split in (TEST,) if found < _FEW else (_SHARES, TRAIN):
        try:
            return build_collection(queries, out, split=split, corpus=corpus, seed=seed)
        except InputError:
            if split != _SHARES:
                raise
    raise AssertionError


def _of_passages(queries: str, labelled: Path) -> dict[str, Labels]:
    """The labels that a file holds, by split, of passages: no search for passages finds a document as a whole."""
    known = set(load_corpus(labelled)["id"][:])
    found = {split: _labels(labelled, split) for split in judged_splits(labelled)}
    for labels in found.values():
        for query, grades in labels.grades.items():
            if documents := grades.keys() - known:
                raise InputError(
                    f"{queries} names the document {min(documents)!r} for {labels.queries[query]!r}; give in its place "
                    "the text that answers, as it stands in the document."
                )
    return found


def _labels(collection: str | os.PathLike[str], split: str) -> Labels:
    texts = query_texts(collection)
    grades = load_qrels(collection, split)
    if unknown := grades.keys() - texts.keys():
        raise InputError(f"The judgements of {collection} name the query {min(unknown)!r}; the queries lack it.")
    return Labels({query: texts[query] for query in grades}, grades)


def _judged(collection: str, splits: Iterable[str]) -> dict[str, Labels]:
    """The judgements of some splits, found to be of queries and passages that are there, as for an evaluation."""
    known, queries = set(load_corpus(collection)["id"][:]), load_queries(collection)
    found = {split: _labels(collection, split) for split in splits}
    for labels in found.values():
        judged = {query: passages for query, passages in relevant(labels.grades).items() if passages}
        asked_texts(judged, queries, known, collection)
    return found


def _in_splits(labels: dict[str, Labels]) -> dict[str, Labels]:
    """Splits of other names, all together, in the place of test, or of dev where there is a test."""
    others = [name for name in labels if name not in SPLITS]
    lacking = [split for split in (TEST, DEV) if split not in labels]
    if not others or not lacking:
        return labels
    known = {name: found for name, found in labels.items() if name in SPLITS}
    return known | {lacking[0]: _joined(labels[name] for name in others)}


def _joined(parts: Iterable[Labels]) -> Labels:
    joined = Labels()
    for part in parts:
        joined.queries |= part.queries
        for query, grades in part.grades.items():
            joined.grades.setdefault(query, {}).update(grades)
    return joined


def _three(labels: dict[str, Labels], corpus: str, seed: int, made: Sequence[str]) -> dict[str, Labels]:
    """Train, dev and test of what there is: what lacks is taken from its neighbour."""
    if TRAIN not in labels:
        raise InputError("No query can be made to train on; the documents have neither headings nor rare words.")
    found, drawn = dict(labels), {*made}
    documents = {} if {TEST, DEV} <= found.keys() else _documents(corpus)
    if TEST not in found:
        others = [name for name in found if name != TRAIN]
        if others:
            found[TEST] = _joined(found.pop(name) for name in others)
        else:
            found[TRAIN], found[TEST] = _divided(found[TRAIN], documents, seed)
            drawn.add(TEST)
    if DEV not in found:
        found[TRAIN], found[DEV] = _divided(found[TRAIN], documents, seed)
        drawn.add(DEV)
    _check_enough(found, drawn)
    return {split: found[split] for split in SPLITS}


def _check_enough(labels: Mapping[str, Labels], drawn: Collection[str] = ()) -> None:
    """Raise `InputError` where queries with a relevant passage are too few to choose by or to report on.

    Args:
        labels: by split.
        drawn: splits whose documents are drawn: few documents may have all their queries in another one.
    """
    for split, least in _LEAST.items():
        if (number := sum(map(_is_relevant, labels[split].grades.values()))) < least:
            raise InputError(
                f"Queries with a relevant passage for {split}: {number}, and {least} are the least that tell anything; "
                "give more documents, or more labelled queries"
                f"{', or another --seed, which draws other documents for it' if split in drawn else ''}."
            )


def _is_relevant(grades: Mapping[str, int]) -> bool:
    return any(grade > 0 for grade in grades.values())


def _divided(labels: Labels, documents: Mapping[str, str], seed: int) -> tuple[Labels, Labels]:
    """Most of the queries, and a tenth of them, at most 500, that ask for other documents.

    Where too many queries hang together by their documents, for such a tenth, it is drawn of single queries.
    """
    queries = sorted(labels.queries)
    number = min(len(queries) // 10, _CHOOSING)
    if number < 2:
        raise InputError(
            f"{len(queries)} queries are too few to train on some and choose by others, which takes 20; give more "
            "documents or labelled queries."
        )
    rng, chosen = random.Random(seed), set[str]()
    groups = _groups(labels, documents)
    for group in rng.sample(groups, len(groups)):
        if len(chosen) + len(group) <= number:
            chosen |= group
    if len(chosen) < number / 2:
        chosen = set(rng.sample(queries, number))
        others = {plain_query(labels.queries[query]) for query in queries if query not in chosen}
        chosen = {query for query in chosen if plain_query(labels.queries[query]) not in others}
    return (_only(labels, set(queries) - chosen), _only(labels, chosen))


def _groups(labels: Labels, documents: Mapping[str, str]) -> list[set[str]]:
    """The queries, those together that ask the same, or for the same document, directly or by way of others."""
    above: dict[tuple[str, str], tuple[str, str]] = {}

    def root(node: tuple[str, str]) -> tuple[str, str]:
        while above.setdefault(node, node) != node:
            above[node] = node = above[above[node]]
        return node

    for query, grades in labels.grades.items():
        for passage in (name for name, grade in grades.items() if grade > 0):
            above[root(("document", documents.get(passage, passage)))] = root(("query", query))
    for query, text in labels.queries.items():
        above[root(("text", plain_query(text)))] = root(("query", query))
    groups: dict[tuple[str, str], set[str]] = {}
    for query in sorted(labels.queries):
        groups.setdefault(root(("query", query)), set()).add(query)
    return list(groups.values())


def _documents(corpus: str) -> dict[str, str]:
    """Passage id -> document, where the corpus has them, in a column or in ids such as 7#2 (document and place)."""
    rows = load_corpus(corpus)
    ids = rows["id"][:]
    if "document" in rows.column_names:
        return dict(zip(ids, map(str, rows["document"][:]), strict=True))
    parts = ((name, *name.rpartition("#")[::2]) for name in ids)
    return {name: document for name, document, place in parts if document and place.isdigit()}


def _only(labels: Labels, wanted: set[str]) -> Labels:
    return Labels(
        {query: text for query, text in labels.queries.items() if query in wanted},
        {query: grades for query, grades in labels.grades.items() if query in wanted},
    )


def _write(corpus: str, labels: dict[str, Labels], made: tuple[str, ...], out: Output) -> Material:
    judged = fingerprint_values({split: [found.queries, found.grades] for split, found in labels.items()})
    sources = {"corpus": Source(corpus, content_hash(corpus)), "judgements": Source("judgements", judged)}
    with out.stage("collection", {"made": made}, sources) as work:
        if not work.done:
            about = "Passages, and queries to train on (train), to choose by (dev) and to report on (test)."
            named = ", ".join(f"{split} made of the passages" for split in made)
            about += f" Queries: {named}, the others labelled." if made else " All queries are labelled."
            write_collection(work, corpus_tables(corpus), labels, f"What is adapted to: {Path(corpus).name}", about)
    return Material(out.path, out.path, made, _count(out.path))


def corpus_tables(corpus: str, wanted: Container[str] | None = None) -> Iterator[pa.Table]:
    """The passages of a collection, in their order: all, or those whose ids are wanted."""
    rows = load_corpus(corpus)
    if wanted is not None:
        rows = rows.select([row for row, name in enumerate(rows["id"][:]) if name in wanted])
    rows = rows.with_format("arrow")
    return (rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS))


def _count(collection: Path) -> dict[str, int]:
    judged = {split: load_qrels(collection, split).values() for split in SPLITS}
    queries = {split: sum(map(_is_relevant, grades)) for split, grades in judged.items()}
    return {"passages": len(load_corpus(collection)), **queries}
