"""A probe of pre-training: how well queries find their passages in a fixed pool, by the bottleneck alone.

It is measured twice: with the vectors as they are, and whitened, which takes the place of the tuning that a bottleneck
is made for. Training goes on as if nobody had looked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from hf_dense.data.collections import judged_indices, load_corpus, load_qrels, named_split, query_texts
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.errors import InputError
from hf_dense.pretraining.options import PretrainingOptions
from hf_dense.storage.files import replaced_file
from hf_dense.storage.process_group import decide_together

if TYPE_CHECKING:
    from hf_dense.pretraining.trainer import PreTrainer

PLAIN: Final = "probe_ndcg@10"
WHITENED: Final = "probe_whitened_ndcg@10"  # what stopping and keeping go by
ERROR: Final = "probe_whitened_error"
SECONDS: Final = "probe_seconds"
FEW: Final = 30  # queries; of fewer the mean says little
BEST: Final = "checkpoint-best.safetensors"  # a name that trainings claim, and that is not published

_SPLIT: Final = "dev"
_QUERIES, _PASSAGES = 200, 2_000  # of a pool, at most
_RELEVANT: Final = 10  # passages of a query that are sure to be in it: as many as nDCG@10 counts
_SEED: Final = 0  # of the draw, whatever the run's: runs are compared by the same pool
_BATCH: Final = 64  # texts read at once
_SHRINKAGE: Final = 0.01
_SMOOTHED: Final = 3  # probes

logger = logging.get_logger("transformers")


@dataclass(frozen=True)
class Pool:
    """Queries, and the passages among which they look for theirs.

    Attributes:
        collection: that they are drawn from.
        split: of its judgements.
        queries: their texts.
        passages: their texts, by descending ids: equal similarities are then ranked as trec_eval ranks them.
        grades: (queries, passages), float64: how relevant each passage is, 0 where it is not.
    """

    collection: Path
    split: str
    queries: list[str]
    passages: list[str]
    grades: Tensor

    @classmethod
    def load(cls, collection: Path, split: str) -> Self:
        """Draw up to 200 queries, up to ten relevant passages of each, and others up to 2,000; always the same.

        Raises:
            InputError: the collection or its split cannot be read, or no query has a relevant passage.
        """
        qrels, corpus, texts = load_qrels(collection, split), load_corpus(collection), query_texts(collection)
        rows = judged_indices(corpus)
        judged = {query: _graded_rows(grades, rows) for query, grades in qrels.items() if query in texts}
        names = [query for query, found in judged.items() if found]
        if not names:
            raise InputError(
                f"No query of split {split!r} of {collection} has a relevant passage; probe with another split."
            )
        random = np.random.default_rng(_SEED)
        names = [names[at] for at in random.permutation(len(names))[:_QUERIES]]
        drawn = _draw_rows([judged[name] for name in names], len(corpus), random)
        ids = dict(zip(drawn, corpus.select(drawn)["id"], strict=True))
        drawn.sort(key=lambda row: ids[row], reverse=True)
        grades = [[judged[name].get(row, 0) for row in drawn] for name in names]
        passages = PassageTexts(corpus.select(drawn))[:]
        return cls(collection, split, [texts[name] for name in names], passages, torch.tensor(grades).double())


def load_pool(options: PretrainingOptions) -> Pool | None:
    """The pool of the probe that is asked for; None where none is. One with few queries is told of.

    Raises:
        InputError: there is no such collection, nothing can be measured on it, or the options do not go together.
    """
    if options.probe_steps < 1:
        raise InputError(f"probe_steps is {options.probe_steps}; there is a step, or more, from one probe to the next.")
    if options.probe_patience is not None and options.probe_patience < 1:
        raise InputError(f"probe_patience is {options.probe_patience}; wait for one probe at least.")
    if options.probe is None:
        for name in ("probe_patience", "probe_keep_best"):
            if getattr(options, name):
                raise InputError(f"{name} goes by a probe, and there is none; name a collection with --probe.")
        return None
    if (named := named_split(options.probe, _SPLIT)) is None:
        lacking = options.probe.rpartition(":")[0] or options.probe
        raise InputError(f"There is no collection {lacking} to probe with; give COLLECTION[:SPLIT].")
    pool = Pool.load(Path(named[0]), named[1])
    if (count := len(pool.queries)) < FEW:
        logger.warning(
            f"The probe asks {count} quer{'y' if count == 1 else 'ies'} of {options.probe}, too few to tell "
            "checkpoints apart; make more (hf-dense data queries) or name a collection that has some."
        )
    return pool


def ndcg(scores: Tensor, grades: Tensor, depth: int = 10) -> Tensor:
    """nDCG of each query, with a passage's grade as its gain, as trec_eval computes it.

    Source: Järvelin and Kekäläinen, "Cumulated Gain-Based Evaluation of IR Techniques" (2002).

    Args:
        scores: (queries, passages); of equal ones the first ranks first.
        grades: (queries, passages), of the scores' type, 0 or more; each query has one above 0.
        depth: ranks that count.

    Returns:
        (queries,), from 0 to 1.

    >>> ndcg(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0.0, 2.0, 1.0]]))
    tensor([0.6697])
    """
    ranked = grades.gather(1, scores.argsort(dim=1, descending=True, stable=True)[:, :depth])
    ideal = grades.sort(dim=1, descending=True).values[:, :depth]
    discounts = torch.arange(2, ranked.shape[1] + 2, dtype=grades.dtype).log2()
    return (ranked / discounts).sum(dim=1) / (ideal / discounts).sum(dim=1)


def whitening(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The shift and the map after which vectors have mean 0, no correlations and equal variances.

    The covariance is shrunk towards a multiple of the identity, by 1 %, so that directions in which few vectors differ,
    or none, are not blown up. Source: Su, Cao, Liu and Ou, "Whitening Sentence Representations for Better Semantics and
    Faster Retrieval" (2021), arXiv:2103.15316, without the shrinkage.

    Args:
        vectors: (texts, dim), float64.

    Returns:
        Mean (dim,) and map (dim, dim): `(vectors - mean) @ map` are white.

    >>> mean, turn = whitening(torch.tensor([[0.0, 1.0], [4.0, 1.0], [0.0, 3.0], [4.0, 3.0]]).double())
    >>> mean.tolist(), (1 / (turn.T @ turn).diagonal()).round(decimals=3).tolist()
    ([2.0, 2.0], [1.015, 3.985])
    """
    mean = vectors.mean(dim=0)
    variances, directions = torch.linalg.eigh((vectors - mean).T @ (vectors - mean) / len(vectors))
    shrunk = torch.lerp(variances, variances.mean(), _SHRINKAGE)
    return mean, directions * shrunk.clamp(min=1e-12).rsqrt()


