"""Training lists: queries with positive and negative passages, drawn anew in every epoch."""

from __future__ import annotations

import json
import logging
import math
import os
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, zip_longest
from typing import Any, Final

import numpy as np
from datasets import Dataset
from pyarrow import ArrowException, parquet

from hf_dense.data.collections import content_hash, folder_of, holds_corpus, load_corpus, query_texts, training_pairs
from hf_dense.data.corpus import table_files
from hf_dense.data.duplicates import exact_hashes
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.data.schemas import TRAINING
from hf_dense.data.splits import even_draw, plain_query
from hf_dense.errors import InputError
from hf_dense.storage.fingerprints import fingerprint_rows, fingerprint_texts
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.places import Source

KIND: Final = "training lists"  # of output
GIVEN: Final = "given from Python"  # the name of a source that has none

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """A query to train on.

    Args:
        id: of the query.
        query: its text.
        positives: ids of relevant passages, one or more.
        negatives: ids of others, the hardest first.
        scores: a teacher's score by passage id; None without a teacher.
        place: file and row it came from, for errors.
    """

    id: str
    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    scores: Mapping[str, float] | None = None
    place: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        return f"The list of query {self.id!r}{f' ({self.place})' if self.place else ''}"


def load_entries(path: str | os.PathLike[str], split: str = "train") -> list[Entry]:
    """Training lists of a directory.

    Args:
        path: a collection, or the output of `hf-dense data negatives`, of mining or of scoring, here or on the Hub. Of
            a collection without training lists its judgements are read; there are no negatives then.

    Raises:
        InputError: nothing is there, or lists of other splits alone, or a row lacks a positive, or scores for some of
            its passages alone.
    """
    file = folder_of(path) / "negatives" / f"{split}.parquet"
    if not file.is_file():
        if (others := sorted(other.stem for other in file.parent.glob("*.parquet"))) and not holds_corpus(path):
            raise InputError(
                f"{path} has no lists of the split {split!r}, but of {', '.join(others)}; make them of it."
            )
        if not holds_corpus(path):
            raise InputError(
                f"{path} has no training lists (negatives/{split}.parquet), nor the judgements of a collection; name "
                "the directory that hf-dense data negatives, scores or labels wrote."
            )
        return _judged(path, split)
    try:
        rows = parquet.read_table(file).select(list(TRAINING)).cast(TRAINING.arrow_schema).to_pylist()
    except (ArrowException, KeyError, OSError) as error:
        raise InputError(f"{file} is not a file of training lists: {str(error).splitlines()[0]}") from error
    if not rows:
        raise InputError(f"{file} holds no training list.")
    return [_entry(row, f"row {number} of {file}") for number, row in enumerate(rows, 1)]


def _entry(row: dict[str, Any], place: str) -> Entry:
    positives, negatives = (tuple(dict.fromkeys(row[kind] or ())) for kind in ("positives", "negatives"))
    entry = Entry(row["query_id"], row["query"], positives, negatives, place=place)
    if not isinstance(entry.id, str) or not isinstance(entry.query, str):
        raise InputError(f"{entry} lacks {'its text' if entry.id else 'an id'}.")
    if not positives:
        raise InputError(f"{entry} has no positive passage.")
    if row["positive_scores"]:  # a teacher's; BM25 scores negatives alone
        return replace(entry, scores=_scores(entry, row))
    return entry


def _scores(entry: Entry, row: dict[str, Any]) -> dict[str, float]:
    """A teacher's scores by passage, when there is one for each."""
    scores: dict[str, float] = {}
    for kind in ("positive", "negative"):
        names, given = row[f"{kind}s"] or (), row[f"{kind}_scores"] or ()
        if len(given) != len(names):
            raise InputError(
                f"{entry} has {len(given)} {kind}_scores for {len(names)} {kind}s; a teacher scores each of them."
            )
        for name, score in zip(names, given, strict=True):
            if name in scores and scores[name] != score:
                raise InputError(f"{entry} has two scores of the passage {name!r}; leave one of them.")
            scores[name] = score
    return scores


def join_lists(parts: Sequence[Sequence[Entry]]) -> list[Entry]:
    """Several lists of every query as one: their negatives in turn, the hardest of each first, each passage once.

    A passage that one list takes for relevant is no negative. A teacher's scores are left out, as those of two teachers
    do not compare: joined lists are to be scored anew. Source: query-as-context, section 3.2, which does not say how
    the two are combined; CoT-MAE's released script, which keeps them as two lists of a query.

    Args:
        parts: lists of the same collection; a query that only some have keeps what these say.

    >>> mined, bm25 = Entry("q", "what", ("p0",), ("p1", "p2")), Entry("q", "what", ("p0",), ("p3", "p1", "p4"))
    >>> join_lists([[mined], [bm25]])[0].negatives
    ('p1', 'p3', 'p2', 'p4')
    """
    if len(parts) == 1:
        return list(parts[0])
    found: dict[str, list[Entry]] = {}
    for entry in chain(*parts):
        found.setdefault(entry.id, []).append(entry)
    return [_joined(entries) for entries in found.values()]


