"""Texts that a language model writes about passages: queries they answer, or how they go on.

Passages are worked on in pieces. Every piece is written to disk when it is done, and its draws depend on the piece and
the seed alone: a run that was killed goes on where it stopped and ends with the same result, on any number of processes
(`accelerate launch`). A run that goes on with another batch size has other draws from there on.
"""

from __future__ import annotations

import copy
import os
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
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
from hf_dense.data.hub_names import model_folder
from hf_dense.data.shards import ShardWriter
from hf_dense.errors import InputError, as_sentence
from hf_dense.modeling.bottleneck_backbones import FAMILIES
from hf_dense.storage.files import replaced_file
from hf_dense.storage.fingerprints import (
    fingerprint_rows,
    fingerprint_tokenizer,
    fingerprint_values,
    fingerprint_weights,
)
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import is_main_process, process_state, wait_for_everyone
from hf_dense.storage.staged import Staged

Kind = Literal["queries", "continuation"]

_PIECE: Final = 256  # passages
_MOST: Final = 10**6  # tokens or texts; of more a tokenizer or a model makes an overflow or asks for all memory
_SPARE: Final = 4  # tokens that a passage may have more where it is cut and read again

_COLUMN: Final = {"queries": pa.list_(pa.string()), "continuation": pa.string()}
_NO_SETTINGS: Final = ("_name_or_path", "transformers_version", "dtype", "architectures")  # of a model's configuration


