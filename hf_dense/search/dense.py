"""Texts as vectors: a corpus encoded once, block after block on disk, and the passages nearest to queries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer, SimilarityFunction
from torch import Tensor
from torch.nn import functional
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from hf_dense.errors import InputError
from hf_dense.hub.retriever_settings import length_of, query_length_of
from hf_dense.search.cluster import cluster_encoder, is_on_cluster
from hf_dense.search.turns import reading
from hf_dense.search.unread import Unread
from hf_dense.storage.arrays import check_array
from hf_dense.storage.files import replaced_file

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
Stored = TypeVar("Stored")

KINDS: Final = ("exact", "flat", "ivfpq", "hnsw")
BLOCK: Final = 20_000  # passages in a file
_QUERIES = 512  # compared at once to a block: 40 MB of scores
_FOLDS = 16
_BATCHES = 8  # of each process that are handed over at once
_MEASURED = 1_000  # texts whose tokens are counted at once
_NO_LIMIT = 10**9  # tokens of a text, which none has
_TRAINED_ON = 256  # least number of passages that product quantisation learns from
_CODED = 10_000  # passages from which its codes are well learnt
_NEAR = 16  # cells that a query looks into, at least
_WIDTH = 64  # candidates that a query follows through a graph, at least
_LISTS = 65_536  # greatest number of cells of IVF


@dataclass(frozen=True)
class Vectors:
    """A corpus in vectors, read from disk block by block; all blocks but the last are of one size."""

    files: tuple[Path, ...]

    @classmethod
    def stored(cls, folder: Path) -> Vectors:
        """Those that `encode_corpus` wrote into a folder.

        Raises:
            ValueError: a file whose header cannot be read, or has other dimensions than the others.
        """
        vectors = cls(tuple(sorted(folder.glob("vectors-*.npy"))))
        shapes = {block.shape[1:] for block in vectors}
        if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
            raise ValueError(f"{folder} holds vectors of other dimensions: {sorted(shapes)}")
        return vectors

    def __len__(self) -> int:
        """The number of blocks."""
        return len(self.files)

    def __iter__(self) -> Iterator[Floats]:
        """(rows, dimensions) blocks, mapped into memory."""
        return map(_mapped, self.files)

    def take(self, indices: Indices) -> Floats:
        """(indices, dimensions) the vectors of some passages."""
        first = _mapped(self.files[0])
        found = np.empty((len(indices), first.shape[1]), dtype=np.float32)
        blocks, rows = np.divmod(indices, len(first))
        for block in np.unique(blocks):
            chosen = blocks == block
            found[chosen] = _mapped(self.files[block])[rows[chosen]]
        return found


@dataclass(frozen=True)
class Known(Generic[Stored]):
    """Vectors of some texts of a corpus that the same model has encoded before.

    Args:
        vectors: where they are: `Vectors`, or, of hybrid ones, a `HybridIndex`.
        rows: (texts,) the place of each text's vector there, -1 where it has none.
    """

    vectors: Stored
    rows: Indices


def encode_corpus(
    retriever: SentenceTransformer,
    texts: Sequence[str],
    folder: Path,
    batch_size: int = 64,
    known: Known[Vectors] | None = None,
) -> Vectors:
    """Encode passages, with a progress bar; a run that was killed goes on after the last whole block.

    Passages of a block with as many tokens are encoded together, so that little is padded. They are encoded on the
    cluster that `encoding_on` names; else on all GPUs where that is worth it (`devices_for`), by a process for each;
    else where the model is.

    Args:
        retriever: inner products of the vectors are its similarity: those of a cosine model have unit length.
        texts: title + " " + text of each passage.
        folder: receives the blocks, or holds those of a run that was killed. That they are of this model and of these
            texts is for the caller to see to: it is where an output keeps its pieces (`hf_dense.storage.output`).
        batch_size: texts encoded at once.
        known: vectors that are copied; only the other texts are encoded.

    Returns:
        The vectors, on disk.

    Raises:
        InputError: the model's similarity is neither dot nor cosine, or a batch holds no text.
    """
    _check_similarity(retriever)
    check_batch_size(batch_size)
    files = [folder / f"vectors-{start // BLOCK:05d}.npy" for start in range(0, len(texts), BLOCK)]
    new = len(texts) if known is None else int((known.rows < 0).sum())
    new = 0 if all(file.exists() for file in files) else new
    if is_on_cluster() and new:
        encoder = _cluster_encoder(retriever, batch_size)
    else:
        encoder = _encoder(retriever, devices_for(retriever, new), batch_size)
    unread = Unread(_longest(retriever))
    with tqdm(total=len(texts), desc="Encoding passages", unit=" passages") as bar, encoder as encode:
        for number, file in enumerate(files):
            place = slice(number * BLOCK, (number + 1) * BLOCK)
            block = texts[place]
            if file.exists():
                _skip(bar, len(block))
            else:
                of_block = known and replace(known, rows=known.rows[place])
                with replaced_file(file) as unfinished:
                    np.save(unfinished, _make_block(retriever, encode, block, bar, of_block, unread))
                    check_array(unfinished)
    unread.warn("passages", "Shorter passages (hf-dense data passages --length) are read whole.")
    return Vectors(tuple(files))


def check_batch_size(batch_size: int) -> None:
    """Raise `InputError` where no text would be encoded at once."""
    if not isinstance(batch_size, Integral) or batch_size < 1:
        raise InputError(f"batch_size is {batch_size!r}; at least one text is encoded at once, a whole number.")


def devices_for(retriever: SentenceTransformer, texts: int) -> list[str]:
    """The GPUs that encode so many texts: all, where starting a process for each is worth it.

    Nothing where the model's own device does it alone: there is no other, there is less than a block to do, or
    `accelerate launch` has given every process its GPU.
    """
    count = torch.cuda.device_count() if retriever.device.type == "cuda" else 0
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    return [f"cuda:{number}" for number in range(count)] if count > 1 and alone and texts >= BLOCK else []


def encode_queries(retriever: SentenceTransformer, queries: Sequence[str], batch_size: int = 64) -> Floats:
    """(queries, dimensions) vectors whose inner products with those of passages are the model's similarity.

    Where much of the queries is longer than the model reads, the log says so.
    """
    unread = Unread(query_length_of(retriever) or length_of(retriever))
    with reading(retriever):
        unread.add(_lengths(_tokenizer(retriever), queries))
        vectors = retriever.encode_query(list(queries), batch_size=batch_size, show_progress_bar=False)
    unread.warn("queries", "Shorter ones are read whole.")
    return _finished(retriever, vectors)


def searcher(vectors: Vectors, kind: str = "exact") -> Callable[[Floats, int], tuple[Floats, Indices]]:
    """Prepare a search for the passages of greatest inner product.

    Args:
        vectors: of the corpus.
        kind: `exact` (reads vectors from disk, on a GPU where there is one), or an index of FAISS, which is built once
            and stands in memory: `flat` (exact too), `ivfpq` (compressed), `hnsw` (a graph).

    Returns:
        Given (queries, dimensions) and a number k, finds (queries, k) scores, best first, and indices in the corpus,
        -1 where an index found no more; fewer columns where the corpus has fewer passages.

    Raises:
        InputError: the kind is unknown, or the corpus too small for it.
    """
    passages = sum(map(len, vectors))
    check_kind(kind, passages)
    if kind == "exact":  # which takes memory for all that are asked for
        return lambda queries, k: search(queries, vectors, min(k, passages))
    index = trained_index(vectors, kind)
    if kind != "hnsw" and faiss.get_num_gpus() > 0:
        index = faiss.index_cpu_to_all_gpus(index)
    for block in vectors:
        index.add(block)

    def find(queries: Floats, k: int) -> tuple[Floats, Indices]:
        return search_index(index, queries, min(k, index.ntotal))

    return find


def check_kind(kind: str, passages: int) -> None:
    """Pass when a corpus of so many passages can be searched so.

    Raises:
        InputError: the kind is unknown, or the corpus too small for it.
    """
    if kind not in KINDS:
        raise InputError(f"The kind of search is {kind!r}; choose one of {', '.join(KINDS)}.")
    if kind == "ivfpq" and passages < _TRAINED_ON:
        raise InputError(
            f"The corpus has {passages} passages; ivfpq learns from at least {_TRAINED_ON}, search it exactly."
        )


def search(
    queries: Floats, blocks: Iterable[Floats], k: int, device: torch.device | str | None = None
) -> tuple[Floats, Indices]:
    """Find the passages of greatest inner product with each query, exactly, reading the corpus once.

    Args:
        queries: (queries, dimensions).
        blocks: (rows, dimensions) each, the corpus in order.
        k: passages wanted for each query.
        device: where scores are computed; a GPU where there is one by default.

    Returns:
        (queries, min(k, passages)) scores, best first, and indices in the corpus.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    asked = torch.from_numpy(queries).to(device)
    best = torch.full((len(queries), k), -torch.inf, device=device)
    indices = torch.full((len(queries), k), -1, dtype=torch.int64, device=device)
    memory = torch.empty(_QUERIES * BLOCK, device=device)  # taken once: fresh pages cost as much as sorting
    seen = 0
    for block in tqdm(blocks, desc="Comparing", unit=" blocks", leave=False, delay=1):
        for start in range(0, len(block), BLOCK):
            part = torch.from_numpy(block[start : start + BLOCK]).to(device)
            for first in range(0, len(queries), _QUERIES):
                rows = slice(first, first + _QUERIES)
                some = asked[rows]
                table = memory[: len(some) * len(part)].view(len(some), len(part))
                scores, at = _highest(torch.mm(some, part.T, out=table), k, best[rows, -1:])
                best[rows], order = torch.cat([best[rows], scores], dim=1).topk(k)
                indices[rows] = torch.cat([indices[rows], at + seen], dim=1).gather(1, order)
            seen += len(part)
    found = min(k, seen)
    return best[:, :found].cpu().numpy(), indices[:, :found].cpu().numpy()


