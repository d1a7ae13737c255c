"""A corpus in, a collection of queries made of its passages out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from tqdm.auto import tqdm

from hf_dense.data.labels import Labels
from hf_dense.data.queries.collected import Collected
from hf_dense.data.queries.generating import Generating
from hf_dense.data.queries.headings import HeadingQueries
from hf_dense.data.queries.neighbours import NeighbourQueries
from hf_dense.data.queries.passages import Changes, Document, Passages, Query
from hf_dense.data.queries.sentences import SentenceQueries, count_corpus
from hf_dense.data.queries.writers import Writer, open_writer, queries_of
from hf_dense.data.splits import Shares, parse_shares
from hf_dense.data.supervision import write_collection
from hf_dense.errors import InputError
from hf_dense.storage.fingerprints import fingerprint_rows
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import is_main_process
from hf_dense.storage.staged import Staged

_ABOUT: Final = {
    "neighbours": "a passage asks for those before and after it, and is not in the corpus (beside other kinds, in a "
    "quarter of the documents)",
    "headings": "a title that no other document has, or the heading of a section that few have, asks for the passages "
    "under it (the first is judged 2, the others 1); titles that are part of a query, and sentences that repeat one, "
    "are taken out of their passages",
    "sentences": "a sentence that no other passage has, with a word that few have, asks for its passage, out of which "
    "it is taken",
    "generated": "a language model wrote it about its passage",
}  # in the order in which they are made: each reads what the ones before have left
KINDS: Final = tuple(_ABOUT)
_LIMITS: Final = (
    "A query's name begins with its kind. Made queries are no users' queries: other words, other lengths, other "
    "wishes; other passages may answer them as well and are not judged. All queries of a document are in one split."
)


class Kind(Protocol):
    """Makes queries of the passages of one document, and takes them out of these passages."""

    def make(self, document: Document) -> list[Query]:
        """The queries."""


def build_queries(
    source: str,
    out: str | os.PathLike[str] | Output,
    kinds: Sequence[str],
    *,
    limit: int | None = None,
    split: str = "80/10/10",
    seed: int = 42,
    generating: Generating | None = None,
) -> Path:
    """Make queries of the passages of a corpus, and write them as a collection.

    Args:
        source: passages, as `hf_dense.data.corpus.load_passages` reads them; best with the columns `document`,
            `position` and `section` of `hf-dense data passages`.
        out: holds `corpus/`, `queries/`, `qrels/<split>.parquet`, `negatives/<split>.parquet` and a card.
        kinds: of `KINDS`.
        limit: passages that queries are made of, drawn, of as many documents as there are; all when absent.
        split: shares of train, dev and test in the documents.
        seed: of all draws.
        generating: how queries are generated, where they are.

    Returns:
        The directory, on every process.

    Raises:
        InputError: an unknown kind, a value outside its range, a corpus or model that cannot be read, no query that
            can be made, or see `Output.stage`.
    """
    shares = _check(kinds, limit, split, generating)
    output, passages = Output.of(out), Passages(source)
    settings = {"kinds": [kind for kind in KINDS if kind in kinds], "limit": limit, "split": dict(shares)}
    sources = {"corpus": Source(source, fingerprint_rows(passages.rows, passages.rows.column_names))}
    writer = None
    if generating:
        writer = open_writer(generating, seed)
        sources["model"] = writer.source
        settings |= generating.settings
    with output.stage("collection", settings, sources, seed=seed, resumable=True) as work:
        if not work.done:
            made = _make(passages, passages.choose(limit, seed), _makers(kinds, passages, seed))
            if writer:
                _generate(made, writer, work.pieces)
            if is_main_process():
                _write(work, passages, made, made.collected.labels(shares, seed), kinds)
    return output.path


def _check(kinds: Sequence[str], limit: int | None, split: str, generating: Generating | None) -> Shares:
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise InputError(f"The kind is {unknown[0] if unknown else 'none'!r}; allowed: {', '.join(KINDS)}.")
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}; make queries of one passage at least.")
    if ("generated" in kinds) != (generating is not None):
        raise InputError("A model is named for generated queries, and for no others: --from generated --model NAME.")
    return parse_shares(split)


@dataclass
class _Made:
    """What has been made.

    Attributes:
        collected: the queries.
        changes: what they take out of the corpus.
        chosen: the passages that queries are generated of, by document and index.
        counts: for the card.
    """

    collected: Collected = field(default_factory=Collected)
    changes: Changes = field(default_factory=Changes)
    chosen: list[tuple[Document, int]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def _makers(kinds: Sequence[str], passages: Passages, seed: int) -> list[Kind]:
    """What makes queries without a model, in the order of `KINDS`."""
    makers: dict[str, Callable[[], Kind]] = {
        "neighbours": lambda: NeighbourQueries(seed, others=len(set(kinds)) > 1),
        "headings": lambda: HeadingQueries(passages),
        "sentences": lambda: SentenceQueries(count_corpus(passages.rows), seed),
    }
    return [make() for kind, make in makers.items() if kind in kinds]


def _make(passages: Passages, chosen: NDArray[np.bool_], makers: Sequence[Kind]) -> _Made:
    made = _Made(counts=Counter({"documents": passages.documents, "passages read": len(passages)}))
    total = passages.documents_of(chosen)
    for document in tqdm(passages.read(chosen), desc="Making queries", unit=" documents", total=total):
        for maker in makers:
            for query in maker.make(document):
                made.collected.add(document, query)
        made.changes.note(document)
        made.chosen += [(document, at) for at in document.left if document.chosen[at]]
    return made


def _generate(made: _Made, writer: Writer, pieces: Path) -> None:
    """Let a model write about the passages as the other kinds have left them, and about their titles.

    Raises:
        InputError: they have left none.
    """
    if not made.chosen:
        raise InputError(
            "Neighbours are made of all passages that were chosen, and none is left to a model; raise limit."
        )
    shown = ((document.title or writer.untitled, document.texts[at]) for document, at in made.chosen)
    titles, texts = zip(*shown, strict=True)
    written = writer.write(Dataset.from_dict({"title": titles, "text": texts}), pieces)
    for number, (document, at) in enumerate(made.chosen):
        for style, text in queries_of(written, number):
            if text.casefold() == document.title.casefold():
                made.counts["left out: the title"] += 1
                continue
            made.collected.add(document, Query(f"generated:{style}".rstrip(":"), text, at, {at: 1}))
    made.counts += writer.counts


def _write(work: Staged, passages: Passages, made: _Made, labels: dict[str, Labels], kinds: Sequence[str]) -> None:
    name, left_out = Path(work.manifest.sources["corpus"]).name, made.collected.counts
    if not labels:
        why = ", ".join(f"{number:,} {reason}" for reason, number in left_out.items())
        raise InputError(
            f"No query can be made of {name} from {' or '.join(kinds)}{f' ({why})' if why else ''}. Name other kinds "
            "with --from, or a corpus of more documents."
        )
    counts = made.counts + left_out
    counts.update({f"queries from {kind}": 0 for kind in kinds})
    counts.update(f"queries from {query.partition(':')[0]}" for found in labels.values() for query in found.queries)
    kept = [kind for kind in KINDS if kind in kinds]
    about = " ".join(f"From {kind}: {_ABOUT[kind]}." for kind in kept)
    about = f"Queries that were made of passages, by {len(kept)} means. {about} {_LIMITS}"
    write_collection(work, passages.changed(made.changes), labels, f"Queries made of {name}", about, counts)