@dataclass(frozen=True)
class TextGenerationConfig:
    """What is generated, by which model, and how tokens are drawn.

    Args:
        kind: `queries`, a list for each passage (docTTTTTquery, query-as-context), or one `continuation` (MASTER).
        model: a sequence-to-sequence or causal language model (a directory or Hub id); an instruction model takes its
            instruction from `template`.
        template: the prompt, with `{text}` and perhaps `{title}`; query-as-context's is `text2query: {text}`.
        candidates: queries drawn for each passage.
        deduplicate: whether equal queries of a passage are kept once.
        top_k: tokens drawn from at each step.
        top_p: share of the probability drawn from at each step.
        temperature: of the draws: below 1 the likely is drawn more often; the model's own when absent.
        input_length: tokens of the prompt that are read, or as many as the model's positions have room for.
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
    temperature: float | None = None
    input_length: int = 384
    output_length: int = 64
    seed: int = 42

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"kind is {self.kind!r}; allowed: {', '.join(get_args(Kind))}.")
        for name in ("candidates", "top_k", "input_length", "output_length"):
            if not 1 <= getattr(self, name) <= _MOST:
                raise InputError(f"{name} is {getattr(self, name)}; it is from 1 to {_MOST}.")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}; it is a share of the probability, above 0 and at most 1.")
        if self.temperature is not None and not 0 < self.temperature < inf:
            raise InputError(f"temperature is {self.temperature}; it is above 0.")
        check_template(self.template)


def check_at_once(batch_size: int) -> None:
    """Raise `InputError` where no passage would be worked on at once."""
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; it is at least 1.")


def check_template(template: str) -> None:
    """Raise `InputError` where a prompt names something else than `{text}` and `{title}`, or no text."""
    try:
        used = template.format(text="\1", title="")
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        raise InputError(f"The template {template!r} may name {{text}} and {{title}} alone.") from error
    if "\1" not in used:
        raise InputError(f"The template {template!r} does not say where the passage goes; write {{text}}.")


def generate(
    corpus: Dataset,
    out: str | os.PathLike[str] | Output,
    config: TextGenerationConfig,
    *,
    source: str = "a corpus",
    batch_size: int = 32,
) -> Path:
    """Write a corpus with a column of generated texts to the directory `out`.

    Args:
        corpus: column `text`, and `title` where the template names it; others are kept.
        source: path or Hub id of the corpus.
        batch_size: passages worked on at once.

    Returns:
        The directory, on every process.

    Raises:
        InputError: the model cannot be loaded, the corpus is empty or has the column already, no passage is to be
            worked on at once, or see `Output.stage`.
    """
    if config.kind in corpus.column_names:
        raise InputError(f"The corpus has the column {config.kind!r} already; remove it, or use it as it is.")
    if not len(corpus):
        raise InputError("The corpus is empty; there is nothing to write about.")
    check_at_once(batch_size)
    output, generator = Output.of(out), TextGenerator(config, process_state().device)
    settings = {name: value for name, value in asdict(config).items() if name not in ("model", "seed")}
    sources = {"corpus": Source(source, fingerprint_rows(corpus, corpus.column_names)), "model": generator.source}
    with output.stage("generated texts", settings, sources, seed=config.seed, resumable=True) as work:
        if not work.done:
            write_pieces(corpus, work.pieces, generator, batch_size)
            wait_for_everyone()
            if is_main_process():
                _join(corpus, work, config)
    return output.path


def write_pieces(corpus: Dataset, pieces: Path, generator: TextGenerator, batch_size: int) -> None:
    """Write what a model writes about a corpus: this process's share of the pieces, but for those that are there.

    Args:
        corpus: column `text`, and `title` where the template names it.
        pieces: folder of theirs alone; see `read_pieces`.
        batch_size: passages worked on at once.
    """
    state, starts = process_state(), range(0, len(corpus), _PIECE)
    mine = [start for number, start in enumerate(starts) if number % state.num_processes == state.process_index]
    left = [start for start in mine if not _piece(pieces, start).exists()]
    sizes = {start: min(_PIECE, len(corpus) - start) for start in mine}
    with tqdm(
        total=sum(sizes.values()),
        initial=sum(sizes.values()) - sum(sizes[start] for start in left),
        desc=f"Generating {generator.config.kind}",
        unit=" passages",
        disable=not state.is_main_process,
    ) as bar:
        for start in left:
            rows = corpus[start : start + _PIECE]
            passages = [text or "" for text in rows["text"]]
            titles = [title or "" for title in rows.get("title", [""] * len(passages))]
            texts = generator.generate(passages, titles, batch_size, start, bar.update)
            _save(_piece(pieces, start), texts, generator.config.kind)


def read_pieces(passages: int, pieces: Path, kind: Kind) -> list[Any]:
    """What all pieces hold: for each passage its queries, or its continuation, as the model wrote them."""
    files = (_piece(pieces, start) for start in range(0, passages, _PIECE))
    return [found for file in files for found in parquet.read_table(file).column(kind).to_pylist()]


class TextGenerator:
    """A language model that writes about passages.

    Attributes:
        source: the model, by what it is.

    Raises:
        InputError: there is none of that name, or it is no language model, or its chat template is none; or the prompt
            leaves no room for a passage.
    """

    def __init__(self, config: TextGenerationConfig, device: torch.device | str = "cpu") -> None:
        self.config = config
        self.device = torch.device(device)
        self.model, self.tokenizer = load_language_model(config.model)
        self.source = Source(config.model, fingerprint_language_model(self.model, self.tokenizer))
        self.room = _room(self.model, config)
        with as_sentence(f"The chat template of {config.model} makes no prompt"):
            bare = len(self._tokens(self._turn("", ""), not self.tokenizer.chat_template))
        if bare >= self.room:
            raise InputError(
                f"The prompt has {bare} tokens without a passage, and {config.model} reads {self.room} of it; shorten "
                "the template, raise input_length, or lower output_length."
            )
        precise = self.device.type != "cuda" or not torch.cuda.is_bf16_supported()
        self.model.to(self.device, torch.float32 if precise else torch.bfloat16).eval()  # type: ignore[arg-type]

    def with_template(self, template: str) -> TextGenerator:
        """The same model with another prompt."""
        other = copy.copy(self)
        other.config = replace(self.config, template=template)
        return other

    def generate(
        self, texts: Sequence[str], titles: Sequence[str], batch_size: int, key: int = 0, done: Any = None
    ) -> list[list[str]]:
        """What the model writes about each text: as many strings as there are candidates, some perhaps empty.

        Args:
            key: what the draws depend on, beside the seed.
            done: called with the number of texts of each batch.
        """
        set_seed(zlib.crc32(f"{self.config.seed}:{key}".encode()))
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
        whole, ends = self._turn(text, title), self.config.template.rstrip().endswith("{text}")
        if ends and not self.tokenizer.chat_template:
            return whole
        over = len(self._tokens(whole, not self.tokenizer.chat_template)) - self.room
        if over <= 0:
            return whole
        # Cut at its end it would lose what makes the model answer, so the passage is cut.
        kept = self._tokens(text)[: -over - _SPARE]
        return self._turn(str(self.tokenizer.decode(kept)), title)

    def _turn(self, text: str, title: str) -> str:
        """The prompt as the model reads it."""
        prompt = self.config.template.format(text=text, title=title)
        if not self.tokenizer.chat_template:
            return prompt
        turns = [{"role": "user", "content": prompt}]
        return str(self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))

    def _tokens(self, text: str, special: bool = False) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])

    @torch.inference_mode()
    def _batch(self, prompts: list[str]) -> list[list[str]]:
        config, several = self.config, self.config.candidates if self.config.kind == "queries" else 1
        read = self.tokenizer(
            prompts,
            padding=True,
            truncation=True,
            max_length=self.room,
            return_tensors="pt",
            add_special_tokens=not self.tokenizer.chat_template,
        )
        read = {name: tensor.to(self.device) for name, tensor in read.items() if name != "token_type_ids"}
        if not self.model.config.is_encoder_decoder:
            read = self._unfinished(read)
        tokens = self.model.generate(  # type: ignore[operator]
            **read,
            do_sample=True,
            top_k=config.top_k,
            top_p=config.top_p,
            **({} if config.temperature is None else {"temperature": config.temperature}),
            num_return_sequences=several,
            max_new_tokens=config.output_length,
            pad_token_id=self.tokenizer.pad_token_id,
        )
        if not self.model.config.is_encoder_decoder:
            tokens = tokens[:, read["input_ids"].shape[1] :]
        flat = [str(text).strip() for text in self.tokenizer.batch_decode(tokens, skip_special_tokens=True)]
        return [flat[start : start + several] for start in range(0, len(flat), several)]

    def _unfinished(self, read: dict[str, Tensor]) -> dict[str, Tensor]:
        """Prompts to continue, without the token that a tokenizer ends texts with; they are padded at the left."""
        ends = {self.tokenizer.sep_token_id, self.tokenizer.eos_token_id} - {None}
        ended = all(token in ends for token in read["input_ids"][:, -1].tolist())
        return {name: tensor[:, :-1] for name, tensor in read.items()} if ended else read


def _room(model: PreTrainedModel, config: TextGenerationConfig) -> int:
    """Tokens of a prompt that are read: as asked for, as far as the positions of a model are enough.

    Raises:
        InputError: what is written alone has more tokens.
    """
    positions = getattr(model.config, "max_position_embeddings", None) or 0
    written = 0 if model.config.is_encoder_decoder else config.output_length  # decoders of theirs count anew
    if 0 < positions <= config.output_length:
        raise InputError(
            f"{config.model} has {positions} positions, and output_length is {config.output_length}; make it smaller."
        )
    return min(config.input_length, positions - written) if positions > 0 else config.input_length


def load_language_model(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A language model and its tokenizer, set up for generating in batches.

    Raises:
        InputError: there is none of that name, or it is no language model.
    """
    with as_sentence(f"No language model and tokenizer can be loaded from {name!r}"):
        place = model_folder(name)
        config = AutoConfig.from_pretrained(place, trust_remote_code=False)
        if config.model_type in FAMILIES and not getattr(config, "is_decoder", False):
            raise InputError(f"{name} is an encoder, which writes no text; name a language model.")
        kind: Any = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        side = "right" if config.is_encoder_decoder else "left"
        tokenizer = AutoTokenizer.from_pretrained(place, padding_side=side, trust_remote_code=False)
        model, loaded = kind.from_pretrained(place, trust_remote_code=False, output_loading_info=True)
        if lacking := sorted(loaded["missing_keys"]):
            raise InputError(f"{name} is no whole language model: it has no weights {lacking[0]}; name another one.")
        ids = tokenizer("a", return_tensors="pt")["input_ids"]
        model.generate(ids, max_new_tokens=1, do_sample=False)  # its settings are read only then
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token_id is None:
        raise InputError(f"The tokenizer of {name} has no token that pads or ends texts; set its pad_token.")
    return model, tokenizer