def score_pool(queries: Tensor, passages: Tensor, grades: Tensor) -> dict[str, float]:
    """What a probe says of vectors: mean nDCG@10 by cosine, plain and whitened, and the latter's standard error.

    Args:
        queries: (queries, dim), float64.
        passages: (passages, dim); the whitening is fitted on them.
        grades: (queries, passages); see `ndcg`.
    """
    queries, passages = (torch.nan_to_num(vectors, posinf=0.0, neginf=0.0) for vectors in (queries, passages))
    plain = ndcg(_cosines(queries, passages), grades)
    mean, turn = whitening(passages)
    white = ndcg(_cosines((queries - mean) @ turn, (passages - mean) @ turn), grades)
    error = white.std(correction=0) / len(white) ** 0.5
    return {PLAIN: plain.mean().item(), WHITENED: white.mean().item(), ERROR: error.item()}


def should_stop(values: Sequence[float], margin: float, patience: int) -> bool:
    """Whether a probe has risen, and then brought no gain for `patience` times.

    Values are smoothed: each is the mean of itself and the two before it, as far as there are any. A gain is a smoothed
    value above all before it. A probe that was never above the first one by more than `margin` stops nothing: the
    bottleneck of an encoder often gets worse before it gets better.

    Args:
        values: of all probes so far, the first one before the first step.
        margin: the standard error of the first value, over its queries.
        patience: probes.

    >>> should_stop([0.30, 0.36, 0.36, 0.36, 0.36, 0.36], margin=0.02, patience=2)
    True
    >>> should_stop([0.30, 0.29, 0.28, 0.28, 0.28, 0.28], margin=0.02, patience=2)
    False
    """
    recent = [values[max(at - _SMOOTHED, 0) : at] for at in range(1, len(values) + 1)]
    smoothed = [sum(part) / len(part) for part in recent]
    best = smoothed.index(max(smoothed))
    return smoothed[best] > smoothed[0] + margin and len(smoothed) - 1 - best >= patience


