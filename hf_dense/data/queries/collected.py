"""The queries of all kinds together: equal ones are joined or left out, the others divided into splits."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from typing import Final

from hf_dense.data.labels import Labels
from hf_dense.data.passages import pretoken_counter
from hf_dense.data.queries.passages import Document, Query
from hf_dense.data.queries.prompts import LONGEST
from hf_dense.data.splits import Shares, divide_documents

_FEWEST, _MOST = 2, 48  # words and punctuation marks of a query
_OTHERS: Final = {"neighbours": sys.maxsize, **{f"generated:{style}": most for style, most in LONGEST.items()}}


class Collected:
    """Queries as they are made, each with what it asks for.

    Attributes:
        counts: queries left out, by reason.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._found: dict[str, tuple[str, str, str, dict[str, int]]] = {}  # key -> document, id, text, grades
        self._several: set[str] = set()
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._length = pretoken_counter()

    def add(self, document: Document, query: Query) -> None:
        """Take a query, or count why it is none.

        One that was made of a passage of the same document before asks for both passages; one that was made of
        several documents asks for nothing in particular, and is none.
        """
        text = " ".join(query.text.split())
        length = self._length([text])[0] if text else 0
        if length < _FEWEST or (length > _OTHERS.get(query.kind, _MOST)):
            reason = "no query" if not length else "too short" if length < _FEWEST else "too long"
            self.counts[f"left out: {reason}"] += 1
            return
        grades = {document.ids[at]: grade for at, grade in query.relevant.items() if at not in document.gone}
        key = text.casefold()
        if key not in self._found:
            name = f"{query.kind}:{document.ids[query.origin]}"
            self._numbers[name] += 1
            number = self._numbers[name]
            self._found[key] = document.name, name if number == 1 else f"{name}:{number}", text, grades
            return
        self.counts["left out: repeated"] += 1
        owner, _, _, known = self._found[key]
        if owner != document.name:
            self._several.add(key)
        for passage, grade in grades.items():
            known[passage] = max(grade, known.get(passage, 0))

    def labels(self, shares: Shares, seed: int) -> dict[str, Labels]:
        """The queries of each split that has any; all of a document are of one."""
        found: dict[str, Labels] = {name: Labels() for name in shares}
        asked = (document for key, (document, *_) in self._found.items() if key not in self._several)
        splits = divide_documents(asked, shares, seed)
        for key, (document, name, text, grades) in self._found.items():
            if key in self._several:
                self.counts["left out: made of several documents"] += 1
                continue
            labels = found[splits[document]]
            labels.queries[name], labels.grades[name] = text, grades
        return {name: labels for name, labels in found.items() if labels.queries}
