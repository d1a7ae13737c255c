"""Labelled queries, read from the forms they are published in."""

from __future__ import annotations

import ast
import csv
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from gzip import BadGzipFile
from hashlib import blake2b
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, Final

from hf_dense.data.passage_texts import passage_text
from hf_dense.data.rows import (
    SURROGATE,
    check_head,
    divider_of,
    listed_values,
    open_table,
    plain_text,
    read_rows,
    table_kind,
    with_plain_names,
)
from hf_dense.errors import InputError, first_line

_QUERIES: Final = ("query", "question", "anchor")
_POSITIVES: Final = ("positive", "positives", "pos", "passage", "answer")
_NEGATIVES: Final = ("negative", "negatives", "neg", "hard_negatives")
_NUMBERED: Final = re.compile(r"(\w+)_[0-9]+")  # columns of which each holds one of several
_OF_TEVATRON: Final = ("positive_passages", "negative_passages")
_GRADES: Final = ("label", "score", "relevance", "grade")
_WHOLE: Final = re.compile(r"([-+]?[0-9]{1,4})(?:\.0+)?")
UNANSWERED: Final = "queries without a positive passage"
_EMPTY: Final = "empty passages"
_REPEATED: Final = "negatives that are positives or repeated"
_REGRADED: Final = "grades left out, as a later row has another of the same passage"
_SEPARATOR: Final = " [SEP] "  # between the titles of a history
_HISTORY: Final = 50  # titles; more do not fit 512 tokens
_CONTEXT_COLUMNS: Final = (("passage_id", "psg_id", "docid"), ("title",))


@dataclass
class Labels:
    """Queries and what was judged of them.

    Args:
        queries: text by id.
        grades: by query id, the grade of every judged passage (or document) id.
        negatives: by query id, passage ids that came as negatives.
        answers: by query id, strings that answer it.
        passages: id -> (title, text), of forms that bring their passages along.
        dropped: how many were left out or found in part alone, by reason.
    """

    queries: dict[str, str] = field(default_factory=dict)
    grades: dict[str, dict[str, int]] = field(default_factory=dict)
    negatives: dict[str, list[str]] = field(default_factory=dict)
    answers: dict[str, list[str]] = field(default_factory=dict)
    passages: dict[str, tuple[str, str]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, query: str, positives: Iterable[str], negatives: Iterable[str], grade: int = 1) -> str:
        """Judge passages (ids) for a query that is known by its text; more of the same query is joined. Its id.

        Positives have the grade, 0 where they are not relevant; what they had before is left out, and counted.
        """
        name = _name(query)
        self.queries[name] = query
        judged, graded = list(positives), self.grades.setdefault(name, {})
        if again := sum(graded.get(passage, grade) != grade for passage in judged):
            self.dropped[_REGRADED] += again
        graded.update(dict.fromkeys(judged, grade))
        known = self.negatives.setdefault(name, [])
        known += [passage for passage in dict.fromkeys(negatives) if passage not in known]
        return name

    def drop_repeated(self) -> None:
        """Leave out negatives that read as a positive of their query does, or as a negative before them."""
        for query, negatives in self.negatives.items():
            taken, kept = {self._words(name) for name in self.grades[query]}, list[str]()
            for name in negatives:
                if (words := self._words(name)) not in taken:
                    taken.add(words)
                    kept.append(name)
            self.dropped[_REPEATED] += len(negatives) - len(kept)
            self.negatives[query] = kept
        self.dropped += Counter()  # no reason that never was one

    def _words(self, name: str) -> str:
        """What a passage says, or its id, where that is all that the labels have of it."""
        return " ".join(passage_text(*self.passages[name]).split()) or name

    def reject(self, query: str, negatives: Iterable[str]) -> None:
        """Judge passages (ids) as none that answer a query, whatever was said of them before."""
        rejected = list(negatives)
        grades = self.grades[self.add(query, (), rejected)]
        for passage in rejected:
            grades.pop(passage, None)

    def verdict(self, query: str, text: str) -> bool | None:
        """Whether a passage answers a query, both by their texts; None where nobody said."""
        name, passage = _name(query), _name(text)
        if passage in (graded := self.grades.get(name, {})):
            return graded[passage] > 0
        return False if passage in self.negatives.get(name, ()) else None

    def keep(self, text: str, title: str = "", name: str = "") -> str:
        """Remember a passage; its id."""
        name = name or _name(f"{title}\0{text}" if title else text)
        self.passages.setdefault(name, (title, text))
        return name


def read_pairs(path: Path) -> Labels:
    """One's own pairs, triples or lists: a .jsonl, .json, .csv, .tsv or .parquet file, as `read_judgements` reads it.

    Queries that never got a positive passage are left out and counted.
    """
    labels = read_judgements(path)
    for name in [name for name, grades in labels.grades.items() if not any(grade > 0 for grade in grades.values())]:
        del labels.queries[name], labels.grades[name], labels.negatives[name]
        labels.dropped[UNANSWERED] += 1
    labels.drop_repeated()
    return labels


