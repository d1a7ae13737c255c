"""Queries that a language model writes about passages, here or at an endpoint."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from datasets import Dataset
from tqdm.auto import tqdm

from hf_dense.data.generation import TextGenerationConfig, TextGenerator, read_pieces, write_pieces
from hf_dense.data.queries.endpoint import Answer, Answers, ChatClient, Endpoint
from hf_dense.data.queries.prompts import STYLES, UNTITLED, prompts, query_of
from hf_dense.errors import InputError
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import is_main_process, process_state, wait_for_everyone

_PROMPT: Final = 512  # tokens of a prompt that a model here reads
_READ: Final = 8_000  # characters of a passage that an endpoint is shown

Written = dict[str, list[list[str]]]  # style -> for each passage what was written, a text for each candidate


@dataclass(frozen=True)
class Generating:
    """How queries are generated.

    Args:
        model: a sequence-to-sequence or causal language model (a directory or Hub id), or the name of an endpoint's.
        endpoint: where it is asked, in place of a model here.
        styles: what is written about each passage, of `STYLES`.
        template: one's own prompt in their place, with `{text}` and perhaps `{title}`; models such as docTTTTTquery's
            take that of their training.
        candidates: queries of each style for a passage.
        temperature: of the draws.
        output_length: greatest number of tokens written.
        batch_size: passages worked on at once by a model here.

    Raises:
        InputError: a value outside its range.
    """

    model: str
    endpoint: Endpoint | None = None
    styles: tuple[str, ...] = tuple(STYLES)
    template: str | None = None
    candidates: int = 1
    temperature: float = 0.7
    output_length: int = 64
    batch_size: int = 32

    def __post_init__(self) -> None:
        for prompt in prompts(self.styles, self.template).values():
            self.config(prompt, 0)

    @property
    def untitled(self) -> str:
        """What a prompt calls a passage without a title."""
        return "" if self.template is not None else UNTITLED

    def config(self, prompt: str, seed: int) -> TextGenerationConfig:
        """What a model here is told for one prompt."""
        return TextGenerationConfig(
            "queries",
            self.model,
            prompt,
            self.candidates,
            temperature=self.temperature,
            input_length=_PROMPT,
            output_length=self.output_length,
            seed=seed,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """What decides on the queries."""
        names = ("candidates", "temperature", "output_length")
        return {"prompts": dict(prompts(self.styles, self.template))} | {name: getattr(self, name) for name in names}


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


class EndpointWriter:
    """Writes by asking an endpoint; every answer is kept when it comes."""

    def __init__(self, generating: Generating, seed: int) -> None:
        assert generating.endpoint
        self.generating, self.endpoint, self.seed = generating, generating.endpoint, seed
        self.prompts = prompts(generating.styles, generating.template)
        self.source = self.endpoint.source
        self.untitled = generating.untitled
        self.counts = Counter[str]()

    def write(self, passages: Dataset, pieces: Path) -> Written:
        """See `Writer`; one process asks. The endpoint is sent seeds, and may heed them or not."""
        if not is_main_process():
            return {}
        answers = Answers(pieces / "answers.jsonl")
        client = ChatClient(self.endpoint, self.generating.output_length, self.generating.temperature)

        def ask(at: int) -> None:
            for key, prompt in self._requests(at, passages):
                if key not in answers.found:
                    answers.keep(key, client.ask(prompt, zlib.crc32(f"{self.seed}:{key}".encode())))

        left = [at for at in range(len(passages)) if any(key not in answers.found for key in self._keys(at))]
        with tqdm(total=len(passages), initial=len(passages) - len(left), desc="Asking", unit=" passages") as bar:
            for _ in side_by_side(ask, left, self.endpoint.parallel, client.stopped.set):
                bar.update()
                bar.set_postfix_str(self._spent(answers, bar.n / len(passages)))
        read, written = answers.tokens
        self.counts = Counter({"tokens that the model read": read, "tokens that the model wrote": written})
        return self._written(len(passages), answers.found)

    def _keys(self, at: int) -> Iterator[str]:
        """What the requests about a passage are called."""
        return (f"{at}:{style}:{number}" for style in self.prompts for number in range(self.generating.candidates))

    def _requests(self, at: int, passages: Dataset) -> Iterator[tuple[str, str]]:
        row = passages[at]
        shown = {"title": row["title"], "text": row["text"][:_READ]}
        for key in self._keys(at):
            yield key, self.prompts[key.split(":")[1]].format(**shown)

    def _spent(self, answers: Answers, share: float) -> str:
        """Tokens so far and, where prices are known, what they cost and what all will cost."""
        read, written = answers.tokens
        said, cost = f"{read + written:,} tokens", self.endpoint.cost(read, written)
        return f"{said}, cost {cost:.4f} of about {cost / share:.4f}" if cost else said

    def _written(self, passages: int, found: dict[str, Answer]) -> Written:
        numbers = range(self.generating.candidates)
        return {
            style: [[found[f"{at}:{style}:{number}"].text for number in numbers] for at in range(passages)]
            for style in self.prompts
        }


def side_by_side(
    work: Callable[[int], object], items: Iterable[int], threads: int, stop: Callable[[], object]
) -> Iterator[object]:
    """What `work` gives for each item, as it comes; where one raises, those that wait are given up after `stop`."""
    waiting: set[Future[object]] = set()
    with _pool(threads, stop) as pool:
        for item in items:
            waiting.add(pool.submit(work, item))
            if len(waiting) >= 2 * threads:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        yield from (one.result() for one in as_completed(waiting))


@contextmanager
def _pool(threads: int, stop: Callable[[], object]) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    finally:
        stop()
        pool.shutdown(cancel_futures=True)


def queries_of(written: Written, at: int) -> Iterator[tuple[str, str]]:
    """The style and the text of every query about a passage; a text is "" where nothing was written."""
    for style, found in written.items():
        for answer in found[at]:
            yield style, query_of(answer)
