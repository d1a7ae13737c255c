"""Other spans of a passage's document, for the methods that rebuild or contrast one from another."""

from __future__ import annotations

import os
import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Final

from datasets import Dataset, concatenate_datasets

from hf_dense.data.cards import write_card
from hf_dense.data.corpus import load_passages
from hf_dense.data.passages import (
    CountTokens,
    check_length,
    in_order,
    pretoken_counter,
    token_counter,
    token_unit,
    tokenizer_source,
)
from hf_dense.data.sentences import join_sentences, split_sentences
from hf_dense.data.shards import ShardWriter
from hf_dense.errors import InputError
from hf_dense.storage.fingerprints import fingerprint_rows
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.staged import Staged

CONTEXTS: Final = ("neighbour", "near", "overlap", "random")
_REACH = 100  # spans to either side among which a random one is drawn

_NEEDED = ("text", "document", "position")


def add_contexts(
    corpus: Dataset, length: int = 128, count_tokens: CountTokens | None = None, seed: int = 0, processes: int = 1
) -> Dataset:
    """A corpus with four more columns, each another span of the passage's document.

    `neighbour`: the next passage, or the one before for the last (MASTER, and CoT-MAE's plain form). `near`: the next
    or the one before, drawn. `random`: another one, at most 100 passages away. `overlap`: the passage's last sentences,
    at most half of `length`, or a part of its only one, and those that follow it, up to `length`; for the last passage
    its first ones and those before. The last three are CoT-MAE's released contexts.

    Args:
        corpus: columns `text`, `document` and `position`; others are kept.
        length: greatest number of tokens in an overlapping span.
        count_tokens: texts -> number of tokens of each; words and punctuation marks when absent.
        seed: of the draws, which are made once per passage.
        processes: how many work side by side.

    Returns:
        The corpus sorted by document and position. Documents of a single passage are left out (CoT-MAE).

    Raises:
        InputError: a column is missing, or no document has two passages.
    """
    _check_columns(corpus)
    corpus = corpus.filter(lambda text: bool(text and text.strip()), input_columns="text")
    rows = in_order(corpus)
    rows = rows[rows["document"].notna() & rows.duplicated("document", keep=False)]
    if rows.empty:
        raise InputError("No document has two passages, so none has another span; cut them into shorter passages.")
    ordered = corpus.select(rows.index.to_numpy()).flatten_indices()
    counter = count_tokens or pretoken_counter()
    starts = rows["document"].ne(rows["document"].shift()).to_numpy().nonzero()[0].tolist()
    ends = [*starts[1:], len(ordered)]

    def add(batch: dict[str, list[int]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in CONTEXTS}
        for start, end in zip(batch["start"], batch["end"], strict=True):
            rows = ordered[start:end]
            contexts = document_contexts(rows["text"], f"{seed}:{rows['document'][0]}", length, counter)
            for name, texts in contexts.items():
                found[name] += texts
        return found

    spans = Dataset.from_dict({"start": starts, "end": ends})
    added = spans.map(
        add,
        batched=True,
        batch_size=100,
        remove_columns=["start", "end"],
        num_proc=processes if processes > 1 else None,
        desc="Contexts",
        load_from_cache_file=False,
    )
    return concatenate_datasets([ordered, added], axis=1)


def _check_columns(corpus: Dataset) -> None:
    missing = [name for name in _NEEDED if name not in corpus.column_names]
    if missing:
        raise InputError(f"Contexts need the corpus column {missing[0]!r}; it has: {', '.join(corpus.column_names)}.")


def write_contexts(
    source: str,
    out: str | os.PathLike[str] | Output,
    *,
    length: int = 128,
    tokenizer: str | None = None,
    seed: int = 0,
    processes: int = 1,
) -> Path:
    """Write a corpus with contexts (see `add_contexts`) to the directory `out`.

    Args:
        source: passages, as `hf_dense.data.corpus.load_passages` reads them.
        tokenizer: whose tokens are counted; words and punctuation marks when absent.

    Returns:
        The directory.

    Raises:
        InputError: the corpus cannot be read, or has no contexts, or see `Output.stage`.
    """
    check_length(length)
    output, corpus = Output.of(out), load_passages(source)
    _check_columns(corpus)
    sources = {"corpus": Source(source, fingerprint_rows(corpus, corpus.column_names)), **tokenizer_source(tokenizer)}
    with output.stage("contexts", {"length": length}, sources, seed=seed) as work:
        if not work.done:
            rows = add_contexts(corpus, length, token_counter(tokenizer), seed, processes)
            work.facts["counts"] = {"passages read": len(corpus), "passages with contexts": len(rows)}
            _write(work, rows, f"{length} {token_unit(tokenizer)}")
    return output.path


def _write(work: Staged, rows: Dataset, longest: str) -> None:
    metadata = rows.features.arrow_schema.metadata  # that of the rows holds a number that is drawn
    with ShardWriter(work.result / "corpus") as writer:
        for batch in rows.with_format("arrow").iter(10_000):
            writer.write(batch.replace_schema_metadata(metadata))
    write_card(
        work,
        title=f"Passages with contexts of {Path(work.manifest.sources['corpus']).name}",
        about="Every passage with four other spans of its document: the neighbouring passage, one of the two "
        f"beside it, one at most {_REACH} passages away, and one that begins inside it. Documents of one passage are "
        "left out.",
        columns={
            "text": "the passage",
            "neighbour": "the next passage, or the one before for the last",
            "near": "the next or the one before, drawn",
            "random": f"another passage of the document, at most {_REACH} passages away",
            "overlap": f"the passage's end, at most half of this, and what follows it, up to {longest}",
        },
        rows=len(rows),
        configs={"corpus": "corpus/*.parquet"},
    )


def document_contexts(texts: Sequence[str], key: str, length: int, count_tokens: CountTokens) -> dict[str, list[str]]:
    """The contexts of every passage of one document, in its order.

    Args:
        texts: two passages at least.
        key: what the draws depend on, beside the index of the passage.

    Returns:
        For each of `CONTEXTS` one text per passage.
    """
    sentences = [split_sentences(text) for text in texts]
    found: dict[str, list[str]] = {name: [] for name in CONTEXTS}
    for at in range(len(texts)):
        generator = random.Random(f"{key}:{at}")
        beside = [other for other in (at - 1, at + 1) if 0 <= other < len(texts)]
        reachable = [other for other in range(max(0, at - _REACH), min(len(texts), at + _REACH + 1)) if other != at]
        found["neighbour"].append(texts[beside[-1]])
        found["near"].append(texts[generator.choice(beside)])
        found["random"].append(texts[generator.choice(reachable)])
        found["overlap"].append(_overlap(sentences, at, generator, length, count_tokens))
    return found


def _overlap(
    sentences: Sequence[Sequence[str]], at: int, generator: random.Random, length: int, count_tokens: CountTokens
) -> str:
    """A span that begins inside passage `at` and goes on behind it; the other way round for the last passage."""
    last = at + 1 == len(sentences)
    own = sentences[at] if len(sentences[at]) > 1 else sentences[at][0].split()
    beside = [*chain(*(sentences[max(0, at - 2) : at] if last else sentences[at + 1 : at + 3]))]
    drawn = generator.randint(1, max(1, len(own) // 2))
    shared = _within(own[:drawn] if last else own[-drawn:], length // 2, count_tokens, ending=not last)
    more = _within(beside, length - count_tokens([shared])[0], count_tokens, ending=last)
    return join_sentences((more, shared) if last else (shared, more))


def _within(sentences: Sequence[str], most: int, count_tokens: CountTokens, ending: bool) -> str:
    """The first sentences, or the last, that have at most so many tokens; words or characters of one that has more."""
    nearest = -1 if ending else 0
    words = sentences[nearest].split()
    for parts, join in ((sentences, join_sentences), (words, " ".join), (words[nearest], "".join)):
        ordered = parts[::-1] if ending else parts
        kept = bisect_right([*accumulate(count_tokens([*ordered]))], most)
        if kept:
            return join(parts[-kept:] if ending else parts[:kept])
    return ""
