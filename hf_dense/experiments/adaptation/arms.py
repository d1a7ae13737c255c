"""The arms of an adaptation: what is trained, from what, and what each is worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.experiments.adaptation.learning import DEPTH, DISTILLED, Learning
from hf_dense.experiments.adaptation.material import DEV, TEST, TRAIN, Material
from hf_dense.experiments.adaptation.plan import Plan
from hf_dense.experiments.asked import METRIC, fused_weight, measure
from hf_dense.experiments.keeping import Kept
from hf_dense.finetuning.biencoder import finetune
from hf_dense.finetuning.lists import PassageLists, load_entries
from hf_dense.finetuning.scoring import score_lists
from hf_dense.methods import METHODS
from hf_dense.pretraining.pretrain import pretrain
from hf_dense.search.first_stage import BM25
from hf_dense.search.index import SearchIndex, build_index
from hf_dense.storage.manifest import seconds_of
from hf_dense.storage.output import Output

WORDS, BASE, TUNED, LONGER = "BM25", "base", "fine-tuned", "fine-tuned longer"


@dataclass(frozen=True)
class Arm:
    """One way to a retriever, and what it came to.

    Attributes:
        name: in tables.
        model: the retriever; of BM25 that whose index holds the words.
        index: directory of its index.
        evaluated: directory of its evaluations, by split.
        weight: of the dense scores; 0 is BM25.
        dev: what is chosen by.
        test: what is reported.
        kept: on the other collection.
        seconds: of training, that of the arms before it included.
        pretraining: directory of its pre-training; of the fine-tuning of that alone.
        training: directory of its own training.
    """

    name: str
    model: Path
    index: Path
    evaluated: Path
    weight: float
    dev: RetrievalResult
    test: RetrievalResult
    kept: RetrievalResult | None
    seconds: float
    pretraining: Path | None = None
    training: Path | None = None

    @property
    def worth(self) -> float:
        """What arms are chosen by."""
        return self.dev.metrics[METRIC]


@dataclass(frozen=True)
class Workshop:
    """Makes arms, or reads those that are made; each in directories of its own below `out`.

    Args:
        material: what is adapted to.
        negatives: what BM25 found for its training queries.
        pool: collection that every arm is measured on.
        plan: how long each trains.
        learning: how.
        kept: another collection that is measured on.
        seed: of all draws.
        out: the directory.
        say: is told what begins.
    """

    material: Material
    negatives: Path
    pool: Path
    plan: Plan
    learning: Learning
    kept: Kept | None
    seed: int
    out: Output
    say: Callable[[str], None]

    def words(self, base: Path) -> Arm:
        """BM25."""
        self.say("BM25")
        return self._measured(WORDS, base, self._index(BASE, base), 0.0, 0.0)

    def base(self, base: Path) -> Arm:
        """The base as it is."""
        self.say("The base as it is")
        return self._measured(BASE, base, self._index(BASE, base), 1.0, 0.0)

    def tuned(self, base: Path) -> Arm:
        """The base, fine-tuned."""
        return self._finetuned(TUNED, base, self.plan.finetuning, 0.0)

    def tuned_longer(self, base: Path) -> Arm:
        """The base, fine-tuned in the time that another arm is pre-trained in, too."""
        return self._finetuned(LONGER, base, self.plan.longer, 0.0)

    def pretrained(self, method: str, base: Path) -> Arm:
        """The base, pre-trained, then fine-tuned."""
        name, steps = METHODS[method].prefix, self.plan.pretraining[method]
        self.say(f"Pre-training by {name}: {steps:,} steps")
        place = self.out.at("pretrained", method)
        more: dict[str, Any] = {"overwrite": self.out.overwrite}
        if self.plan.probes:
            more |= {"probe": f"{self.pool}:{DEV}", "probe_steps": max(1, steps // self.plan.probes)}
        options = self.learning.pretraining_options(method, str(base), str(self.material.collection), **more)
        pretrain(options, self.learning.pretraining(place.path, steps, self.seed))
        tuned = self._finetuned(f"{name}, fine-tuned", place.path, self.plan.finetuning, seconds_of(place.path))
        return replace(tuned, pretraining=place.path)

    def distilled(self, best: Arm, teacher: str) -> Arm:
        """A better one, trained on with the scores of a teacher for its lists of passages."""
        name, steps = f"{best.name}, distilled", self.plan.finetuning
        self.say(f"{name}: {steps:,} steps")
        collection, place = self.material.collection, self.out.at("lists", "scores")
        given: dict[str, Any] = {"depth": DEPTH, "precision": self.learning.encoded_in}
        given["least"] = DISTILLED  # short queries share words with few passages
        if teacher != BM25:
            entries = load_entries(self.negatives)
            given["queries"], given["depth"] = self.learning.scored(entries, steps, self.seed)
        scores = score_lists(teacher, self.negatives, collection, place, TRAIN, **given)
        lists = self.learning.scored_lists(scores, collection, self.seed)
        changes = self.learning.distillation(teacher)
        return self._train(name, best.model, lists, steps, best.seconds + seconds_of(scores), changes)

    def fused(self, best: Arm, words: Arm, weight: float | None) -> Arm:
        """A dense one and BM25 together, with a weight, or with the one that dev chooses."""
        self.say(f"{best.name} and BM25 together")
        if weight is None:
            weight = fused_weight(best.evaluated / DEV, words.evaluated / DEV, self.pool, DEV)
        return self._measured(f"{best.name} + BM25", best.model, best.index, weight, best.seconds)

    def _finetuned(self, name: str, start: Path, steps: int, seconds: float) -> Arm:
        self.say(f"{name}: {steps:,} steps")
        lists = self.learning.lists(self.negatives, self.material.collection, self.seed)
        return self._train(name, start, lists, steps, seconds + seconds_of(self.negatives), {})

    def _train(
        self, name: str, start: Path, lists: PassageLists, steps: int, seconds: float, changes: dict[str, Any]
    ) -> Arm:
        place = self._place(name).at("training")
        arguments = self.learning.finetuning(place.path, steps, self.seed, overwrite=self.out.overwrite, **changes)
        model = finetune(start, lists, arguments, output=place)
        arm = self._measured(name, model, self._index(name, model), 1.0, seconds + seconds_of(place.path))
        return replace(arm, training=place.path)

    def _index(self, name: str, model: Path) -> Path:
        return build_index(model, self.pool, self._place(name).at("index"), precision=self.learning.encoded_in)

    def _measured(self, name: str, model: Path, index: Path, weight: float, seconds: float) -> Arm:
        opened, place = SearchIndex.load(index, model), self._place(name)
        dev, test = (measure(opened, self.pool, split, weight, place.at(split), name) for split in (DEV, TEST))
        kept = self._on_kept(name, opened, weight, place)
        return Arm(name, model, index, place.path, weight, dev, test, kept, seconds)

    def _on_kept(self, name: str, opened: SearchIndex, weight: float, place: Output) -> RetrievalResult | None:
        """On the other collection; what fuses is left out: its weight is of the own one."""
        if self.kept is None or weight not in (0, 1):
            return None
        model = opened.retriever if weight else BM25
        on = self.kept.collection, self.kept.split
        return evaluate_retriever(model, *on, name=name, out=place.at("kept"), reading=opened.reading)

    def _place(self, name: str) -> Output:
        return self.out.at("arms", name.lower().replace(", ", "-").replace(" + ", "-").replace(" ", "-"))