def read_judgements(path: Path) -> Labels:
    """What a .jsonl, .json, .csv, .tsv (also .gz) or .parquet file says of queries; rows of a query belong together.

    The query may be called `question` or `anchor`, several passages `negative_1`, `negative_2` and so on; Tevatron's
    `positive_passages` and `negative_passages` are read, too.

    A row with negatives alone takes back what rows before it said of these passages; a positive always counts, with the
    grade of a column `label`, `score`, `relevance` or `grade` where there is one: 0 is not relevant.

    Raises:
        InputError: the file is of no known kind, or a row has no query or no passage, or a grade that is none.
    """
    labels = Labels()
    for number, written in enumerate(_rows(path), start=1):
        origin, row = f"Row {number} of {path}", with_plain_names(written)
        query = _text(next((row[name] for name in _QUERIES if name in row), None), origin).strip()
        is_of_tevatron = _OF_TEVATRON[0] in row
        if is_of_tevatron:
            several = [row.get(name) or [] for name in _OF_TEVATRON]
            if not all(isinstance(passages, list) for passages in several):
                raise InputError(f"{origin} has passages that are no list; {' and '.join(_OF_TEVATRON)} are lists.")
            positives, negatives = (_keep_contexts(labels, passages, origin) for passages in several)
        else:
            found = (_texts(row, names, origin, labels.dropped) for names in (_POSITIVES, _NEGATIVES))
            positives, negatives = ([*map(labels.keep, texts)] for texts in found)
        if "positive_ctxs" in row:
            raise InputError(f"{path} is a file of DPR; name its form: --form dpr.")
        if not query or not (positives or negatives or is_of_tevatron):
            lacking = "query" if not query else "positive passage"
            raise InputError(f"Row {number} of {path} has no {lacking}; every row needs columns query and positive.")
        if positives:
            labels.add(query, positives, negatives, _grade(row, origin))
        else:
            labels.reject(query, negatives)
    return labels


def read_dpr(path: Path) -> Labels:
    """A file of DPR: labelled questions (.json), or questions and their answers (.csv, tab-separated).

    A labelled question without positive passage is left out, as DPR leaves it out.
    """
    labels = Labels()
    if table_kind(path) == ".csv":
        for number, fields in enumerate(_tab_separated(path), start=1):
            if len(fields) != 2:
                raise InputError(f"Line {number} of {path} has {len(fields)} fields; question and answers are two.")
            labels.answers[labels.add(fields[0], (), ())] = _literal_list(fields[1], f"line {number} of {path}")
        return labels
    for number, row in enumerate(listed_values(path), start=1):
        if not isinstance(row, dict) or "question" not in row or "positive_ctxs" not in row:
            raise InputError(f"Entry {number} of {path} lacks question or positive_ctxs; it is not a file of DPR.")
        origin, kinds = f"Entry {number} of {path}", (row["positive_ctxs"] or [], row.get("hard_negative_ctxs") or [])
        if not all(isinstance(found, list) for found in kinds):
            raise InputError(f"{origin} has passages that are no list; it is not a file of DPR.")
        question, positives = _text(row["question"], origin), _keep_contexts(labels, kinds[0], origin)
        if not question.strip() or not positives:
            labels.dropped["questions without " + ("positive passage" if question.strip() else "words")] += 1
            continue
        name = labels.add(question, positives, _keep_contexts(labels, kinds[1], origin))
        if answers := _texts(row, ("answers",), origin, Counter()):
            labels.answers[name] = answers
    labels.drop_repeated()
    return labels


def read_msmarco(queries: Path, qrels: Path) -> Labels:
    """Two files of MS MARCO or TREC DL, passages or documents; their texts are streamed when they are written."""
    texts, labels = _query_texts(queries), Labels()
    for number, line in enumerate(_lines(qrels), start=1):
        fields = line.rstrip("\r\n").split("\t")
        fields = fields if len(fields) == 4 else line.split()  # as TREC has them
        if len(fields) != 4:
            raise InputError(f"Line {number} of {qrels} has {len(fields)} fields; judgements have four.")
        query, _, passage, grade = fields
        if not re.fullmatch(r"[-+]?[0-9]{1,4}", grade):
            raise InputError(f"Line {number} of {qrels} has the grade {grade!r}; grades are whole numbers.")
        if query not in texts:
            raise InputError(f"Line {number} of {qrels} names the query {query!r}, which {queries.name} lacks.")
        if not texts[query].strip():
            raise InputError(f"Line {number} of {qrels} names the query {query!r}; {queries.name} has no text of it.")
        labels.queries[query] = texts[query]
        if labels.grades.setdefault(query, {}).setdefault(passage, int(grade)) != int(grade):
            raise InputError(f"Line {number} of {qrels} gives {passage!r} another grade for {query!r} than before.")
        labels.negatives.setdefault(query, [])
    return labels


