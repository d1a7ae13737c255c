"""What two arms find for a question, as HTML in which nothing of the passages runs."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import regex  # type: ignore[import-untyped]
import Stemmer

from hf_dense.data.languages import ENGLISH, Language, language_of
from hf_dense.errors import InputError
from hf_dense.experiments.adaptation.arms import BASE, WORDS
from hf_dense.experiments.adaptation.report import FACTS, Adaptation
from hf_dense.search.bm25 import RUN, WORD, composed, spelt, words_of
from hf_dense.search.index import Hit, SearchIndex
from hf_dense.search.index_building import index_in
from hf_dense.search.reranking import RERANK_DEPTH, rerank_hits
from hf_dense.serving.passages import WholePassages

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

TOP_K: Final = 5  # passages of each arm
_INDEX: Final = "index"
_SIDES: Final = ("left", "right")
_THUMB: Final = "M2 11h4v10H2zM8 21V11l4-9a3 3 0 0 1 3 3v4h5a2 2 0 0 1 2 2.3l-1.4 8a2 2 0 0 1-2 1.7z"  # 24 x 24


@dataclass(frozen=True)
class ServedArm:
    """A way to find passages.

    Attributes:
        name: for people.
        index: directory of the index.
        model: directory of the retriever that made it.
        weight: of the model's similarity beside BM25.
        reranked: whether a cross-encoder orders anew what it finds.
    """

    name: str
    index: Path
    model: Path
    weight: float
    reranked: bool = False


def served_arms(directory: Path) -> list[ServedArm]:
    """The arms in a directory: the one to use, the one to hold it against, then all others.

    Args:
        directory: an adaptation: its best arm, the base (or BM25 where there is none) and the rest, all over the
            passages that it was measured on; or a retriever with its index: as the index asks, and BM25.

    Raises:
        InputError: it holds neither.
    """
    if (directory / FACTS).is_file():
        arms = _adapted(Adaptation.load(directory))
    elif (directory / _INDEX).is_dir():
        arms = _indexed(directory)
    else:
        arms = []
    if not arms:
        raise InputError(
            f"There is neither a complete adaptation nor a retriever with an index in {directory}; hf-dense adapt "
            "makes both, hf-dense search MODEL --corpus CORPUS builds an index."
        )
    return arms


def _adapted(adaptation: Adaptation) -> list[ServedArm]:
    arms = {}
    for row in adaptation.facts["arms"]:
        model, index = _places(adaptation.path, Path(row["model"]))
        if index.is_dir():
            arms[row["name"]] = ServedArm(row["name"], index, model, row["weight"])
    first = dict.fromkeys([adaptation.facts["verdict"]["best"], BASE, WORDS, *arms])
    return [arms[name] for name in first if name in arms]


def _places(directory: Path, model: Path) -> tuple[Path, Path]:
    """Where the model of an arm and its index are now, wherever the adaptation was made."""
    tail = model.parts[-4:]  # arms/<arm>/training/model
    if tail[:1] == ("arms",) and tail[2:] == ("training", "model"):
        return directory.joinpath(*tail), directory / "arms" / tail[1] / _INDEX
    return directory / BASE, directory / "arms" / BASE / _INDEX


def _indexed(directory: Path) -> list[ServedArm]:
    index = directory / _INDEX
    own = index_in(index).made_from["weight"]
    names = {own: f"{directory} + {WORDS}", 0.0: WORDS, 1.0: str(directory)}
    return [ServedArm(name, index, directory, weight) for weight, name in names.items()]


def with_reranked(arms: Sequence[ServedArm], first: int) -> list[ServedArm]:
    """Each arm as it is and re-ranked: first so many of the re-ranked ones, then those as they are, then the others."""
    reranked = [replace(arm, name=f"{arm.name}, re-ranked", reranked=True) for arm in arms]
    return [*reranked[:first], *arms, *reranked[first:]]


class Answers:
    """Finds passages with any of some arms; each index is opened when it is first asked, again where it was replaced.

    Args:
        arms: of different names.
        reranker: the cross-encoder of those that are re-ranked.
        depth: passages that it orders.
    """

    def __init__(
        self, arms: Sequence[ServedArm], reranker: CrossEncoder | None = None, depth: int = RERANK_DEPTH
    ) -> None:
        self.arms = {arm.name: arm for arm in arms}
        self._reranker, self._depth = reranker, depth
        self._opened: dict[Path, SearchIndex] = {}
        self._passages: dict[Path, WholePassages] = {}
        self._lock = Lock()

    def open(self, name: str) -> SearchIndex:
        """The index of an arm.

        Raises:
            InputError: it cannot be opened.
        """
        arm = self.arms[name]
        with self._lock:
            opened = self._opened.get(arm.index)
            if opened is None or not opened.is_current:
                opened = self._opened[arm.index] = SearchIndex.load(arm.index, arm.model)
                self._passages[arm.index] = WholePassages(arm.index)
            return opened

    def find(self, question: str, name: str) -> list[Hit]:
        """The best passages of an arm, whole, best first.

        Raises:
            InputError: the question is empty, the index cannot be opened or was replaced twice while it was asked, or a
                score is no number.
        """
        index = self.open(name)
        try:
            found = self._search(index, question, self.arms[name])
        except InputError:
            if index.is_current:
                raise
            found = self._search(self.open(name), question, self.arms[name])  # it was replaced while it was asked
        return self._passages[self.arms[name].index].of(found)

    def _search(self, index: SearchIndex, question: str, arm: ServedArm) -> list[Hit]:
        if self._reranker is None or not arm.reranked:
            return index.search(question, TOP_K, arm.weight)
        first = index.search(question, max(TOP_K, self._depth), arm.weight)
        with self._lock:  # of the tokenizer, which one thread at a time may use
            return rerank_hits(self._reranker, [question], [first], self._depth)[0][:TOP_K]


def show_hits(
    question: str, hits: Sequence[Hit], others: Sequence[Hit], verdicts: Sequence[bool | None], side: int
) -> str:
    """The passages of one arm, as HTML.

    Args:
        question: whose words are marked in them.
        hits: best first.
        others: what the other arm found.
        verdicts: whether each answers; None where nobody said.
        side: 0 is left, 1 is right; thumbs say it, with the place of their passage, when they are clicked.
    """
    if not hits:
        return "<p>Nothing was found.</p>"
    language = language_of([f"{hit.title} {hit.text}" for hit in (*hits, *others)])
    words = frozenset(words_of([question], language)[0])
    places = {hit.id: place for place, hit in enumerate(others, start=1)}
    cards = []
    for place, (hit, verdict) in enumerate(zip(hits, verdicts, strict=True)):
        also = f"{places[hit.id]} on the {_SIDES[1 - side]}" if hit.id in places else f"on the {_SIDES[side]} only"
        thumbs = "".join(_thumb(side, place, good, verdict) for good in (True, False))
        cards.append(
            f"<article{'' if hit.id in places else ' class=alone'}><header><b>{place + 1}</b> "
            f'<strong dir="auto">{mark(hit.title, words, language)}</strong> <small>{hit.score:.3f}</small></header>'
            f'<p dir="auto">{mark(hit.text, words, language)}</p>'
            f"<footer>{thumbs} <small>{also}; {html.escape(hit.id)}</small></footer></article>"
        )
    return "".join(cards)


def _thumb(side: int, place: int, good: bool, verdict: bool | None) -> str:
    says = "It answers the question" if good else "It does not answer the question"
    turned = "" if good else ' transform="rotate(180 12 12)"'
    return (
        f'<button data-side="{side}" data-place="{place}" data-good="{good:d}" title="{says}" aria-label="{says}" '
        f'aria-pressed="{"true" if verdict is good else "false"}"><svg viewBox="0 0 24 24" width="18" height="18">'
        f'<path fill="currentColor" d="{_THUMB}"{turned}/></svg></button>'
    )


def mark(text: str, words: frozenset[str], language: Language = ENGLISH) -> str:
    """A text as HTML, its words with one of these stems marked; where no spaces are, its pairs of letters.

    >>> mark("Threads & <b>threading</b>", frozenset({"thread"}))
    '<mark>Threads</mark> &amp; &lt;b&gt;<mark>threading</mark>&lt;/b&gt;'
    >>> mark("办理退货政策", frozenset({"退货", "货政", "政策"}))
    '办理<mark>退货政策</mark>'
    """
    parts = regex.split(f"({RUN.pattern})", composed(text))  # letters of scripts without spaces at odd places
    stem = Stemmer.Stemmer(language.name).stemWord
    return "".join(
        _mark_pairs(part, words) if at % 2 else _mark_words(part, words, stem) for at, part in enumerate(parts)
    )


def _mark_words(text: str, words: frozenset[str], stem: Callable[[str], str]) -> str:
    parts = regex.split(f"({WORD.pattern})", text)  # words at odd places
    return "".join(
        f"<mark>{html.escape(part)}</mark>" if at % 2 and stem(spelt(part.lower())) in words else html.escape(part)
        for at, part in enumerate(parts)
    )


def _mark_pairs(run: str, words: frozenset[str]) -> str:
    """The letters of a run, with the signs behind them, marked where two in succession are a word."""
    letters = [at for at, sign in enumerate(run) if sign.isalpha()]
    ends = [*letters[1:], len(run)]
    found = set[int]()
    for first, (second, end) in zip(letters, [*zip(letters, ends, strict=True)][1:], strict=False):
        if run[first] + run[second] in words:
            found.update(range(first, end))
    pieces = groupby(range(len(run)), found.__contains__)
    shown = [(marked, html.escape("".join(run[at] for at in places))) for marked, places in pieces]
    return "".join(f"<mark>{piece}</mark>" if marked else piece for marked, piece in shown)
