"""The passages that every arm is measured on."""

from __future__ import annotations

import random
from collections.abc import Container, Iterator
from pathlib import Path

import pyarrow as pa

from hf_dense.data.collections import content_hash, load_corpus, query_texts
from hf_dense.data.labels import Labels
from hf_dense.data.supervision import write_collection
from hf_dense.evaluation.runner import relevant_qrels
from hf_dense.experiments.adaptation.material import DEV, TEST, Material, corpus_tables
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source


def draw_pool(material: Material, size: int, seed: int, out: Output) -> Path:
    """A collection of so many passages that every arm is measured on: that of the material, where it is no larger.

    Queries of dev and of test are taken, in turn and drawn, while their relevant passages are half of the pool at most;
    the rest are other passages, drawn. Where queries of people are among them, passages are as they were cut, but for
    those that made ones ask for: what answers a person may be the sentence that became a query to train on.

    Returns:
        Its directory, with judgements of dev and test.
    """
    drawn = size < material.counts["passages"]
    whole = bool(material.made) and not {DEV, TEST} <= set(material.made)
    if not drawn and not whole:
        return material.collection
    collection = material.collection
    sources = {"collection": Source(str(collection), content_hash(collection))}
    if whole:
        sources["passages"] = Source(str(material.passages), content_hash(material.passages))
    with out.stage("collection", {"passages": size}, sources, seed=seed) as work:
        if not work.done:
            labels, wanted = _draw(collection, size if drawn else None, seed)
            tables = corpus_tables(str(collection), wanted)
            if whole:
                made = [labels[split] for split in labels if split in material.made]
                asked = {name for found in made for grades in found.grades.values() for name in grades}
                tables = _as_they_were(tables, material.passages, asked)
            about = f"The passages of {collection.name}, or a part of them, that arms are measured on."
            write_collection(work, tables, labels, "Pool", about)
    return out.path


def count_asked(material: Material, size: int, seed: int) -> dict[str, int]:
    """How many queries of dev and of test every arm is measured on, in a pool of so many passages (see `draw_pool`)."""
    if size >= material.counts["passages"]:
        return {split: material.counts[split] for split in (DEV, TEST)}
    labels, _ = _ask(material.collection, size, random.Random(seed))
    return {split: len(found.queries) for split, found in labels.items()}


def _draw(collection: Path, size: int | None, seed: int) -> tuple[dict[str, Labels], set[str] | None]:
    """What is asked, and the passages that are searched; without a size all."""
    rng = random.Random(seed)
    labels, wanted = _ask(collection, size, rng)
    if size is None:
        return labels, None
    others = [name for name in load_corpus(collection)["id"] if name not in wanted]
    return labels, wanted | set(rng.sample(others, size - len(wanted)))


def _ask(collection: Path, size: int | None, rng: random.Random) -> tuple[dict[str, Labels], set[str]]:
    """The queries of a pool of so many passages, or all, and their relevant passages."""
    texts = query_texts(collection)
    labels = {split: Labels() for split in (DEV, TEST)}
    wanted: set[str] = set()
    asked = [(split, *judged) for split in labels for judged in relevant_qrels(collection, split).items()]
    for split, query, grades in rng.sample(asked, len(asked)):
        found = {name: grade for name, grade in grades.items() if grade > 0}
        if size is None or len(wanted | found.keys()) <= size // 2:
            wanted |= found.keys()
            labels[split].queries[query], labels[split].grades[query] = texts[query], found
    return labels, wanted


def _as_they_were(tables: Iterator[pa.Table], passages: Path, changed: Container[str]) -> Iterator[pa.Table]:
    """Passages with the titles and texts that they had before queries were made of them, but for some."""
    before = load_corpus(passages)
    rows = {name: row for row, name in enumerate(before["id"][:])}
    for table in tables:
        ids = table.column("id").to_pylist()
        were = before[[rows[name] for name in ids]]
        for column in ("title", "text"):
            pairs = zip(ids, table.column(column).to_pylist(), were[column], strict=True)
            texts = [now if name in changed else then for name, now, then in pairs]
            table = table.set_column(table.column_names.index(column), column, pa.array(texts, pa.string()))
        yield table
