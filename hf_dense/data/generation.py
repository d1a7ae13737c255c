"""Texts that a language model writes about passages: queries they answer, or how they go on.

Passages are worked on in pieces. Every piece is written to disk when it is done, and what it holds depends on the piece
and the seed alone: a run that was killed goes on where it stopped and ends with the same result, on any number of
processes (`accelerate launch`).
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pyarrow as pa
import torch
from datasets import Dataset
from pyarrow import parquet
from torch import Tensor
from tqdm.auto import tqdm
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from hf_dense.data.cards import write_card
from hf_dense.data.shards import ShardWriter
from hf_dense.errors import InputError
from hf_dense.storage.legacy import atomic_directory, begin_or_resume, check_replaceable
from hf_dense.storage.process_group import process_state

Kind = Literal["queries", "continuation"]

_PIECE: Final = 256  # passages

_COLUMN: Final = {"queries": pa.list_(pa.string()), "continuation": pa.string()}


@dataclass(frozen=True)
class Writing:
    """What is written, by which model, and how tokens are drawn.

    Args:
        kind: `queries`, a list for each passage (docTTTTTquery, query-as-context), or one `continuation` (MASTER).
        model: a sequence-to-sequence or causal language model (a directory or Hub id); an instruction model takes its
            instruction from `template`.
        template: the prompt, with `{text}` and perhaps `{title}`; query-as-context's is `text2query: {text}`.
        candidates: queries drawn for each passage.
        deduplicate: whether equal queries of a passage are kept once.
        top_k: tokens drawn from at each step.
        top_p: share of the probability drawn from at each step.
        input_length: tokens of the prompt that are read.
        output_length: greatest number of tokens written.
        seed: of all draws.

    Raises:
        InputError: a value outside its range.
    """

    kind: Kind
    model: str
    template: str = "{text}"
    candidates: int = 5
    deduplicate: bool = False
    top_k: int = 25
    top_p: float = 0.95
    input_length: int = 384
    output_length: int = 64
    seed: int = 42

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"kind is {self.kind!r}; allowed: {', '.join(get_args(Kind))}.")
        for name in ("candidates", "top_k", "input_length", "output_length"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it is at least 1.")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}; it is a share of the probability, above 0 and at most 1.")
        try:
            used = self.template.format(text="\1", title="")
        except (KeyError, IndexError, ValueError) as error:
            raise InputError(f"The template {self.template!r} may name {{text}} and {{title}} alone.") from error
        if "\1" not in used:
            raise InputError(f"The template {self.template!r} does not say where the passage goes; write {{text}}.")


def generate(
    corpus: Dataset,
    out: str | os.PathLike[str],
    writing: Writing,
    *,
    source: str = "",
    batch_size: int = 32,
    licence: str = "other",
    command: str = "",
) -> Path:
    """Write a corpus with a column of generated texts to the directory `out`, complete or not at all.

    Args:
        corpus: column `text`, and `title` where the template names it; others are kept.
        out: pieces that are done stand in `<out>.partial` until all are.
        batch_size: passages written about at once.

    Returns:
        `out` as a path, on every process.

    Raises:
        InputError: the model cannot be loaded, the corpus is empty or has the column already, or an unfinished run in
            `out` was another one.
    """
    if writing.kind in corpus.column_names:
        raise InputError(f"The corpus has the column {writing.kind!r} already; remove it, or use it as it is.")
    check_replaceable(out, marker="README.md")
    if not len(corpus):
        raise InputError("The corpus is empty; there is nothing to write about.")
    state = process_state()
    target, pieces = Path(out), Path(f"{out}.partial")
    starts = range(0, len(corpus), _PIECE)
    begin_or_resume(pieces, {**asdict(writing), "passages": len(corpus), "first passage": corpus[0]["text"][:200]})
    state.wait_for_everyone()
    mine = [start for number, start in enumerate(starts) if number % state.num_processes == state.process_index]
    left = [start for start in mine if not _piece(pieces, start).exists()]
    if left:
        writer = Writer(writing, state.device)
        with tqdm(
            total=len(mine) * _PIECE,
            initial=(len(mine) - len(left)) * _PIECE,
            desc=f"Writing {writing.kind}",
            unit=" passages",
            disable=not state.is_main_process,
        ) as bar:
            for start in left:
                rows = corpus[start : start + _PIECE]
                titles = rows.get("title") or [""] * len(rows["text"])
                texts = writer.write(rows["text"], titles, batch_size, start, bar.update)
                _save(_piece(pieces, start), texts, writing.kind)
    state.wait_for_everyone()
    if state.is_main_process:
        _join(corpus, pieces, starts, target, writing, source, licence, command)
        shutil.rmtree(pieces)
    state.wait_for_everyone()
    return target


class Writer:
    """A language model that writes about passages."""

    def __init__(self, writing: Writing, device: torch.device | str = "cpu") -> None:
        self.writing = writing
        self.device = torch.device(device)
        self.model, self.tokenizer = load_writer(writing.model)
        precise = self.device.type != "cuda" or not torch.cuda.is_bf16_supported()
        self.model.to(self.device, torch.float32 if precise else torch.bfloat16).eval()  # type: ignore[arg-type]

    def write(
        self, texts: Sequence[str], titles: Sequence[str], batch_size: int, key: int = 0, done: Any = None
    ) -> list[list[str]]:
        """What the model writes about each text: as many strings as there are candidates, some perhaps empty.

        Args:
            key: what the draws depend on, beside the seed.
            done: called with the number of texts of each batch.
        """
        set_seed(zlib.crc32(f"{self.writing.seed}:{key}".encode()))
        prompts = [self._prompt(text, title) for text, title in zip(texts, titles, strict=True)]
        order = sorted(range(len(prompts)), key=lambda at: -len(prompts[at]))  # texts of one length: little padding
        written: list[list[str]] = [[] for _ in prompts]
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            for at, found in zip(part, self._batch([prompts[at] for at in part]), strict=True):
                written[at] = found
            if done:
                done(len(part))
        return written

    def _prompt(self, text: str, title: str) -> str:
        prompt = self.writing.template.format(text=text, title=title)
        if not self.tokenizer.chat_template:
            return prompt
        turns = [{"role": "user", "content": prompt}]
        return str(self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))

    @torch.inference_mode()
    def _batch(self, prompts: list[str]) -> list[list[str]]:
        writing, several = self.writing, self.writing.candidates if self.writing.kind == "queries" else 1
        read = self.tokenizer(
            prompts,
            padding=True,
            truncation=True,
            max_length=writing.input_length,
            return_tensors="pt",
            add_special_tokens=not self.tokenizer.chat_template,
        )
        read = {name: tensor.to(self.device) for name, tensor in read.items() if name != "token_type_ids"}
        if not self.model.config.is_encoder_decoder:
            read = self._unfinished(read)
        tokens = self.model.generate(  # type: ignore[operator]
            **read,
            do_sample=True,
            top_k=writing.top_k,
            top_p=writing.top_p,
            num_return_sequences=several,
            max_new_tokens=writing.output_length,
            pad_token_id=self.tokenizer.pad_token_id,
        )
        if not self.model.config.is_encoder_decoder:
            tokens = tokens[:, read["input_ids"].shape[1] :]
        flat = [" ".join(str(text).split()) for text in self.tokenizer.batch_decode(tokens, skip_special_tokens=True)]
        return [flat[start : start + several] for start in range(0, len(flat), several)]

    def _unfinished(self, read: dict[str, Tensor]) -> dict[str, Tensor]:
        """Prompts to continue, without the token that a tokenizer ends texts with; they are padded at the left."""
        ends = {self.tokenizer.sep_token_id, self.tokenizer.eos_token_id} - {None}
        ended = all(token in ends for token in read["input_ids"][:, -1].tolist())
        return {name: tensor[:, :-1] for name, tensor in read.items()} if ended else read


def load_writer(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A language model and its tokenizer, set up for writing in batches.

    Raises:
        InputError: there is none of that name, or it is no language model.
    """
    try:
        config = AutoConfig.from_pretrained(name)
        kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        tokenizer = AutoTokenizer.from_pretrained(name, padding_side="right" if config.is_encoder_decoder else "left")
        model = kind.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise InputError(f"No language model and tokenizer can be loaded from {name!r}.") from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def _piece(pieces: Path, start: int) -> Path:
    return pieces / f"{start:012d}.parquet"