def _query_texts(path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for number, fields in enumerate(_tab_separated(path), start=1):
        if len(fields) > 1 and texts.setdefault(fields[0], fields[1]) != fields[1]:
            raise InputError(f"Line {number} of {path} gives the query {fields[0]!r} another text than before.")
    return texts


def read_mind(news: Path, behaviours: Path) -> Labels:
    """Two files of MIND: every impression is a query, its candidates are judged, clicked (1) or not (0).

    A query holds the titles its reader clicked before, the last one first, so that what a model's length cuts off is
    the oldest. Source: SEED-Encoder, section 4.2, which joins them by [SEP] in the order of reading.
    """
    labels, histories = Labels(), dict[str, str]()
    for number, fields in enumerate(_tab_separated(news), start=1):
        if len(fields) < 5:
            raise InputError(f"Line {number} of {news} has {len(fields)} fields; news have eight.")
        labels.keep(fields[4], fields[3], fields[0])
    for number, fields in enumerate(_tab_separated(behaviours), start=1):
        if len(fields) != 5:
            raise InputError(f"Line {number} of {behaviours} has {len(fields)} fields; impressions have five.")
        impression, _, _, history, candidates = fields
        clicked = [name for name in history.split() if name in labels.passages]
        judged = dict(candidate.rsplit("-", 1) for candidate in candidates.split() if candidate[-2:] in ("-0", "-1"))
        if len(judged) < len(candidates.split()):
            raise InputError(f"Line {number} of {behaviours} does not say which candidates were clicked (-1, -0).")
        if not clicked:
            labels.dropped["impressions without history"] += 1
            continue
        if history not in histories:  # that of a reader, for all impressions
            recent = reversed(clicked[-_HISTORY:])
            histories[history] = _SEPARATOR.join(labels.passages[name][0] for name in recent)
        labels.queries[impression] = histories[history]
        labels.grades[impression] = {name: int(click) for name, click in judged.items()}
    return labels


def _msmarco_files(folder: Path, split: str) -> tuple[Path, ...]:
    names = (f"queries.{split}.tsv", f"qrels.{split}.tsv")
    of_documents = (f"msmarco-doc{split}-queries.tsv", f"msmarco-doc{split}-qrels.tsv")
    return tuple(existing(folder, *either) for either in zip(names, of_documents, strict=True))


@dataclass(frozen=True)
class Form:
    """A form that labels are published in.

    Args:
        read: the labels in its files.
        files: the files of a split at a source; the source itself when absent.
    """

    read: Callable[..., Labels]
    files: Callable[[Path, str], tuple[Path, ...]] = lambda path, split: (path,)


FORMS: Final = {
    "pairs": Form(read_pairs),
    "dpr": Form(read_dpr),
    "msmarco": Form(read_msmarco, _msmarco_files),
    "mind": Form(read_mind, lambda folder, split: (existing(folder, "news.tsv"), existing(folder, "behaviors.tsv"))),
}


def existing(folder: Path, *names: str) -> Path:
    """The first of some files of a folder that is there.

    Raises:
        InputError: none is.
    """
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"{folder} has no {' or '.join(names)}.")


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    kind = table_kind(path)
    if kind in (".csv", ".tsv"):
        csv.field_size_limit(sys.maxsize)
        lines = _lines(path)
        first = next(lines, "")
        divider = divider_of(first) if kind == ".csv" else "\t"
        rows = csv.DictReader(chain([first], lines), delimiter=divider, strict=True)
        try:
            names = rows.fieldnames or ()
            if names and {name.strip().lower() for name in names}.isdisjoint(_QUERIES):
                raise InputError(
                    f"The first line of {path} names no column query; write a header above the rows that names query, "
                    "positive and, if there are any, negative."
                )
            check_head(names, path)
            for row in rows:
                if any(row.pop(None, ())):
                    raise InputError(
                        f"Line {rows.line_num} of {path} has more cells than the head has columns; put texts with "
                        "commas into quotes."
                    )
                origin = f"Line {rows.line_num} of {path}"
                row = with_plain_names(row)
                yield row | {name: _listed(row[name], origin) for name in (*_POSITIVES, *_NEGATIVES) if row.get(name)}
        except csv.Error as error:
            raise InputError(
                f"Line {rows.line_num} of {path} is no {kind[1:].upper()} ({error}); correct its quotes."
            ) from error
    elif kind == ".jsonl":
        for number, line in enumerate(_lines(path), start=1):
            if line.strip():
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise InputError(f"Line {number} of {path} is not JSON: {first_line(error)}") from error
                if not isinstance(row, dict):
                    raise InputError(f"Line {number} of {path} is not an object with query and positive.")
                yield row
    elif kind == ".json":
        for number, row in enumerate(listed_values(path), start=1):
            if not isinstance(row, dict):
                raise InputError(f"Entry {number} of {path} is not an object with query and positive.")
            yield row
    elif kind == ".parquet":
        yield from read_rows(path, kind, Counter())
    else:
        raise InputError(f"{path} is of no known kind; pairs come as .jsonl, .json, .csv, .tsv or .parquet.")