def _highest(scores: Tensor, k: int, least: Tensor) -> tuple[Tensor, Tensor]:
    """The highest scores of each row, in any order, where those that do not exceed `least` may lack.

    Sorting is what takes time, so rows are folded: what is wanted stands in the columns of the highest maxima.

    Args:
        scores: (queries, passages).
        k: scores wanted.
        least: (queries, 1).

    Returns:
        (queries, k or fewer) scores and their indices in the row.
    """
    if odd := scores.shape[1] % _FOLDS:
        scores = functional.pad(scores, (0, _FOLDS - odd), value=-torch.inf)
    folded = scores.view(len(scores), _FOLDS, -1)
    maxima = folded.amax(1)
    columns = maxima.topk(min(k, int((maxima > least).sum(1).max())), sorted=False).indices
    among = folded.gather(2, columns[:, None].expand(-1, _FOLDS, -1)).flatten(1)
    found, at = among.topk(min(k, among.shape[1]), sorted=False)
    chosen = max(1, columns.shape[1])
    return found, at // chosen * folded.shape[2] + columns.gather(1, at % chosen)


def trained_index(vectors: Vectors, kind: str) -> Any:
    """An index of FAISS, in memory, that has learnt from vectors what it has to and holds none yet.

    Args:
        vectors: of the corpus.
        kind: `flat`, `ivfpq` or `hnsw`.
    """
    rows, dimensions = sum(map(len, vectors)), next(iter(vectors)).shape[1]
    cells = min(int(4 * rows**0.5), rows // _TRAINED_ON, _LISTS)
    codes = next(size for size in (96, 64, 48, 32, 16, 8, 4, 2, 1) if dimensions % size == 0)  # bytes of a vector
    # np: not polysemous, which takes minutes of training, for a filter by Hamming distances that nothing here uses.
    described = {"flat": "Flat", "ivfpq": f"IVF{cells},PQ{codes}np", "hnsw": "HNSW32"}[kind]
    index: Any = faiss.index_factory(dimensions, described, faiss.METRIC_INNER_PRODUCT)
    if kind == "ivfpq":
        index.nprobe = min(cells, max(_NEAR, cells // 8))
        index.cp.min_points_per_centroid = index.pq.cp.min_points_per_centroid = 1  # no warning: there are no more
        index.train(_sample(vectors, rows, max(_CODED, 64 * cells)))
    return index


def search_index(index: Any, queries: Any, k: int) -> tuple[Floats, Indices]:
    """Ask an index of FAISS; of a graph it follows as many candidates as are wanted (by default 16, however many are).

    Args:
        index: of FAISS.
        queries: what it takes, a row for each.
        k: passages for each.

    Returns:
        (queries, k) scores or distances, best first, and indices, -1 where no more was found.
    """
    if isinstance(index, faiss.IndexHNSW):  # said with the question: a setting of the index is that of all threads
        width = faiss.SearchParametersHNSW(efSearch=max(k, _WIDTH))  # type: ignore[attr-defined]
        found: tuple[Floats, Indices] = index.search(queries, k, params=width)
    else:
        found = index.search(queries, k)
    return found


def _sample(vectors: Vectors, rows: int, wanted: int) -> Floats:
    """(wanted, dimensions) vectors from all over the corpus, or all where there are no more."""
    drawn = np.random.default_rng(0).permutation(rows)[:wanted]
    return vectors.take(np.sort(drawn))


def _mapped(file: Path) -> Floats:
    vectors: Floats = np.load(file, mmap_mode="c")  # copy on write: torch warns of arrays that cannot be written
    return vectors


@dataclass(frozen=True)
class _Encoder:
    """Encodes texts, so many at once; `together` are handed over at once."""

    encode: Callable[[list[str]], NDArray[np.floating]]
    together: int


@contextmanager
def _encoder(retriever: SentenceTransformer, devices: list[str], batch_size: int) -> Iterator[_Encoder]:
    """Encode in this process, a batch at a time, or on several devices, in processes that end with it."""

    def encode(texts: list[str], **how: Any) -> NDArray[np.floating]:
        found: NDArray[np.floating] = retriever.encode_document(
            texts, batch_size=batch_size, show_progress_bar=False, **how
        )
        return found

    if not devices:
        yield _Encoder(encode, batch_size)
        return
    pool = retriever.start_multi_process_pool(devices)
    try:
        yield _Encoder(partial(encode, pool=pool, chunk_size=batch_size), _BATCHES * batch_size * len(devices))
    finally:
        retriever.stop_multi_process_pool(pool)


@contextmanager
def _cluster_encoder(retriever: SentenceTransformer, batch_size: int) -> Iterator[_Encoder]:
    with cluster_encoder(retriever, batch_size) as (encode, workers):
        yield _Encoder(encode, _BATCHES * batch_size * workers)


def _make_block(
    retriever: SentenceTransformer,
    encoder: _Encoder,
    texts: Sequence[str],
    bar: Any,
    known: Known[Vectors] | None,
    unread: Unread,
) -> Floats:
    """(texts, dimensions) vectors, those copied that are known."""
    if known is None:
        return _encode_block(retriever, texts, encoder, bar.update, unread)
    found = known.vectors.take(np.maximum(known.rows, 0))
    new = np.flatnonzero(known.rows < 0)
    _skip(bar, len(texts) - len(new))
    if len(new):
        found[new] = _encode_block(retriever, [texts[at] for at in new.tolist()], encoder, bar.update, unread)
    return found


def _skip(bar: Any, count: int) -> None:
    """Show texts as done that say nothing about the time that is left."""
    if not bar.disable:  # by TQDM_DISABLE; it counts nothing then
        bar.initial += count
        bar.update(count)


def _encode_block(
    retriever: SentenceTransformer,
    texts: Sequence[str],
    encoder: _Encoder,
    done: Callable[[int], object],
    unread: Unread,
) -> Floats:
    """(texts, dimensions) vectors; texts of one length are encoded together, the longest first."""
    with reading(retriever):
        lengths = _lengths(_tokenizer(retriever), texts)
    unread.add(lengths)
    read = lengths if unread.longest is None else np.minimum(lengths, unread.longest)
    order = np.argsort(-read, kind="stable").tolist()
    parts = []
    for start in range(0, len(order), encoder.together):
        part = [texts[at] for at in order[start : start + encoder.together]]
        with reading(retriever):
            parts.append(encoder.encode(part))
        done(len(part))
    vectors = _finished(retriever, np.concatenate(parts))
    found = np.empty_like(vectors)
    found[order] = vectors
    return found


def _tokenizer(retriever: SentenceTransformer) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a model; None where it is none of transformers."""
    try:
        tokenizer: Any = retriever.tokenizer
    except AttributeError:  # of modules that read no text themselves
        return None
    return tokenizer if isinstance(tokenizer, PreTrainedTokenizerBase) else None


def _longest(retriever: SentenceTransformer) -> int | None:
    """Tokens that a model reads of a text; None where there is no limit, for which a tokenizer has a huge number."""
    longest = retriever.max_seq_length if _tokenizer(retriever) is not None else None
    return longest if longest is not None and longest < _NO_LIMIT else None


def _lengths(tokenizer: PreTrainedTokenizerBase | None, texts: Sequence[str]) -> Indices:
    """(texts,) tokens of each, whole; characters where there is no tokenizer.

    Texts of as many characters differ in tokens by a third and more, which sorting by characters would pad.
    """
    if tokenizer is None:
        return np.array([len(text) for text in texts], dtype=np.int64)
    options: dict[str, Any] = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
    counted = []
    for start in range(0, len(texts), _MEASURED):
        part = list(texts[start : start + _MEASURED])
        counted += [len(tokens) for tokens in tokenizer(part, **options)["input_ids"]]
    return np.array(counted, dtype=np.int64)


def _finished(retriever: SentenceTransformer, vectors: NDArray[np.floating]) -> Floats:
    """Vectors whose inner product is the model's similarity."""
    _check_similarity(retriever)
    found = np.array(vectors, dtype=np.float32, order="C")
    if not np.isfinite(found).all():
        raise InputError("The model's vectors hold numbers that are none (NaN or infinite); train it again.")
    if retriever.similarity_fn_name == SimilarityFunction.COSINE.value:
        faiss.normalize_L2(found)
    return found


def _check_similarity(retriever: SentenceTransformer) -> None:
    name = retriever.similarity_fn_name
    if name not in (SimilarityFunction.COSINE.value, SimilarityFunction.DOT_PRODUCT.value):
        raise InputError(f"The model's similarity is {name!r}; search needs dot or cosine.")
