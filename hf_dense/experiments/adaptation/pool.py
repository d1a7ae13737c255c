"""The passages that every arm is measured on."""

from __future__ import annotations

import random
from pathlib import Path

from hf_dense.data.collections import content_hash, load_corpus, load_queries
from hf_dense.data.labels import Labels
from hf_dense.data.supervision import write_collection
from hf_dense.evaluation.runner import relevant_qrels
from hf_dense.experiments.adaptation.material import DEV, TEST, Material, corpus_tables
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source


def draw_pool(material: Material, size: int, seed: int, out: Output) -> Path:
    """A collection of so many passages that every arm is measured on: the whole one, where it is no larger.

    Queries of dev and of test are taken, in turn and drawn, while their relevant passages are half of the pool at most;
    the rest are other passages, drawn.

    Returns:
        Its directory, with judgements of dev and test.
    """
    if size >= material.counts["passages"]:
        return material.collection
    collection = material.collection
    source = {"collection": Source(str(collection), content_hash(collection))}
    with out.stage("collection", {"passages": size}, source, seed=seed) as work:
        if not work.done:
            labels, wanted = _draw(collection, size, seed)
            about = f"A part of {collection.name}: the passages that arms are measured on."
            write_collection(work, corpus_tables(str(collection), wanted), labels, "Pool", about)
    return out.path


def _draw(collection: Path, size: int, seed: int) -> tuple[dict[str, Labels], set[str]]:
    rng = random.Random(seed)
    texts = dict(zip(*(load_queries(collection)[name] for name in ("id", "text")), strict=True))
    labels = {split: Labels() for split in (DEV, TEST)}
    wanted: set[str] = set()
    asked = [(split, *judged) for split in labels for judged in relevant_qrels(collection, split).items()]
    for split, query, grades in rng.sample(asked, len(asked)):
        found = {name: grade for name, grade in grades.items() if grade > 0}
        if len(wanted | found.keys()) <= size // 2:
            wanted |= found.keys()
            labels[split].queries[query], labels[split].grades[query] = texts[query], found
    others = [name for name in load_corpus(collection)["id"] if name not in wanted]
    return labels, wanted | set(rng.sample(others, size - len(wanted)))