def _save(file: Path, texts: list[list[str]], kind: Kind) -> None:
    rows = texts if kind == "queries" else [found[0] for found in texts]
    partial = file.with_suffix(".writing")
    parquet.write_table(pa.table({kind: pa.array(rows, _COLUMN[kind])}), partial)
    os.replace(partial, file)


def _joined(corpus: Dataset, pieces: Path, starts: range, writing: Writing) -> Iterator[pa.Table]:
    """The corpus with the column that was written, piece by piece."""
    rows = corpus.with_format("arrow")
    for start in starts:
        column = parquet.read_table(_piece(pieces, start)).column(writing.kind)
        if writing.kind == "queries":
            kept = [[query for query in found if query] for found in column.to_pylist()]
            if writing.deduplicate:
                kept = [list(dict.fromkeys(found)) for found in kept]
            column = pa.chunked_array([pa.array(kept, _COLUMN["queries"])])
        yield rows[start : start + _PIECE].append_column(writing.kind, column)


def _join(
    corpus: Dataset,
    pieces: Path,
    starts: range,
    target: Path,
    writing: Writing,
    source: str,
    licence: str,
    command: str,
) -> None:
    texts = empty = 0
    with atomic_directory(target) as work:
        with ShardWriter(work / "corpus") as writer:
            for table in _joined(corpus, pieces, starts, writing):
                found = table.column(writing.kind).to_pylist()
                empty += sum(not text for text in found)
                texts += sum(map(len, found)) if writing.kind == "queries" else sum(map(bool, found))
                writer.write(table)
        about = (
            f"Every passage with {writing.kind} that {writing.model} wrote: prompt `{writing.template}`, top-k "
            f"{writing.top_k}, top-p {writing.top_p:g}, at most {writing.output_length} tokens, seed {writing.seed}."
        )
        write_card(
            work,
            title=f"Passages with generated {writing.kind}",
            about=about,
            columns={"text": "the passage", writing.kind: "what was written about it"},
            counts={"passages": writer.written, f"generated {writing.kind}": texts, "passages without": empty},
            rows=writer.written,
            source=source or "a corpus",
            licence=licence,
            command=command,
            configs={"corpus": "corpus/*.parquet"},
        )
