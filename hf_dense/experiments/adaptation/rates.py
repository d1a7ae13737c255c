"""How fast this machine is with this model: a few steps of each kind, done for real and thrown away."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from datasets import Dataset

from hf_dense.data.collections import load_corpus
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.data.schemas import SPLITS
from hf_dense.experiments.adaptation.learning import DISTILLED, Learning
from hf_dense.finetuning.biencoder import finetune
from hf_dense.finetuning.lists import PassageLists, load_lists
from hf_dense.finetuning.scoring import cross_encoder_teacher
from hf_dense.hub.precision import Reading
from hf_dense.hub.retrievers import build_retriever
from hf_dense.pretraining.pretrain import pretrain
from hf_dense.search.cross_encoder import load_reranker
from hf_dense.search.dense import encode_corpus
from hf_dense.search.first_stage import BM25
from hf_dense.storage.checkpoints import load_history

_STEPS: Final = (2, 6)  # of each training, at least and at most
_TRYING: Final = 12.0  # seconds of a training, at most, but for the least steps
_TRAINED: Final = 4.5  # times that a pair takes longer to be trained on than a passage to be encoded, about
_TEXTS: Final = 192  # encoded
_PAIRS: Final = 32  # scored, about
_KIB: Final = 1024  # in which Linux counts the peak of memory


@dataclass(frozen=True)
class Rates:
    """What things take, in seconds; and the peak of memory meanwhile, in bytes.

    Attributes:
        passage: to encode a passage.
        kept: to encode a passage of the other collection; 0 where none is measured.
        finetuning: a step of fine-tuning.
        pretraining: a step of pre-training, by method.
        memory: of the process.
        scoring: to score what a step of distillation reads with a cross-encoder; 0 where BM25 teaches.
    """

    passage: float
    kept: float
    finetuning: float
    pretraining: Mapping[str, float]
    memory: int
    scoring: float = 0.0

    @property
    def halved(self) -> Rates:
        """Those with half the passages in a step of fine-tuning."""
        return replace(self, finetuning=self.finetuning / 2, scoring=self.scoring / 2)


def measure_rates(
    base: str,
    collection: Path,
    negatives: Path,
    kept: Path | None,
    methods: Sequence[str],
    teacher: str,
    learning: Learning,
    seed: int,
) -> Rates:
    """Encode some passages, and do some steps of each training.

    Args:
        base: the model that all arms start from.
        collection: that is adapted to.
        negatives: what BM25 found for its training queries.
        kept: another one that is measured on.
        methods: of pre-training.
        teacher: that is distilled, a cross-encoder or BM25.
        learning: the settings of all trainings.
        seed: of the draws.

    Returns:
        What each takes, and the memory of it all.

    Raises:
        InputError: what any of them raises: the settings do not go together with the model or the data.
    """
    corpus = load_corpus(collection).shuffle(seed=seed)
    lists = learning.lists(negatives, collection, seed)
    with TemporaryDirectory() as folder:
        scratch = Path(folder)
        passage = _encoding(base, corpus, learning, scratch / "own")
        expected = _TRAINED * passage * learning.queries * lists.passages
        step = _finetuning(base, lists, learning, _steps(expected), scratch)
        tried = _steps(step)
        return Rates(
            passage=passage,
            kept=_encoding(base, load_corpus(kept).shuffle(seed=seed), learning, scratch / "kept") if kept else 0.0,
            finetuning=step,
            pretraining={method: _pretraining(method, base, corpus, learning, tried, scratch) for method in methods},
            scoring=0.0 if teacher == BM25 else _scoring(teacher, negatives, collection, learning, seed),
            memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB,
        )


def _encoding(base: str, corpus: Dataset, learning: Learning, folder: Path) -> float:
    retriever = Reading(learning.encoded_in).apply(build_retriever(base))
    texts = list(PassageTexts(corpus.select(range(min(len(corpus), _TEXTS)))))
    retriever.encode_document(texts[:8], show_progress_bar=False)  # warms up
    folder.mkdir()
    started = time.perf_counter()
    encode_corpus(retriever, texts, folder)
    return (time.perf_counter() - started) / len(texts)


def _steps(seconds: float) -> int:
    """How many steps of so many seconds are tried."""
    return max(_STEPS[0], min(_STEPS[1], int(_TRYING / seconds)))


def _finetuning(base: str, lists: PassageLists, learning: Learning, steps: int, scratch: Path) -> float:
    place = scratch / "finetuned"
    finetune(base, lists, learning.finetuning(place, steps, 0, save_strategy="no"))
    return _seconds_of_step(place, steps)


def _scoring(teacher: str, negatives: Path, collection: Path, learning: Learning, seed: int) -> float:
    """Of a step of distillation."""
    lists = load_lists(negatives, collection, 1 + DISTILLED, seed, split=SPLITS[0], depth=DISTILLED)
    model = Reading(learning.encoded_in).apply(load_reranker(teacher))
    score, few = cross_encoder_teacher(model, lists, _PAIRS), lists.entries[: _PAIRS // (1 + DISTILLED)]
    score(few[:2], lambda _: None)  # warms up
    started = time.perf_counter()
    score([replace(entry, negatives=entry.negatives[:DISTILLED]) for entry in few], lambda _: None)
    return (time.perf_counter() - started) / len(few) * learning.distilled


def _pretraining(method: str, base: str, corpus: Dataset, learning: Learning, steps: int, scratch: Path) -> float:
    wanted = steps * learning.texts
    chosen = corpus.select([at % len(corpus) for at in range(wanted)])
    file, place = scratch / f"{method}.jsonl", scratch / method
    chosen.to_json(str(file))
    options = learning.pretraining_options(method, base, str(file), held_out=0.0)
    pretrain(options, learning.pretraining(place, steps, 0, save_strategy="no"))
    return _seconds_of_step(place, steps)


def _seconds_of_step(training: Path, steps: int) -> float:
    runtime = next(entry["train_runtime"] for entry in load_history(training) if "train_runtime" in entry)
    return float(runtime) / steps
