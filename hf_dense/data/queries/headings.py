"""Headings as queries: a title, or the heading of a section, asks for what stands under it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import Final

from hf_dense.data.passages import MIN_WORDS, count_words, words_as_typed
from hf_dense.data.python_docs.prose import letter_share
from hf_dense.data.queries.passages import Document, Passages, Query
from hf_dense.data.readers.page import PATH_MARK
from hf_dense.data.sentences import join_sentences, split_sentences

_NUMBERED: Final = (  # what books number, in the languages that BM25 knows
    "appendix|chapter|part|section|step|bijlage|deel|hoofdstuk|stap|annexe|chapitre|partie|étape|abschnitt|anhang|kapitel"
    "|schritt|teil|appendice|capitolo|parte|passo|sezione|del|seksjon|steg|tillegg|vedlegg|anexo|apêndice|apéndice|capítulo"
    "|paso|seção|sección|глава|приложение|раздел|часть|шаг|avsnitt|bilaga"
)
_NUMBER: Final = re.compile(
    rf"^(?:(?:{_NUMBERED})\s+)?(?:\d+(?:\.\d+)+[.):]?|\d+[.):]|[a-z](?:\.\d+)+[.):])\s+"
    rf"|^(?:{_NUMBERED})\s+[a-z][.):]\s+|^第\s*\d+\s*[章節节部分]\s*",
    re.IGNORECASE,
)
_MARKS: Final = re.compile(r"^[#*`]+\s+|\s+[#*`]+$|\s*¶\s*$")
_PAIRED: Final = re.compile(r"(`+)\s*(.+?)\s*\1|(?<![\w*])(\*+)(?=\S)(.+?)(?<=\S)\3(?![\w*])")  # around code, words
_DASHES: Final = "-\N{EN DASH}\N{EM DASH}"
_EDGES: Final = f" .:;,{_DASHES}"  # of a heading
_BETWEEN: Final = re.compile(rf"^[ .:;,]*(?:[{_DASHES}] )?")  # a heading and what follows it
_ALONE: Final = 3  # words of a heading that says by itself what stands under it
_FEWEST: Final = 2  # words of a query
_LETTERS: Final = 0.6  # share of letters
_SHARED: Final = 0.005  # share of the documents that have a heading in common, beyond which it says nothing
_TAKEN: Final = 0.25  # share of the words under a heading that may be taken out with it
_BEST: Final = 2  # grade of the first passage under a heading; that of the others is 1


class HeadingQueries:
    """Makes a query of each title, and of each heading of a section that few documents have.

    A title that several documents have makes none, and a heading that they have is put behind the title: the passages
    of the others would answer it as well. The query may not be read off its passages: the title is taken out of them
    where it is part of a query, and so are sentences that repeat the query. A heading whose passages would lose too
    much makes none.

    Args:
        passages: by whose headings it is known which are common, and whether titles are numbered.
    """

    def __init__(self, passages: Passages) -> None:
        self.titled = _are_numbered(passages)
        self.frequency = _document_frequency(passages, self.titled)
        self.most = max(2, int(passages.documents * _SHARED))

    def make(self, document: Document) -> list[Query]:
        """The queries of the title and the sections of the passages that were chosen."""
        chosen = [at for at in document.left if document.chosen[at]]
        if not chosen:
            return []
        title, numbered = clean_heading(document.title, self.titled), _numbered(document.sections, self.titled)
        asks = self._is_alone(title) and self._says_something(title)
        made = [self._make(document, title, title, document.title, document.left)] if asks else []
        for section in dict.fromkeys(document.sections[at] for at in chosen):
            heading = _cleaned(section, numbered)[-1]
            if self._says_something(heading):
                within = (section, section + PATH_MARK)
                under = [at for at in document.left if f"{document.sections[at]}{PATH_MARK}".startswith(within[1])]
                written = section.split(PATH_MARK)[-1]
                made.append(self._make(document, self._query(heading, title), heading, written, under))
        return [query for query in made if query]

    def _says_something(self, heading: str) -> bool:
        return letter_share(heading) >= _LETTERS and self.frequency[heading.casefold()] <= self.most

    def _is_alone(self, heading: str) -> bool:
        """Whether one document alone has it."""
        return self.frequency[heading.casefold()] == 1

    def _query(self, heading: str, title: str) -> str:
        """A heading, behind the title where it does not ask for its section alone; "" where both do not."""
        if self._is_alone(heading) and (len(words_as_typed(heading)) >= _ALONE or not title):
            return heading
        alone = title and (self._is_alone(heading) or self._is_alone(title))
        return f"{title}: {heading}" if alone else ""

    def _make(self, document: Document, text: str, heading: str, written: str, under: Sequence[int]) -> Query | None:
        """The query for passages under a heading, what repeats it taken out of them; None where too much repeats it."""
        if len(words_as_typed(text)) < _FEWEST:
            return None
        known = (text.removesuffix(heading) + written, text)
        left = [without(beheaded(document.texts[at], written, heading), *known) for at in under]
        words = [count_words(found) for found in left]
        if min(words) < MIN_WORDS or sum(words) < (1 - _TAKEN) * sum(count_words(document.texts[at]) for at in under):
            return None
        for at, found in zip(under, left, strict=True):
            document.texts[at] = found
        title = clean_heading(document.title, self.titled).casefold()
        document.untitled |= bool(title) and (title in text.casefold() or text.casefold() in title)
        return Query("headings", text, under[0], {at: _BEST if at == under[0] else 1 for at in under})


def clean_heading(heading: str, numbered: bool = False) -> str:
    """A heading as a person would type it: without marks, and without its number where those beside it have one, too.

    >>> clean_heading("3.1 The `map` function:", numbered=True), clean_heading("2.5 GHz radios in C#")
    ('The map function', '2.5 GHz radios in C#')
    >>> clean_heading("Kapitel 3. Pumpen", numbered=True), clean_heading("Anhang A. Ventile", numbered=True)
    ('Pumpen', 'Ventile')
    """
    plain = _unmarked(_MARKS.sub("", " ".join(heading.split())))
    return (_NUMBER.sub("", plain) if numbered else plain).strip(_EDGES)


def _unmarked(text: str) -> str:
    """A text without marks in pairs; what stands in code is as it is written."""
    return _PAIRED.sub(lambda found: found[2] or _unmarked(found[4]), text)


def beheaded(text: str, *headings: str) -> str:
    """A text without the heading that it begins with, in any form that it has; but not where a sentence goes on.

    >>> beheaded("2. Tabs: Use none.", "2. Tabs", "Tabs"), beheaded("Tabs are bad.", "Tabs")
    ('Use none.', 'Tabs are bad.')
    """
    for known in headings:
        after = text[len(known) :]
        ended, after = after[:1] in ".:", _BETWEEN.sub("", after)
        new = after[:1].isalnum() and not after[:1].islower()
        if known and (ended or new) and text.casefold().startswith(known.casefold()):
            return after
    return text


def without(text: str, *headings: str) -> str:
    """A text without a heading at its beginning, and without the sentences that hold it, in any form that it has.

    >>> without("Tabs or spaces Use spaces. The choice of Tabs or Spaces is old. Be consistent.", "Tabs or spaces")
    'Use spaces. Be consistent.'
    """
    keys = [heading.casefold() for heading in headings]
    if not any(key in text.casefold() for key in keys):
        return text
    sentences = split_sentences(beheaded(text, *headings))
    return join_sentences(sentence for sentence in sentences if not any(key in sentence.casefold() for key in keys))


def _numbered(sections: Iterable[str], titled: bool) -> set[int]:
    """The depths at which several headings of a document begin with a number; one is enough where its title has one."""
    headings = {(depth, heading) for section in sections for depth, heading in enumerate(section.split(PATH_MARK))}
    found = Counter(depth for depth, heading in headings if _NUMBER.match(clean_heading(heading)))
    return {depth for depth, count in found.items() if titled or count > 1}


def _cleaned(section: str, numbered: Container[int]) -> list[str]:
    return [clean_heading(heading, depth in numbered) for depth, heading in enumerate(section.split(PATH_MARK))]


def _are_numbered(passages: Passages) -> bool:
    """Whether most documents have a number before their title, as the chapters of a book."""
    titles = passages.table.group_by(["document", "title"]).aggregate([])["title"].to_pylist()
    return 2 * sum(_NUMBER.match(clean_heading(title)) is not None for title in titles) > max(2, len(titles))


def _document_frequency(passages: Passages, titled: bool) -> Counter[str]:
    """In how many documents each heading stands, as their title or above a section.

    Args:
        passages: of the documents.
        titled: whether their titles are numbered.
    """
    described = passages.table.select(["document", "title", "section"])
    headings, sections = set[tuple[str, str]](), defaultdict[str, set[str]](set)
    for row in described.group_by(["document", "title", "section"]).aggregate([]).to_pylist():
        headings.add((row["document"], clean_heading(row["title"], titled).casefold()))
        sections[row["document"]].add(row["section"])
    for document, found in sections.items():
        numbered = _numbered(found, titled)
        headings |= {(document, heading.casefold()) for section in found for heading in _cleaned(section, numbered)}
    return Counter(heading for _, heading in headings)
