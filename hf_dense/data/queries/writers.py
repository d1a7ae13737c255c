"""Queries that a language model writes about passages, here or at an endpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from datasets import Dataset

from hf_dense.data.generation import TextGenerator, read_pieces, write_pieces
from hf_dense.data.queries.asking import EndpointWriter
from hf_dense.data.queries.generating import Generating
from hf_dense.data.queries.prompts import prompts, query_of
from hf_dense.errors import InputError
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import process_state, wait_for_everyone

Written = dict[str, list[list[str]]]  # style -> for each passage what was written, a text for each candidate


class Writer(Protocol):
    """Writes about passages.

    Attributes:
        source: the model, by what it is.
        untitled: what stands for a title that is missing.
        counts: what it took, for the card.
    """

    source: Source
    untitled: str
    counts: Counter[str]

    def write(self, passages: Dataset, pieces: Path) -> Written:
        """What is written about passages (columns `title`, `text`); work that was done before is in `pieces`."""


def open_writer(generating: Generating, seed: int) -> Writer:
    """What writes, ready.

    Raises:
        InputError: there is no such model, or it needs a prompt of one's own.
    """
    return EndpointWriter(generating, seed) if generating.endpoint else LocalWriter(generating, seed)


class LocalWriter:
    """Writes with a model on this machine, divided among the processes of `accelerate launch`."""

    def __init__(self, generating: Generating, seed: int) -> None:
        self.generating = generating
        self.prompts = prompts(generating.styles, generating.template)
        self.untitled = generating.untitled
        self.counts = Counter[str]()
        first = next(iter(self.prompts.values()))
        self.generator = TextGenerator(generating.config(first, seed), process_state().device)
        self.source = self.generator.source
        if generating.template is None and not self.generator.tokenizer.chat_template:
            raise InputError(
                f"{generating.model} is no instruction model, for which the styles are written; give the prompt that "
                "it was trained with (--template, such as '{text}')."
            )

    def write(self, passages: Dataset, pieces: Path) -> Written:
        """See `Writer`; with the same seed it writes the same."""
        for style, prompt in self.prompts.items():
            generator = self.generator.with_template(prompt)
            write_pieces(passages, pieces / (style or "own"), generator, self.generating.batch_size)
        wait_for_everyone()
        return {style: read_pieces(len(passages), pieces / (style or "own"), "queries") for style in self.prompts}


def queries_of(written: Written, at: int) -> Iterator[tuple[str, str]]:
    """The style and the text of every query about a passage; a text is "" where nothing was written."""
    for style, found in written.items():
        for answer in found[at]:
            yield style, query_of(answer)