def fingerprint_language_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Of the weights, the tokenizer with its chat template, and the configurations of model and generation."""
    configs = {"model": model.config.to_dict()}
    if model.generation_config is not None:
        configs["generation"] = model.generation_config.to_dict()
    kept = {
        what: {name: value for name, value in values.items() if name not in _NO_SETTINGS}
        for what, values in configs.items()
    }
    parts = {"weights": fingerprint_weights(model), "tokenizer": fingerprint_tokenizer(tokenizer)}
    return fingerprint_values({**parts, **kept, "chat template": tokenizer.chat_template})


def _piece(pieces: Path, start: int) -> Path:
    return pieces / f"{start:012d}.parquet"


def _save(file: Path, texts: list[list[str]], kind: Kind) -> None:
    rows = texts if kind == "queries" else [found[0] for found in texts]
    with replaced_file(file) as partial:
        parquet.write_table(pa.table({kind: pa.array(rows, _COLUMN[kind])}), partial)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _join(corpus: Dataset, work: Staged, config: TextGenerationConfig) -> None:
    """Write the corpus with the column that was generated, piece by piece, and its card."""
    rows, texts, empty = corpus.with_format("arrow"), 0, 0
    with ShardWriter(work.result / "corpus") as writer:
        for start in range(0, len(corpus), _PIECE):
            read = parquet.read_table(_piece(work.pieces, start)).column(config.kind).to_pylist()
            if config.kind == "queries":
                found: list[Any] = [[query for query in map(_one_line, queries) if query] for queries in read]
                found = [list(dict.fromkeys(queries)) for queries in found] if config.deduplicate else found
            else:
                found = list(map(_one_line, read))
            empty += sum(not text for text in found)
            texts += sum(map(len, found)) if config.kind == "queries" else sum(map(bool, found))
            column = pa.chunked_array([pa.array(found, _COLUMN[config.kind])])
            writer.write(rows[start : start + _PIECE].append_column(config.kind, column))
    work.facts["counts"] = {"passages": writer.written, f"generated {config.kind}": texts, "passages without": empty}
    write_card(
        work,
        title=f"Passages with generated {config.kind}",
        about=f"Every passage with {config.kind} that {config.model} wrote: prompt `{config.template}`, top-k "
        f"{config.top_k}, top-p {config.top_p:g}, at most {config.output_length} tokens, seed {config.seed}.",
        columns={"text": "the passage", config.kind: "what was written about it"},
        rows=writer.written,
        configs={"corpus": "corpus/*.parquet"},
    )