def _joined(entries: Sequence[Entry]) -> Entry:
    """The lists of one query as one."""
    positives = dict.fromkeys(chain(*(entry.positives for entry in entries)))
    in_turn = dict.fromkeys(chain(*zip_longest(*(entry.negatives for entry in entries))))
    negatives = tuple(name for name in in_turn if name is not None and name not in positives)
    return Entry(entries[0].id, entries[0].query, tuple(positives), negatives, place=entries[0].place)


def list_sources(parts: Mapping[str, Iterable[Entry]]) -> dict[str, Source]:
    """Directories of lists, by their paths, as what is made from them names them: `lists`, `lists 2` and so on."""
    found = (Source(path, fingerprint_entries(entries)) for path, entries in parts.items())
    return {"lists" if number == 1 else f"lists {number}": source for number, source in enumerate(found, 1)}


def _judged(path: str | os.PathLike[str], split: str) -> list[Entry]:
    """A collection's judgements as lists without negatives."""
    texts: dict[str, str] = {}
    positives: dict[str, list[str]] = {}
    for row in training_pairs(path, split):
        texts[row["query_id"]] = row["query"]
        positives.setdefault(row["query_id"], []).append(row["passage_id"])
    return [Entry(name, texts[name], tuple(found)) for name, found in positives.items()]


def share(entries: Sequence[Entry], fraction: float, seed: int) -> list[Entry]:
    """Some of the queries, for few-shot training: the same ones for a seed, those of a smaller share among them.

    Raises:
        InputError: the fraction is not above 0 and at most 1, or it leaves no query.
    """
    if not 0 < fraction <= 1:
        raise InputError(f"The fraction of training queries is {fraction}; give one above 0 and at most 1.")
    kept = [entry for entry in entries if even_draw(f"{seed}:{entry.id}") < fraction]
    if not kept:
        raise InputError(f"The fraction {fraction} of {len(entries)} training queries leaves none.")
    return kept


def draw(entries: Sequence[Entry], count: int, seed: int) -> list[Entry]:
    """So many of the queries: the same ones for a seed, fewer among more (and among those of a larger `share`)."""
    drawn = sorted(range(len(entries)), key=lambda place: even_draw(f"{seed}:{entries[place].id}"))
    return [entries[place] for place in sorted(drawn[:count])]


def fingerprint_entries(entries: Iterable[Entry]) -> str:
    """Of the queries, their passages and a teacher's scores, in their order."""
    facts = ([entry.id, entry.query, entry.positives, entry.negatives, entry.scores] for entry in entries)
    return fingerprint_texts(map(json.dumps, facts))