def _texts(row: Mapping[str, Any], names: Collection[str], origin: str, dropped: Counter[str]) -> list[str]:
    # An id may be 0.
    found: Any = next((row[name] for name in names if row.get(name) or type(row.get(name)) in (int, float)), [])
    found = found if isinstance(found, list) else [found]
    more = [row[name] for name in row if (several := _NUMBERED.fullmatch(name)) and several[1] in names]
    texts = [_text(text, origin).strip() for text in (*found, *more)]
    dropped[_EMPTY] += texts.count("")
    return [text for text in texts if text]


def _grade(row: Mapping[str, Any], origin: str) -> int:
    """How relevant a row says that its passages are; 1 where it does not say.

    >>> _grade({"label": "0"}, ""), _grade({"score": 2.0}, ""), _grade({"relevance": True}, ""), _grade({}, "")
    (0, 2, 1, 1)
    """
    for name in _GRADES:
        if name in row:
            said = str(int(row[name]) if isinstance(row[name], bool) else row[name]).strip()
            if whole := _WHOLE.fullmatch(said):
                return int(whole[1])
            raise InputError(
                f"{origin} has {said!r} in the column {name!r}; grades are whole numbers, 0 for what is not relevant: "
                "correct it, or call the column something else."
            )
    return 1


def _listed(cell: str, origin: str) -> str | list[str | None]:
    """The texts of a cell that holds a list as JSON or Python write it; else the cell.

    >>> _listed("['a', \\"it's\\"]", ""), _listed('["a",null]', ""), _listed("[1] says: [a]", "")
    (['a', "it's"], ['a', None], '[1] says: [a]')
    """
    if not (cell.startswith("[") and cell.endswith("]")):
        return cell
    try:
        found, written = json.loads(cell), cell
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(cell)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return cell
        written = repr(found)
    if not isinstance(found, list) or not all(isinstance(text, str | None) for text in found):
        return cell
    if written != cell:  # NumPy puts no commas, without which Python joins the texts to one
        raise InputError(f'{origin} has a list that is written neither as JSON nor as Python; write ["...", "..."].')
    return found


def _text(value: object, origin: str) -> str:
    """What a cell says."""
    text = plain_text(value)
    if text is None:
        raise InputError(f"{origin} has a {type(value).__name__} where a text belongs.")
    if SURROGATE.search(text):
        raise InputError(f"{origin} has half a letter (a lone surrogate), which cannot be written; correct it.")
    return text


def _keep_contexts(labels: Labels, contexts: Iterable[object], origin: str) -> list[str]:
    """The ids of DPR's or Tevatron's passages; those without words, and an id to find some by, are left out."""
    names = []
    for context in contexts:
        if not isinstance(context, dict) or "text" not in context:
            raise InputError(f"{origin} has a passage without text.")
        name, title = (_text(next(filter(None, map(context.get, names)), None), origin) for names in _CONTEXT_COLUMNS)
        text = _text(context["text"], origin)
        if name or passage_text(title, text):
            names.append(labels.keep(text, title, name))
        else:
            labels.dropped[_EMPTY] += 1
    return names


def _lines(path: Path) -> Iterator[str]:
    """Lines with their ends, as `csv` wants them."""
    try:
        with open_table(path) as stream, TextIOWrapper(stream, encoding="utf-8-sig", newline="") as letters:
            yield from letters
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8; save it as that.") from error
    except (EOFError, zlib.error, BadGzipFile) as error:
        raise InputError(f"{path} is packed, and cannot be unpacked: {first_line(error)}") from error


def _tab_separated(path: Path) -> Iterator[list[str]]:
    csv.field_size_limit(sys.maxsize)
    yield from csv.reader(_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)


def _literal_list(text: str, origin: str) -> list[str]:
    """A list as Python writes it, in quotes or not."""
    try:
        found = ast.literal_eval(text[1:-1].replace('""', '"') if text.startswith('"') else text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise InputError(f"The answers in {origin} are not a list of strings.") from error
    if not isinstance(found, list | tuple):
        raise InputError(f"The answers in {origin} are not a list of strings.")
    return [str(answer) for answer in found]


def _name(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
