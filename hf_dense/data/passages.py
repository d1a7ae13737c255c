"""Sentences to passages of bounded length, and passages to pairs of neighbours."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import regex  # type: ignore[import-untyped]
from datasets import Dataset
from numpy.typing import NDArray
from tokenizers import Regex as TokenizerRegex
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from hf_dense.data.hub_names import model_folder
from hf_dense.data.sentences import join_sentences, split_sentences
from hf_dense.errors import InputError, as_sentence, first_line
from hf_dense.storage.fingerprints import fingerprint_tokenizer
from hf_dense.storage.places import Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_UNKNOWN: Final = "\ua66e"  # the rarest of letters, found in one manuscript
_HOLES: Final = 1_000_000  # ids of a tokenizer that no token has, at most
MIN_WORDS: Final = 4  # a passage of fewer words says nothing that one could look for

CountTokens = Callable[[list[str]], list[int]]
UNSPACED: Final = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"  # scripts without spaces between words
)
_WORD: Final = regex.compile(
    rf"[\p{{L}}&&[{UNSPACED}]]|[[\p{{L}}\p{{M}}\p{{No}}\p{{Nl}}]--[{UNSPACED}]]{{2,}}", regex.VERSION1
)

_UNSPACED_LETTER: Final = rf"[{UNSPACED}&&\p{{L}}]\p{{M}}*"
_UNSPACED_RUN: Final = regex.compile(rf"[{UNSPACED}][{UNSPACED}\p{{M}}]*")
_UNSPACED_PAIR: Final = regex.compile(r"(?:.\p{M}*){1,2}")


def count_words(text: str) -> int:
    """Number of words: runs of at least two letters; in scripts without spaces between words, every letter is one."""
    return len(_WORD.findall(text))


def words_as_typed(text: str) -> list[str]:
    """What spaces divide; of scripts that put none between words, pairs of letters, about as long as words are.

    >>> words_as_typed("Using the C API"), words_as_typed("退货政策 (iPhone)")
    (['Using', 'the', 'C', 'API'], ['退货', '政策', '(iPhone)'])
    """
    spaced: str = _UNSPACED_RUN.sub(_pairs, text)
    return spaced.split()


def _pairs(run: regex.Match[str]) -> str:
    return f" {' '.join(_UNSPACED_PAIR.findall(run.group()))} "


def pretoken_counter() -> CountTokens:
    """Counts BERT pre-tokens: the words and punctuation marks that WordPiece starts from, whatever its vocabulary.

    Of scripts without spaces between words each letter is one, as BERT has it of Chinese: a line of Thai is no word.
    """
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    letters = pre_tokenizers.Split(TokenizerRegex(_UNSPACED_LETTER), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([letters, pre_tokenizers.BertPreTokenizer()])
    return lambda texts: [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts)]


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a directory or a Hub id; of a retriever the one that reads passages.

    Raises:
        InputError: there is none.
    """
    from transformers import AutoTokenizer  # takes seconds, and is needed here only

    with as_sentence(f"No tokenizer can be loaded from {name!r}; give a directory or a Hub id of one"):
        place = model_folder(name)
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            place, subfolder=_reader_of_passages(place), trust_remote_code=False
        )
        check_longest(tokenizer)
        check_tokenizer(tokenizer, name)
    return tokenizer


def _reader_of_passages(place: str) -> str:
    """The folder of a retriever that its passages' tokenizer is in; empty where that is the retriever's own."""
    modules = _read_json(place, "modules.json")
    if not modules:
        return ""
    folder = str(modules[0]["path"])
    if str(modules[0]["type"]).endswith(".Router"):  # two encoders
        routes = _read_json(place, f"{folder}/router_config.json".lstrip("/"))["structure"]
        folder = f"{folder}/{routes['document'][0]}".lstrip("/")
    return folder


def _read_json(place: str, name: str) -> Any:
    """What a file of a model holds; None where there is no such file."""
    if Path(place).is_dir():
        file: str | Path | None = Path(place) / name
    else:
        from sentence_transformers.util import load_file_path  # takes seconds, too

        file = load_file_path(place, name)
    return json.loads(Path(file).read_text(encoding="utf-8")) if file and Path(file).is_file() else None


