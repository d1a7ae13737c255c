"""What labels say of a corpus: their passages found in it, by id or by their words, and the documents these are of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hf_dense.data.labels import Labels
from hf_dense.data.overlaps import Overlaps, nearest
from hf_dense.data.splits import Shares, common_split, divide_documents, plain_query
from hf_dense.errors import InputError


@dataclass
class Found:
    """The passages of a corpus that labels speak of.

    Attributes:
        ids: by the name that labels call a passage or document by, what the corpus calls it: the ids of the passages
            with the same words, or else the id that stands where the text belongs, or else those with many of the
            words, where the labels bring the text along; the same where they do not, of several with the words, and
            where none has them, but the title.
        documents: by an id of the corpus, the document: what the passage was cut from, else its title, else itself.
        overlapping: names of texts that stand in no passage word for word, but share enough with some (`Overlaps`).
    """

    ids: dict[str, list[str]] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    overlapping: set[str] = field(default_factory=set)


def find_passages(labels: Iterable[Labels], corpus: Callable[[], Iterable[pa.Table]]) -> Found:
    """Look for all that labels name, or bring along as text, in a corpus.

    Args:
        labels: of all splits.
        corpus: opens it: tables with the columns `id`, `text` and, where they are there, `title` and `document`. It is
            read a second time where a text does not stand in it word for word.

    Returns:
        What was found; names that nothing was found for are in none of it.
    """
    names, texts, found = set[str](), dict[bytes, list[str]](), Found()
    brought, titles, titled = dict[str, str](), dict[str, str](), dict[str, str]()
    for each in labels:
        names.update(name for graded in each.grades.values() for name in graded)
        names.update(name for listed in each.negatives.values() for name in listed)
        brought |= {name: text for name, (_, text) in each.passages.items() if text.strip()}
        titles |= {name: title.strip() for name, (title, _) in each.passages.items() if title.strip()}
    for name, text in brought.items():
        texts.setdefault(_digest(text), []).append(name)
    said = {text: name for name, text in brought.items()}  # which may be an id
    by_id: dict[str, list[str]] = {}
    by_text: dict[str, list[str]] = {}
    for table in corpus():
        for name, title, text, document in _rows(table):
            called = [name, *([document] if document else [])]
            for known in names.intersection(called):
                by_id[known], titled[known] = [known], title.strip()
                found.documents[known] = document or title or known
            for known in said.keys() & called:
                found.ids[said[known]] = [known]
                found.documents[known] = document or title or known
            for known in texts.get(_digest(text), ()) if texts else ():
                by_text.setdefault(known, []).append(name)
                found.documents[name] = document or title or name
    # Of a text its words decide: ids such as 1, 2, 3 are those of other passages in another corpus.
    found.ids |= {**{name: ids for name, ids in by_id.items() if name not in brought}, **by_text}
    if lacking := {name: text for name, text in brought.items() if name not in found.ids}:
        _find_overlaps(lacking, corpus(), found)
    for name in brought.keys() & by_id.keys() - found.ids.keys():  # too short, say, to be found in part
        if name in titles and titles[name] == titled[name]:
            found.ids[name] = [name]
    for name, ids in found.ids.items():
        if name in ids:
            found.ids[name] = [name]
    return found


def _find_overlaps(texts: Mapping[str, str], corpus: Iterable[pa.Table], found: Found) -> None:
    """Add the passages that hold much of a text, or the other way around, and more of it than others like them."""
    overlaps, places, shared = Overlaps(texts), dict[str, list[tuple[str, str]]](), dict[str, list[NDArray[np.int32]]]()
    for table in corpus:
        rows = list(_rows(table))
        for known, row, runs in overlaps.find([text for _, _, text, _ in rows]):
            name, title, _, document = rows[row]
            places.setdefault(known, []).append((name, document or title or name))
            shared.setdefault(known, []).append(runs)
    for known, there in places.items():
        kept = [there[at] for at in nearest(shared[known])]
        found.ids[known] = [name for name, _ in kept]
        found.documents |= kept
        found.overlapping.add(known)


def use_ids(labels: Mapping[str, Labels], found: Found, corpus: str) -> dict[str, Labels]:
    """Labels that name passages as the corpus does; what it lacks is left out and counted.

    Args:
        labels: by split; passages that came with them as texts may be lacking.
        found: of these labels.
        corpus: its name, for people.

    Raises:
        InputError: a passage is lacking that the labels know by its id alone, or every relevant one is.
    """
    known = [name for each in labels.values() for name in each.passages]
    judged = {name for each in labels.values() for graded in each.grades.values() for name in graded}
    if unknown := judged.difference(found.ids, known):
        raise InputError(f"The judgements name the passage {min(unknown)!r}, which is not in the corpus.")
    used = {split: _use_ids(each, found) for split, each in labels.items()}
    lost = sum(each.dropped[_LOST] for each in used.values())
    if lost and not any(
        grade > 0 for each in used.values() for graded in each.grades.values() for grade in graded.values()
    ):
        raise InputError(
            f"None of the {lost:,} relevant passages stands in {corpus}, whole or in part; labels need its ids, or "
            "texts of at least eight words that were taken from there."
        )
    return used


UNFOUND: Final = "queries without a relevant passage in the corpus"
DIVIDED: Final = "queries left out, of documents in several splits"
_LOST = "relevant passages that the corpus lacks"
_IN_PART = "relevant passages found in part, cut otherwise in the corpus"
_PARTS = "passages of the corpus that hold those found in part"


def _use_ids(labels: Labels, found: Found) -> Labels:
    used = replace(labels, queries={}, grades={}, negatives={}, passages={}, dropped=Counter(labels.dropped))
    for query, text in labels.queries.items():
        graded = labels.grades.get(query, {})
        lost = [name for name, grade in graded.items() if grade > 0 and name not in found.ids]
        used.dropped[_LOST] += len(lost)
        parts = [name for name, grade in graded.items() if grade > 0 and name in found.overlapping]
        used.dropped[_IN_PART] += len(parts)
        used.dropped[_PARTS] += sum(len(found.ids[name]) for name in parts)
        kept: dict[str, int] = {}
        for known, grade in graded.items():
            kept |= {name: max(grade, kept.get(name, grade)) for name in found.ids.get(known, ())}
        if lost and not any(grade > 0 for grade in kept.values()):
            used.dropped[UNFOUND] += 1
            continue
        negatives = labels.negatives.get(query, [])
        used.dropped["negatives that the corpus lacks"] += sum(name not in found.ids for name in negatives)
        ids = dict.fromkeys(name for known in negatives for name in found.ids.get(known, ()))
        used.queries[query], used.grades[query] = text, kept
        used.negatives[query] = [name for name in ids if kept.get(name, 0) <= 0]
    used.answers = {query: strings for query, strings in labels.answers.items() if query in used.queries}
    used.dropped += Counter()  # no reason that never was one
    return used


def divide(labels: Labels, found: Found, shares: Shares, seed: int) -> dict[str, Labels]:
    """Labels divided by the documents of their relevant passages, so that no document is asked for in two splits.

    Queries that differ in case and white space alone are of one split, by the documents of all of them. A query whose
    documents are of several splits is left out; one without any goes where a document of its id would.

    Args:
        labels: naming passages as the corpus does.
        found: of these labels.
        shares: of the documents.
        seed: of the draw.

    Raises:
        InputError: a split gets no query.
    """
    divided = {split: Labels(passages=labels.passages) for split, share in shares.items() if share > 0}
    alike: dict[str, set[str]] = {}
    for query, text in labels.queries.items():
        documents = {found.documents[name] for name, grade in labels.grades.get(query, {}).items() if grade > 0}
        alike.setdefault(plain_query(text), set()).update(documents)
    asked = {query: alike[plain_query(text)] or {query} for query, text in labels.queries.items()}
    splits = divide_documents((document for documents in asked.values() for document in documents), shares, seed)
    several = Counter[str]()
    for query, text in labels.queries.items():
        split = common_split(asked[query], splits)
        if split is None:
            several[DIVIDED] += 1
            continue
        part = divided[split]
        part.queries[query], part.grades[query] = text, labels.grades.get(query, {})
        part.negatives[query] = labels.negatives.get(query, [])
        if query in labels.answers:
            part.answers[query] = labels.answers[query]
    next(iter(divided.values())).dropped = labels.dropped + several
    for split, part in divided.items():
        if not part.queries:
            left_out = f", of {sum(several.values()):,} the documents are in several splits" if several else ""
            raise InputError(
                f"The split {split} gets none of the {len(labels.queries):,} queries{left_out}; give it a greater "
                "share, another --seed, or split the labels yourself."
            )
    return divided


def _rows(table: pa.Table) -> Iterator[tuple[str, str, str, str]]:
    """Id, title, text and document of each passage; "" where there is none."""
    empty = [""] * len(table)
    columns = (
        table.column(name).to_pylist() if name in table.column_names else empty
        for name in ("id", "title", "text", "document")
    )
    for name, title, text, document in zip(*columns, strict=True):
        yield name, title or "", text or "", document or ""


def _digest(text: str) -> bytes:
    """The same for texts that differ in white space alone."""
    return blake2b(" ".join(text.split()).encode("utf-8", "surrogatepass"), digest_size=12).digest()