class PassageLists:
    """Lists of passages for queries: one positive and so many negatives, drawn by (seed, epoch, query).

    Negatives that are short are made up with passages drawn from the whole corpus, as SimLM and RetroMAE do.

    Args:
        entries: queries with the ids of their passages.
        corpus: columns `id`, `title`, `text`.
        passages: of a list, the positive included; 1 for in-batch negatives alone.
        depth: how many of an entry's negatives are drawn from.
        seed: of all draws.
        scored: whether a teacher's scores are wanted.

    Attributes:
        epoch: number of the epoch, from 0; set by the trainer.
        origin: path of the collection, for manifests.
        parts: the directories that the lists are of (see `list_sources`); none where they were given from Python.

    Raises:
        InputError: a positive or negative is not in the corpus, or one is both, or a list has no scores, or one that
            is no number, or none has as many as are asked for.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        corpus: Dataset,
        passages: int,
        seed: int,
        depth: int = 200,
        scored: bool = False,
    ) -> None:
        if passages < 1 or depth < 1:
            raise InputError(f"passages is {passages} and depth is {depth}; both are at least 1.")
        if passages > len(corpus):
            raise InputError(f"A list of {passages} passages was asked for; the corpus has {len(corpus)}.")
        self.passages, self.seed, self.depth, self.scored = passages, seed, depth, scored
        self.ids: list[str] = corpus["id"][:]
        self.indices = {name: index for index, name in enumerate(self.ids)}
        self.corpus = corpus.select_columns(["id", "title", "text"])
        self.epoch = 0
        self.origin, self.parts = GIVEN, dict[str, Source]()
        self.replace(entries)

    def replace(self, entries: Sequence[Entry]) -> None:
        """Go on with other lists of the same queries (fresh negatives)."""
        short: list[Entry] = []
        for entry in entries:
            unknown = [name for name in (*entry.positives, *entry.negatives) if name not in self.indices]
            if unknown:
                raise InputError(f"{entry} names the passage {unknown[0]!r}, which is not in the corpus.")
            if both := sorted({*entry.positives} & {*entry.negatives}):
                raise InputError(f"{entry} has the passage {both[0]!r} among its positives and among its negatives.")
            if self.scored:
                _check_scores(entry)
            if self._is_short(entry):
                short.append(entry)
        if short and self.scored and len(short) == len(entries):
            raise InputError(
                f"{short[0]} has {min(len(short[0].negatives), self.depth)} scored negatives at a depth of "
                f"{self.depth}, and {self.passages - 1} are asked for; ask for fewer passages or a greater depth, or "
                "score longer lists."
            )
        if short:
            logger.warning(
                "%d of %d lists have fewer than %d %s at a depth of %d (the first is that of query %r); they are %s.",
                len(short),
                len(entries),
                self.passages - 1,
                "scored negatives" if self.scored else "negatives",
                self.depth,
                short[0].id,
                "left out" if self.scored else "made up with passages drawn from the corpus",
            )
        self._asked = _positives_by_query(entries)
        if self.scored:
            entries = [entry for entry in entries if not self._is_short(entry)]
        self.entries = list(entries)

    def _is_short(self, entry: Entry) -> bool:
        return min(len(entry.negatives), self.depth) < self.passages - 1

    def _relevant(self, entry: Entry) -> list[str]:
        """Ids of what is relevant for a query, its own positives first, or for another one of the same words."""
        return list(dict.fromkeys([*entry.positives, *self._asked.get(plain_query(entry.query), ())]))

    def __len__(self) -> int:
        return len(self.entries)

    def dataset(self, numbered: bool = False) -> Dataset:
        """Rows with `query`, `passages` (texts, the positive first) and, where wanted, `label` (teacher's scores).

        Args:
            numbered: with `numbers`, one for each of these texts, the same for copies, and `relevant`, those of all
                that is relevant for a query of these words.
        """
        rows = Dataset.from_dict({"row": list(range(len(self)))})
        rows.set_transform(partial(self._read, numbered=numbered))
        return rows

    def draw(self, row: int) -> list[str]:
        """Ids of the passages of a list in this epoch, the positive first."""
        entry = self.entries[row]
        rng = np.random.default_rng([self.seed, self.epoch, zlib.crc32(entry.id.encode())])
        chosen = [entry.positives[int(rng.integers(len(entry.positives)))]]
        wanted = self.passages - 1
        among = entry.negatives[: self.depth]
        chosen += [among[index] for index in rng.permutation(len(among))[:wanted]]
        taken = {*chosen, *self._relevant(entry)}
        while len(chosen) <= wanted:
            name = self.ids[int(rng.integers(len(self.ids)))]
            if name not in taken or len(taken) >= len(self.ids):
                taken.add(name)
                chosen.append(name)
        return chosen

    def _read(self, batch: dict[str, list[int]], numbered: bool) -> dict[str, list[Any]]:
        drawn = [self.draw(row) for row in batch["row"]]
        read: dict[str, list[Any]] = {"query": [self.entries[row].query for row in batch["row"]]}
        read["passages"] = [self.texts(names) for names in drawn]
        if numbered:
            read["numbers"] = [passage_numbers(texts) for texts in read["passages"]]
            relevant = [self._relevant(self.entries[row]) for row in batch["row"]]
            read["relevant"] = [passage_numbers(self.texts(names)) for names in relevant]
        if self.scored:
            scores = [self.entries[row].scores or {} for row in batch["row"]]
            read["label"] = [[known[name] for name in names] for known, names in zip(scores, drawn, strict=True)]
        return read

    def texts(self, names: Sequence[str]) -> list[str]:
        """Title and text of passages."""
        return PassageTexts(self.corpus)[[self.indices[name] for name in names]]

    def settings(self) -> dict[str, Any]:
        """What decides on the draws beside the sources, as JSON has it."""
        drawn = {"passages of a list": self.passages, "depth of the lists": self.depth, "seed of the lists": self.seed}
        return {**drawn, "scored lists": self.scored}

    def sources(self) -> dict[str, Source]:
        """The lists as they are, and all passages, with fingerprints."""
        lists = self.parts or list_sources({GIVEN: self.entries})
        fingerprint = fingerprint_rows(self.corpus, self.corpus.column_names)
        return {**lists, "collection": Source(self.origin, fingerprint)}


def _check_scores(entry: Entry) -> None:
    """Raise `InputError` where a passage of a list has no teacher's score, or one that is no number."""
    if not entry.scores:
        raise InputError(f"{entry} has no teacher's scores; score the lists first.")
    for name in (*entry.positives, *entry.negatives):
        score = entry.scores.get(name)
        if score is None or not math.isfinite(score):
            raise InputError(f"{entry} has the teacher's score {score} of the passage {name!r}, which is no number.")


def _check_direction(entries: Sequence[Entry]) -> None:
    """Warn where a teacher's scores are lower for what is relevant, as ranks and distances are."""
    below = sum(_mean_score(entry, entry.positives) < _mean_score(entry, entry.negatives) for entry in entries)
    if 2 * below > len(entries):
        logger.warning(
            "In %d of %d lists the teacher scores the positives below the negatives, on average. A higher score is a "
            "better passage: turn ranks and distances around, or take another teacher.",
            below,
            len(entries),
        )


def _mean_score(entry: Entry, names: Sequence[str]) -> float:
    """The teacher's, of some passages; 0 of none."""
    return sum((entry.scores or {})[name] for name in names) / max(1, len(names))


def _positives_by_query(entries: Sequence[Entry]) -> dict[str, set[str]]:
    """Ids of what is relevant by the words of a query, for those that several entries have."""
    counts, found = Counter(plain_query(entry.query) for entry in entries), dict[str, set[str]]()
    for entry in entries:
        if counts[words := plain_query(entry.query)] > 1:
            found.setdefault(words, set()).update(entry.positives)
    return found


def passage_numbers(texts: Sequence[str]) -> list[int]:
    """A number for each text, on all machines the same: by ids two copies of a passage would count as different."""
    return [*map(int, exact_hashes(texts).view(np.int64))]


def load_lists(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    collection: str | os.PathLike[str],
    passages: int,
    seed: int,
    *,
    split: str = "train",
    depth: int = 200,
    scored: bool = False,
    queries: Collection[str] | None = None,
) -> PassageLists:
    """The training lists of a directory, or of several joined, over the corpus of a collection (see `PassageLists`).

    Args:
        queries: ids of those whose lists are read, where it is not all.

    Raises:
        InputError: besides, the collection is another one than the lists were made from, or has changed since: ids may
            stand for other texts, and negatives may be judged relevant by now.
    """
    parts: dict[str, Sequence[Entry]] = {}
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        _check_origin(path, collection)
        entries = load_entries(path, split)
        _check_queries(entries, path, collection)
        parts[str(path)] = [entry for entry in entries if queries is None or entry.id in queries]
    return lists_of(parts, load_corpus(collection), str(collection), passages, seed, depth, scored)


def lists_of(
    parts: Mapping[str, Sequence[Entry]],
    corpus: Dataset,
    origin: str,
    passages: int,
    seed: int,
    depth: int = 200,
    scored: bool = False,
) -> PassageLists:
    """The lists of directories, by their paths, as one, over the corpus of the collection `origin`."""
    if scored and len(parts) > 1:
        raise InputError(
            f"Lists that are joined ({', '.join(parts)}) have no teacher's scores, as those of two teachers do not "
            "compare; score them together first (hf-dense data scores)."
        )
    lists = PassageLists(join_lists([*parts.values()]), corpus, passages, seed, depth, scored)
    lists.origin, lists.parts = origin, list_sources(parts)
    if scored and not any(map(_is_scored_by_words, parts)):
        _check_direction(lists.entries)
    return lists


def _check_queries(entries: Sequence[Entry], path: str | os.PathLike[str], collection: str | os.PathLike[str]) -> None:
    """Warn where lists are of other queries than those of the collection, as ids of another one may stand for."""
    if not table_files(folder_of(collection), "queries"):
        return
    texts = query_texts(collection)
    if strange := [entry for entry in entries if texts.get(entry.id) != entry.query]:
        logger.warning(
            "%s of the %s lists in %s are of queries that %s does not have, or has in other words; the first is %r. "
            "They are trained on as they are: make sure that their passages are those of this collection.",
            f"{len(strange):,}",
            f"{len(entries):,}",
            path,
            collection,
            strange[0].id,
        )


def _is_scored_by_words(path: str) -> bool:
    """Whether BM25 gave the scores: of negatives that it found too, they are the greater ones as often as not."""
    made = Manifest.load(path)
    return made is not None and "BM25" in made.made_from


def _check_origin(path: str | os.PathLike[str], collection: str | os.PathLike[str]) -> None:
    """Raise `InputError` where lists were made from another collection, or from this one before it changed."""
    made = Manifest.load(folder_of(path))
    if made is not None and made.kind == KIND and made.made_from.get("collection") != content_hash(collection):
        origin = made.sources.get("collection")
        which = f"{collection} as it was" if origin == str(collection) else f"{origin}, whose content is another"
        raise InputError(f"The training lists in {path} were made from {which}; make them anew from {collection}.")
