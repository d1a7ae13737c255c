"""Queries that an endpoint writes, asked for side by side."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from pathlib import Path
from typing import Final

from datasets import Dataset
from tqdm.auto import tqdm

from hf_dense.data.queries.answers import Answer, Answers
from hf_dense.data.queries.endpoint import ChatClient
from hf_dense.data.queries.generating import Generating
from hf_dense.data.queries.prompts import prompts
from hf_dense.storage.process_group import is_main_process

_READ: Final = 8_000  # characters of a passage that an endpoint is shown


class EndpointWriter:
    """Writes by asking an endpoint; every answer is kept when it comes."""

    def __init__(self, generating: Generating, seed: int) -> None:
        assert generating.endpoint
        self.generating, self.endpoint, self.seed = generating, generating.endpoint, seed
        self.prompts = prompts(generating.styles, generating.template)
        self.source = self.endpoint.source
        self.untitled = generating.untitled
        self.counts = Counter[str]()

    def write(self, passages: Dataset, pieces: Path) -> dict[str, list[list[str]]]:
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
        done = len(passages) - len(left)
        with tqdm(total=len(passages), initial=done, desc="Asking", unit=" passages") as bar:
            asked = side_by_side(ask, left, self.endpoint.parallel, client.stopped.set)
            for now, _ in enumerate(asked, done + 1):  # a bar that TQDM_DISABLE silences does not count
                bar.update()
                bar.set_postfix_str(self._spent(answers, now / len(passages)))
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
        if not read + written:
            return "the endpoint reports no usage"
        said, cost = f"{read + written:,} tokens", self.endpoint.cost(read, written)
        return f"{said}, cost {cost:.4f} of about {cost / share:.4f}" if cost else said

    def _written(self, passages: int, found: dict[str, Answer]) -> dict[str, list[list[str]]]:
        numbers = range(self.generating.candidates)
        return {
            style: [[found[f"{at}:{style}:{number}"].text for number in numbers] for at in range(passages)]
            for style in self.prompts
        }


def side_by_side(
    work: Callable[[int], object], items: Iterable[int], threads: int, stop: Callable[[], object]
) -> Iterator[object]:
    """What `work` gives for each item, as it comes; where one raises, those that wait are given up after `stop`."""
    pool, waiting = ThreadPoolExecutor(threads), set[Future[object]]()
    try:
        for item in items:
            waiting.add(pool.submit(work, item))
            if len(waiting) >= 2 * threads:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        yield from (one.result() for one in as_completed(waiting))
    finally:
        stop()
        pool.shutdown(cancel_futures=True)
