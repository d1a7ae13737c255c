"""What a model encodes, and a run that is killed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from sentence_transformers import SentenceTransformer


class Watched:
    """The texts that a model encodes as documents; it dies when it is given more after `most` of them.

    Attributes:
        texts: all of them, in their order.
        counts: how many at once.
    """

    def __init__(self, model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch, most: int | None = None) -> None:
        self.texts: list[str] = []
        self.counts: list[int] = []
        self.most = most
        encode = model.encode_document

        def watched(texts: list[str], **named: Any) -> Any:
            if self.most is not None and len(self.texts) >= self.most:
                raise KeyboardInterrupt
            self.texts += texts
            self.counts.append(len(texts))
            return encode(texts, **named)

        monkeypatch.setattr(model, "encode_document", watched)

    def go_on(self) -> None:
        """Live, and forget what was encoded."""
        self.most = None
        self.texts.clear()
        self.counts.clear()