def check_longest(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise `ValueError` where the length that a tokenizer declares is none: it would fail at the first text."""
    if not isinstance(tokenizer.model_max_length, int | float):
        raise ValueError(f"its model_max_length is {tokenizer.model_max_length!r}, which is no number")


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, origin: str | Path) -> None:
    """Refuse the empty tokenizer that transformers makes where there is none, and those that stop at what they lack."""
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise InputError(f"There is no tokenizer in {origin}; save one there with tokenizer.save_pretrained.")
    greatest = max(tokenizer.get_vocab().values())
    if greatest > len(tokenizer) + _HOLES:  # each number up to it would be gone through
        raise InputError(f"The tokenizer in {origin} has a token of the id {greatest}, but {len(tokenizer)} tokens.")
    with as_sentence(f"The tokenizer in {origin} has no token for what it does not know"):
        tokenizer(_UNKNOWN)


def token_counter(name: str | None) -> CountTokens:
    """Counts the tokens of a tokenizer (a directory or Hub id) but for special ones; pre-tokens where none is named.

    Where a text has other tokens behind a space (byte-level BPE) the greater number counts, since it may stand there.

    Raises:
        InputError: no such tokenizer.
    """
    if not name:
        return pretoken_counter()
    tokenizer = load_tokenizer(name)

    def tokens(texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    first, behind = tokens(["a", " a"])

    def count(texts: list[str]) -> list[int]:
        if not texts:
            return []
        counts = [*map(len, tokens(texts))]
        return counts if first == behind else [*map(max, counts, map(len, tokens([f" {text}" for text in texts])))]

    return count


def tokenizer_source(name: str | None) -> dict[str, Source]:
    """What a manifest says of the tokenizer whose tokens are counted; nothing where none is named.

    Raises:
        InputError: no such tokenizer.
    """
    return {"tokenizer": Source(name, fingerprint_tokenizer(load_tokenizer(name)))} if name else {}


def token_unit(name: str | None) -> str:
    """What a passage's length is counted in, for people."""
    return f"tokens of {name}" if name else "words and punctuation marks"


def check_length(length: int) -> None:
    """Raise `InputError` where passages of so many tokens could hold no text."""
    if length < 2:
        raise InputError(f"A passage length of {length} tokens leaves no room for text; give at least 2.")


def build_passages(
    documents: Sequence[Sequence[str]],
    length: int,
    count_tokens: CountTokens,
    banned: Sequence[str] | None = None,
    targets: Sequence[Iterator[int]] | None = None,
) -> list[list[str]]:
    """Cut each document (its paragraphs) into passages of consecutive sentences, packed greedily.

    Args:
        documents: paragraphs of each document.
        length: greatest number of tokens in a passage. Counts are taken per sentence and added up, which is exact
            for tokenizers whose tokens never cross a space (WordPiece, pre-tokens), and never too little for those
            whose tokens begin with one (byte-level BPE).
        count_tokens: texts -> number of tokens of each.
        banned: for each document a text (or "") whose repetition is removed: no sentence holding it survives.
        targets: for each document the lengths at which its passages are closed, where some are to be shorter (see
            `drawn_targets`); a sentence is not cut for it. None closes all at `length`.

    Returns:
        For each document its passages in order. A sentence longer than `length` is cut between words, or inside
        a word that alone exceeds it.

    Raises:
        InputError: `length` is less than 2.
    """
    from hf_dense.data.languages import language_of  # here, as in `split_sentences`

    check_length(length)
    sentences = []
    for at, paragraphs in enumerate(documents):
        text = banned[at].casefold() if banned else ""
        language = language_of(paragraphs)
        found = [sentence for paragraph in paragraphs for sentence in split_sentences(paragraph, language)]
        sentences.append([sentence for sentence in found if not (text and text in sentence.casefold())])
    counts = iter(count_tokens([sentence for found in sentences for sentence in found]))
    passages = []
    for at, found in enumerate(sentences):
        pieces: list[tuple[str, int]] = []
        for sentence in found:
            size = next(counts)
            pieces += [(sentence, size)] if size <= length else _cut(sentence, length, count_tokens)
        passages.append(_pack(pieces, targets[at] if targets else repeat(length)))
    return passages


def drawn_targets(name: str, length: int, short: float) -> Iterator[int]:
    """Lengths of a document's passages: `length`, or with probability `short` any from 2 to it (CoT-MAE, Condenser).

    The same name gives the same ones.

    >>> from itertools import islice
    >>> list(islice(drawn_targets("a", 100, 0.5), 4))
    [10, 100, 100, 100]
    """
    generator = random.Random(name)
    while True:
        yield generator.randint(2, length) if generator.random() < short else length


def add_neighbours(corpus: Dataset) -> Dataset:
    """Pair each passage with an adjacent one of its document: the next, or for the last the one before.

    Args:
        corpus: columns `text`, `document` and `position`.

    Returns:
        The corpus with the column `neighbour`, sorted by document and position. Documents of a single passage are
        dropped (as in CoT-MAE, which leaves out documents with fewer than two spans).

    Raises:
        InputError: a column is missing.
    """
    missing = sorted({"text", "document", "position"} - set(corpus.column_names))
    if missing:
        raise InputError(
            f"neighbours need the corpus column {missing[0]!r}, but it has only {', '.join(corpus.column_names)}"
        )
    frame = in_order(corpus, "text")
    texts = frame.groupby("document", sort=False)["text"]
    frame["neighbour"] = texts.shift(-1).fillna(texts.shift(1))
    pairs = frame.loc[frame["neighbour"].notna(), "neighbour"]
    return corpus.select(pairs.index.to_numpy()).flatten_indices().add_column("neighbour", pairs.tolist())


def in_order(corpus: Dataset, *columns: str) -> Any:
    """A frame of rows sorted by document and position, the columns of both beside those that are named.

    Args:
        corpus: columns `document`, `position` and those.
        columns: names.

    Raises:
        InputError: the documents are no names, or see `read_positions`.
    """
    if pa.types.is_nested(kind := corpus.data.schema.field("document").type):
        raise InputError(f"The corpus has documents that are no names ({kind}); name each passage's document.")
    frame = corpus.select_columns(["document", *columns]).to_pandas()
    frame["position"] = read_positions(corpus)
    return frame.sort_values(["document", "position"], kind="stable")


def read_positions(corpus: Dataset) -> NDArray[np.int64]:
    """(passages,) the places of passages in their documents, 0 where none is said.

    Raises:
        InputError: one is no whole number, or a greater one than is written.
    """
    try:
        return np.asarray(
            corpus.select_columns(["position"])
            .with_format("arrow")[:]["position"]
            .cast(pa.int32())  # as they are written
            .cast(pa.int64())
            .fill_null(0)
            .to_numpy()
        )
    except pa.ArrowException as error:
        raise InputError(f"The corpus has a position that is no whole number: {first_line(error)}") from error


def _pack(pieces: Iterable[tuple[str, int]], targets: Iterator[int]) -> list[str]:
    """Join (text, number of tokens) pieces, in order, into texts of at most as many tokens as the next target says."""
    packed: list[list[str]] = []
    used = target = 0
    for text, size in pieces:
        if not packed or used + size > target:
            packed.append([])
            used, target = 0, next(targets)
        packed[-1].append(text)
        used += size
    return [join_sentences(texts) for texts in packed]


def _cut(sentence: str, length: int, count_tokens: CountTokens) -> list[tuple[str, int]]:
    """Cut a sentence that is too long into (text, number of tokens) pieces of at most `length` tokens."""
    words = sentence.split()
    if len(words) == 1:
        half = len(sentence) // 2
        words = [sentence[:half], sentence[half:]]
    pieces: list[tuple[str, int]] = []
    for word, size in zip(words, count_tokens(words), strict=True):
        if size <= length:
            pieces.append((word, size))
        elif len(word) > 1:
            pieces += _cut(word, length, count_tokens)
    packed: list[tuple[str, int]] = []
    for text, size in pieces:
        if packed and packed[-1][1] + size <= length:
            packed[-1] = (f"{packed[-1][0]} {text}", packed[-1][1] + size)
        else:
            packed.append((text, size))
    return packed
