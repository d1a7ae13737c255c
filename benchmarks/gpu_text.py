"""Text that every Python environment holds, and what an encoder finds in it, of torch and tokenizers alone.

The text is the docstrings of the standard library and of the installed packages that `hf_dense.data.python_docs` reads,
cut with less care than there. A query is a docstring's first paragraph, relevant are the passages of the rest. Every
tenth module, by a hash of its name, is held out: neither its passages nor its queries are trained on.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from hf_dense.data.python_docs.docstrings import SourceFile, find_sources, read_docstrings

WORDS, PASSAGES = 80, 8  # of a passage; of a document, at most
QUERY = range(4, 33)  # words
QUERIES, POOL = 1000, 10_000  # that are evaluated, at most, and among how many passages
SHRINKAGE = 0.01  # of the covariance that a whitening is made of, towards a multiple of the identity
TEMPERATURE = 0.05
READ = 256  # texts encoded at once


@dataclass(frozen=True)
class Text:
    """What is trained on, and what is evaluated with.

    Attributes:
        passages: to pre-train on.
        pairs: queries, each with a passage that is relevant to it, to fine-tune on.
        queries: held out.
        pool: passages of held-out modules.
        relevant: (queries, pool) bool.
        packages: the text is of, with their versions.
        digest: of all passages.
    """

    passages: list[str]
    pairs: list[tuple[str, str]]
    queries: list[str]
    pool: list[str]
    relevant: Tensor
    packages: dict[str, str]
    digest: str


def read_text(packages: Sequence[str] | None, files: int | None, processes: int) -> Text:
    """The text of some packages (None: all that are known and installed), of so many of their files (None: all)."""
    sources, versions = find_sources(packages)
    sources = sources[:files]
    if processes > 1:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            documents = [document for part in pool.map(_documents, sources, chunksize=16) for document in part]
    else:
        documents = [document for source in sources for document in _documents(source)]
    passages, pairs, queries, pool, owners = [], [], {}, [], []
    known, asked = set[str](), set[str]()
    for module, query, texts in documents:
        fresh = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(fresh)
        new = bool(query) and query.casefold() not in asked
        asked.add(query.casefold())
        if zlib.crc32(module.encode()) % 10:
            passages += fresh
            pairs += [(query, fresh[0])] if new and fresh else []
        elif len(pool) < POOL:
            pool += fresh
            owners += [len(queries) if new else -1] * len(fresh)
            if new and fresh:
                queries[len(queries)] = query
    chosen = [*queries][:QUERIES]
    relevant = torch.tensor(chosen)[:, None] == torch.tensor(owners)
    digest = hashlib.sha256("\n".join([*passages, *pool]).encode()).hexdigest()
    return Text(passages, pairs, [queries[at] for at in chosen], pool, relevant, versions, digest)


def _documents(source: SourceFile) -> list[tuple[str, str, list[str]]]:
    """Module, query ("" where there is none) and passages of every docstring of a file; [] if it cannot be read."""
    try:
        docstrings = read_docstrings(source.path.read_bytes(), source.module)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    documents = []
    for _, docstring in docstrings:
        text = inspect.cleandoc(docstring.encode("utf-8", "ignore").decode())
        first, *rest = re.split(r"\n\s*\n", text, maxsplit=1)
        query, words = " ".join(first.split()), " ".join(rest).split()
        if len(query.split()) not in QUERY or len(words) < QUERY.start:
            query, words = "", text.split()
        cut = [" ".join(words[at : at + WORDS]) for at in range(0, len(words), WORDS)][:PASSAGES]
        documents.append((source.module, query, cut if len(words) >= QUERY.start else []))
    return documents


@torch.no_grad()
def encode(encoder: nn.Module, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, length: int) -> Tensor:
    """(texts, dim) bottlenecks in float32."""
    ids = tokenize(tokenizer, texts, length)
    order = sorted(range(len(ids)), key=lambda at: len(ids[at]))
    vectors: list[Tensor] = []
    encoder.eval()
    for at in range(0, len(order), READ):
        vectors.append(bottlenecks(encoder, [ids[row] for row in order[at : at + READ]]).float())
    return torch.cat(vectors)[torch.tensor(order).argsort().to(vectors[0].device)]


def tokenize(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], length: int, special: bool = True
) -> list[Tensor]:
    """Token ids of texts, cut to `length`; an empty text is one unknown token."""
    found = tokenizer(
        list(texts), add_special_tokens=special, truncation=True, max_length=length, return_attention_mask=False
    )["input_ids"]
    return [torch.tensor(ids or [tokenizer.unk_token_id]) for ids in found]


def bottlenecks(encoder: nn.Module, ids: Sequence[Tensor]) -> Tensor:
    """(texts, dim) of an encoder, under bf16."""
    device = next(encoder.parameters()).device
    mask = pad_sequence([torch.ones_like(text) for text in ids], batch_first=True).to(device)
    with torch.autocast(device.type, torch.bfloat16):
        read = encoder(input_ids=pad_sequence(list(ids), batch_first=True).to(device), attention_mask=mask)
    return read.pooler_output


def tune(
    encoder: nn.Module, pairs: Sequence[tuple[Tensor, Tensor]], steps: int, size: int, rate: float, seed: int
) -> None:
    """Contrastive fine-tuning: the passage of each query among those of its batch, by cosine."""
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1)
    encoder.train()
    for _ in range(steps):
        chosen = [pairs[at] for at in rng.choice(len(pairs), min(size, len(pairs)), replace=False)]
        sides = [F.normalize(bottlenecks(encoder, side).float(), dim=1) for side in zip(*chosen, strict=True)]
        scores = sides[0] @ sides[1].T / TEMPERATURE
        F.cross_entropy(scores, torch.arange(len(scores), device=scores.device)).backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def evaluate(encoder: nn.Module, text: Text, tokenizer: PreTrainedTokenizerBase, length: int) -> dict[str, float]:
    """nDCG@10 and MRR@10 over the held-out queries by cosine, with the vectors as they are and whitened.

    The whitening is fitted on the passages; see `hf_dense.pretraining.probe`.
    """
    queries, passages = (encode(encoder, texts, tokenizer, length).double() for texts in (text.queries, text.pool))
    found = measures(F.normalize(queries, dim=1) @ F.normalize(passages, dim=1).T, text.relevant)
    mean = passages.mean(dim=0)
    variances, directions = torch.linalg.eigh((passages - mean).T @ (passages - mean) / len(passages))
    turn = directions * torch.lerp(variances, variances.mean(), SHRINKAGE).clamp(min=1e-12).rsqrt()
    queries, passages = (F.normalize((vectors - mean) @ turn, dim=1) for vectors in (queries, passages))
    white = measures(queries @ passages.T, text.relevant)
    return found | {f"whitened_{name}": value for name, value in white.items()}


def measures(scores: Tensor, relevant: Tensor) -> dict[str, float]:
    """nDCG@10 and MRR@10 of (queries, passages) scores, each query having a relevant passage.

    >>> measures(torch.tensor([[0.1, 0.3, 0.2]]), torch.tensor([[False, False, True]]))
    {'ndcg@10': 0.6309, 'mrr@10': 0.5}
    """
    relevant = relevant.to(scores.device)
    best = scores.topk(min(10, scores.shape[1]), dim=1).indices
    hits = relevant.gather(1, best).double()
    ranks = torch.arange(1, hits.shape[1] + 1, dtype=torch.double, device=scores.device)
    discounts = 1 / (ranks + 1).log2()
    ideal = discounts.cumsum(0)[relevant.sum(dim=1).clamp(max=len(ranks)) - 1]
    gains = {"ndcg@10": (hits * discounts).sum(dim=1) / ideal, "mrr@10": (hits / ranks).amax(dim=1)}
    return {name: round(value.mean().item(), 4) for name, value in gains.items()}


def bm25(text: Text, tokenizer: PreTrainedTokenizerBase, length: int, device: torch.device) -> dict[str, float]:
    """The same measures of BM25 (k1 = 0.9, b = 0.4) over tokens, for comparison."""
    counts = [
        torch.stack(
            [ids.bincount(minlength=len(tokenizer)) for ids in tokenize(tokenizer, texts, length, special=False)]
        )
        for texts in (text.queries, text.pool)
    ]
    queries, passages = (part.to(device, torch.float32) for part in counts)
    holding = (passages > 0).sum(dim=0)
    rarity = ((len(passages) - holding + 0.5) / (holding + 0.5)).log1p()
    lengths = passages.sum(dim=1, keepdim=True)
    weights = rarity * passages / (passages + 0.9 * (0.6 + 0.4 * lengths / lengths.mean()))
    return measures(queries @ weights.T, text.relevant)