class RetrievalProbe(TrainerCallback):
    """Probes before the first step, every so many steps and after the last; stops, and keeps the best, where asked.

    The first process measures, and the others wait for what it finds. Nothing that training depends on is changed: the
    encoder alone is run, which draws random numbers from torch's generators at most, and these are put back.

    Args:
        trainer: whose model is probed.
        pool: what is searched.
        options: how often, and to what end.

    Raises:
        InputError: the encoder is not whole on the first process.
    """

    def __init__(self, trainer: PreTrainer, pool: Pool, options: PretrainingOptions) -> None:
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise InputError("A probe needs the whole encoder, which FSDP and DeepSpeed cut up; leave out --probe.")
        self.trainer, self.pool, self.options = trainer, pool, options
        self.best = Path(str(trainer.args.output_dir)) / BEST if options.probe_keep_best else None
        tokenizer: Any = deepcopy(trainer.processing_class)  # which remembers how it cut
        self.padding: int = tokenizer.pad_token_id
        read = [
            tokenizer(texts, truncation=True, max_length=options.max_length)["input_ids"]
            for texts in (pool.queries, pool.passages)
        ]
        self.queries, self.passages = ([torch.tensor(ids) for ids in texts] for texts in read)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Probe what the run starts from; a run that goes on has done so."""
        if state.global_step == 0:
            self._probe(control)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Probe, and stop where it is time to."""
        if state.global_step % self.options.probe_steps and not control.should_training_stop:
            return
        self._probe(control)
        probes = [row for row in state.log_history if WHITENED in row]
        if patience := self.options.probe_patience:
            values = [row[WHITENED] for row in probes]
            control.should_training_stop |= should_stop(values, probes[0][ERROR], patience)

    def _probe(self, control: TrainerControl) -> None:
        losses_are_due = control.should_log
        self.trainer.log(decide_together(self._measure))
        control.should_log = losses_are_due  # which a log switches off

    def _measure(self) -> dict[str, float]:
        """The figures, and how long they took; the best weights are kept in passing."""
        started = time.perf_counter()
        encoder, device = self.trainer.model.encoder, self.trainer.args.device
        was_training, drawing = encoder.training, [device] if device.type == "cuda" else []
        encoder.train(False)
        with torch.random.fork_rng(drawing), torch.no_grad(), self.trainer.accelerator.autocast():
            queries, passages = self._vectors(self.queries), self._vectors(self.passages)
        encoder.train(was_training)
        found = score_pool(queries, passages, self.pool.grades)
        if self.best is not None:
            self._keep(self.best, found[WHITENED])
        return {**found, SECONDS: time.perf_counter() - started}

    def _vectors(self, texts: Sequence[Tensor]) -> Tensor:
        """(texts, dim), float64, on the CPU: the bottlenecks of texts of token ids."""
        model, device = self.trainer.model, self.trainer.args.device
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        parts = []
        for start in range(0, len(order), _BATCH):
            rows = [texts[at] for at in order[start : start + _BATCH]]
            ids = pad_sequence(rows, batch_first=True, padding_value=self.padding).to(device)
            tokens = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True).to(device)
            parts.append(model.encoder(input_ids=ids, attention_mask=tokens).pooler_output)
        return torch.cat(parts).cpu().double()[torch.tensor(order).argsort()]

    def _keep(self, file: Path, value: float) -> None:
        """Write the weights, unless better ones of this run are there."""
        step = self.trainer.state.global_step
        if step == 0 or value > _told_of(file)[1]:
            with replaced_file(file) as partial:
                save_model(self.trainer.model, str(partial), {"step": str(step), "value": repr(value)})


def check_best(directory: Path, checkpoint: str | None) -> None:
    """Raise `InputError` where a run goes on from a checkpoint, and the best weights before it are not there."""
    if checkpoint is not None and not (directory / BEST).is_file():
        raise InputError(
            f"{directory} does not hold the best weights before {checkpoint} ({BEST}), which --probe_keep_best needs; "
            "go on in the directory of that run, or start anew in another one."
        )


def load_best(model: nn.Module, directory: Path) -> int:
    """Give a model the weights of the best probe.

    Args:
        model: that was trained.
        directory: of its run.

    Returns:
        The step that they are of.
    """
    load_model(model, directory / BEST)
    return _told_of(directory / BEST)[0]


def _told_of(file: Path) -> tuple[int, float]:
    """Step and whitened figure of weights that were kept."""
    with safe_open(file, "pt") as weights:
        told = weights.metadata()
    return int(told["step"]), float(told["value"])


def _graded_rows(grades: Mapping[str, int], rows: Mapping[str, Sequence[int]]) -> dict[int, int]:
    """The grade of each relevant row of the corpus; where a document is judged, of each that was cut from it."""
    found: dict[int, int] = {}
    for name, grade in grades.items():
        for row in rows.get(name, ()) if grade > 0 else ():
            found[row] = max(grade, found.get(row, 0))
    return found


def _draw_rows(judged: Sequence[Mapping[int, int]], count: int, random: np.random.Generator) -> list[int]:
    """Rows of a corpus of `count`: the most relevant ones of each query, and others."""
    relevant = [row for grades in judged for row in sorted(grades, key=lambda row: -grades[row])[:_RELEVANT]]
    others = random.choice(count, size=min(count, _PASSAGES), replace=False).tolist()
    return list(dict.fromkeys([*relevant, *others]))[:_PASSAGES]


def _cosines(queries: Tensor, passages: Tensor) -> Tensor:
    return functional.normalize(queries, dim=1) @ functional.normalize(passages, dim=1).T
