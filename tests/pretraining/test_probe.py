"""The probe: its figures, its pool, what it leaves alone, and what it decides on."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytrec_eval
import torch
from json_lines import write_lines
from launched import launch
from manifests import manifest_of
from tiny_pretraining import BACKBONE, Interrupted, logged, same_weights, tiny_arguments, tiny_options, weights
from tiny_retriever import tiny_tokenizer, write_dataset
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from hf_dense.errors import InputError
from hf_dense.pretraining import pretrain as pretrain_module
from hf_dense.pretraining import probe as probe_module
from hf_dense.pretraining.pretrain import PretrainingResult, pretrain
from hf_dense.pretraining.probe import (
    BEST,
    ERROR,
    PLAIN,
    SECONDS,
    WHITENED,
    Pool,
    RetrievalProbe,
    load_pool,
    ndcg,
    score_pool,
    should_stop,
    whitening,
)
from hf_dense.pretraining.trainer import PreTrainer

TIMES = ("runtime", "per_second", "probe")  # parts of the names of what differs from run to run


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write queries and passages of very different lengths."""
    directory = write_dataset(tmp_path_factory.mktemp("probe") / "beir")
    for file in (directory / "corpus.jsonl", directory / "queries.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for number, row in enumerate(rows):
            row["text"] = " ".join([row["text"]] * (1 + number % 3))
        write_lines(file, rows)
    return directory


def random_case(queries: int = 7, passages: int = 40, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw scores with many ties, and grades of 0 to 3, some queries with more than ten relevant passages."""
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 9, (queries, passages), generator=draw).double()
    grades = torch.randint(-8, 4, (queries, passages), generator=draw).clamp(min=0).double()
    grades[0] = grades[0].clamp(min=1)
    grades[1] = torch.eye(passages)[3]
    return scores, grades


def test_ndcg_is_that_of_trec_eval() -> None:
    scores, grades = random_case()
    names = [f"p{column:02d}" for column in range(grades.shape[1])][::-1]  # descending, as in a pool
    qrels = {
        str(query): {name: int(grade) for name, grade in zip(names, row, strict=True)}
        for query, row in enumerate(grades.tolist())
    }
    run = {str(query): dict(zip(names, row, strict=True)) for query, row in enumerate(scores.tolist())}
    found = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"}).evaluate(run)
    assert ndcg(scores, grades).tolist() == pytest.approx([found[query]["ndcg_cut_10"] for query in qrels])


def test_ndcg_counts_the_ranks_that_there_are() -> None:
    scores, grades = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[3.0, 0.0, 1.0]])
    best = 3 / math.log2(2) + 1 / math.log2(3)
    assert ndcg(scores, grades).item() == pytest.approx((1 / math.log2(2) + 3 / math.log2(4)) / best)
    assert ndcg(scores, grades, depth=1).item() == pytest.approx(1 / 3)


def test_whitened_vectors_have_no_correlations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "_SHRINKAGE", 0.0)
    draw = torch.Generator().manual_seed(0)
    vectors = torch.randn(60, 5, generator=draw).double() @ torch.randn(5, 5, generator=draw).double() + 7
    mean, turn = whitening(vectors)
    white = ((vectors - mean) @ turn).numpy()
    np.testing.assert_allclose(white.mean(axis=0), np.zeros(5), atol=1e-10)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(5), atol=1e-10)


def test_whitening_is_measured_as_a_loop_does() -> None:
    draw = torch.Generator().manual_seed(1)
    stretch = torch.tensor([9.0, 1.0, 1.0, 0.1]).double()
    passages = torch.randn(30, 4, generator=draw).double() * stretch + 5
    queries = passages[:6] + 0.3 * stretch * torch.randn(6, 4, generator=draw).double()
    grades = torch.eye(30).double()[:6]
    centre = passages.numpy().mean(axis=0)
    covariance = sum(np.outer(row - centre, row - centre) for row in passages.numpy()) / 30
    covariance = 0.99 * covariance + 0.01 * np.trace(covariance) / 4 * np.eye(4)
    inverse = np.linalg.inv(covariance)  # the cosine of whitened vectors is one under this inner product
    values = []
    for number, query in enumerate(queries.numpy() - centre):
        similar = [query @ inverse @ row / np.sqrt(row @ inverse @ row) for row in passages.numpy() - centre]
        rank = sum(other > similar[number] for other in similar) + 1
        values.append(1 / math.log2(rank + 1) if rank <= 10 else 0.0)
    found = score_pool(queries, passages, grades)
    assert found[WHITENED] == pytest.approx(np.mean(values))
    assert found[ERROR] == pytest.approx(np.std(values) / 6**0.5)
    assert found[PLAIN] < found[WHITENED], "one direction drowns the others"


@pytest.mark.parametrize("value", [0.0, 2.5, float("nan"), float("inf")])
def test_vectors_that_tell_nothing_apart_are_scored_all_the_same(value: float) -> None:
    vectors = torch.full((20, 6), value).double()
    found = score_pool(vectors[:2], vectors, torch.eye(20)[18:].double())
    assert found == {PLAIN: 0.0, WHITENED: 0.0, ERROR: 0.0}


def test_more_dimensions_than_passages_are_whitened() -> None:
    vectors = torch.randn(4, 16, generator=torch.Generator().manual_seed(0)).double()
    assert score_pool(vectors, vectors, torch.eye(4).double())[WHITENED] == pytest.approx(1.0)


def test_a_pool_is_the_same_at_every_draw_and_holds_what_is_relevant(
    collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_module, "_QUERIES", 8)
    monkeypatch.setattr(probe_module, "_PASSAGES", 25)
    pool, again = (Pool.load(collection, "test") for _ in range(2))
    assert (pool.queries, pool.passages) == (again.queries, again.passages)
    assert torch.equal(pool.grades, again.grades)
    assert (len(pool.queries), len(set(pool.passages)), pool.grades.shape) == (8, 25, (8, 25))
    rows = map(json.loads, (collection / "corpus.jsonl").open())
    names = {f"{row['title']} {row['text']}": row["_id"] for row in rows}
    assert [names[text] for text in pool.passages] == sorted((names[text] for text in pool.passages), reverse=True)
    asked = {row["text"]: row["_id"] for row in map(json.loads, (collection / "queries.jsonl").open())}
    judged = {tuple(line.split("\t")[:2]) for line in (collection / "qrels" / "test.tsv").read_text().splitlines()[1:]}
    for query, grades in zip(pool.queries, pool.grades.tolist(), strict=True):
        relevant = {name for other, name in judged if other == asked[query]}
        assert {names[text] for text, grade in zip(pool.passages, grades, strict=True) if grade} == relevant


def write_judged(directory: Path, qrels: str) -> Path:
    """Write 30 passages of three documents, two queries and their judgements."""
    (directory / "qrels").mkdir(parents=True)
    rows = [{"_id": f"p{row:02d}", "text": f"text {row}", "document": f"d{row // 10}"} for row in range(30)]
    asked = [{"_id": name, "text": f"what {name}"} for name in ("q1", "q2")]
    for name, lines in (("corpus", rows), ("queries", asked)):
        write_lines(directory / f"{name}.jsonl", lines)
    (directory / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels)
    return directory


def test_of_many_relevant_passages_the_best_ten_are_sure_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"q1\tp{row:02d}\t{2 if row % 2 else 1}" for row in range(18)]
    monkeypatch.setattr(probe_module, "_PASSAGES", 10)
    pool = Pool.load(write_judged(tmp_path / "c", "\n".join(lines) + "\n"), "dev")
    assert pool.grades.sum() == 9 * 2 + 1


def test_all_passages_of_a_judged_document_are_relevant(tmp_path: Path) -> None:
    pool = Pool.load(write_judged(tmp_path / "c", "q2\tp12\t2\nq2\td1\t1\nq1\td2\t0\n"), "dev")
    assert pool.queries == ["what q2"]
    graded = {text: grade for text, grade in zip(pool.passages, pool.grades[0].tolist(), strict=True) if grade}
    assert graded == {**{f"text {row}": 1.0 for row in range(10, 20)}, "text 12": 2.0}


# The whitened figure of a RetroMAE from scratch: 1.6 points lost at first, 8.3 gained in the end, then a plateau.
TURNING = [0.300, 0.295, 0.290, 0.286, 0.284, 0.287, 0.300, 0.318, 0.336, 0.352, 0.366, 0.375, 0.380, 0.383]
TURNED = [*TURNING, 0.383, 0.382, 0.381, 0.382, 0.380]


@pytest.mark.parametrize("patience", [1, 2, 3])
def test_a_probe_does_not_stop_before_the_turn(patience: int) -> None:
    assert not any(should_stop(TURNING[:count], 0.02, patience) for count in range(1, len(TURNING) + 1))


def test_a_probe_stops_when_it_has_risen_and_gains_no_more() -> None:
    stops = [should_stop(TURNED[:count], 0.02, 2) for count in range(1, len(TURNED) + 1)]
    assert stops.index(True) == 17, "the mean of probes 13 to 15 is the highest"
    assert not any(should_stop([0.3, *[0.25] * count], 0.02, 2) for count in range(30)), "it never rose"
    wavering = [0.3, *[0.315, 0.305] * 10]
    assert not any(should_stop(wavering[:count], 0.02, 2) for count in range(1, 21)), "it rose by less than the margin"


def run(directory: Path, name: str, collection: Path, method: str = "retromae", **changes: Any) -> PretrainingResult:
    """Train with a probe; options of the probe and the method are told from the Trainer's by their names."""
    own = {key: changes.pop(key) for key in [*changes] if key.startswith(("probe", "generator"))}
    options = tiny_options(directory, method, **{"probe": f"{collection}:test", "probe_steps": 5, **own})
    return pretrain(options, tiny_arguments(directory / name, **changes))


def losses(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was logged beside probes and times."""
    rows = [{key: value for key, value in row.items() if not any(part in key for part in TIMES)} for row in history]
    return [row for row in rows if set(row) - {"epoch", "step"}]


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("retromae", {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}),
        ("dupmae", {}),
        ("condenser", {}),
        ("cocondenser", {}),
        ("simlm", {"generator": dict(BACKBONE), "generator_weight": 0.2}),
    ],
)
def test_training_is_as_without_a_probe(
    tmp_path: Path, collection: Path, monkeypatch: pytest.MonkeyPatch, method: str, changes: dict[str, Any]
) -> None:
    """Although the encoder draws random numbers even when it is only looked at."""
    read = RetrievalProbe._vectors

    def drawing(self: RetrievalProbe, texts: Sequence[Tensor]) -> Tensor:
        assert not self.trainer.model.encoder.training
        torch.rand(3)
        return read(self, texts)

    monkeypatch.setattr(RetrievalProbe, "_vectors", drawing)
    plain = run(tmp_path, "plain", collection, method, logging_steps=2, probe=None, **changes)
    probed = run(tmp_path, "probed", collection, method, logging_steps=2, **changes)
    assert len(logged(probed.history, WHITENED)) == 4
    assert len(logged(plain.history, "loss")) == 6
    assert losses(probed.history) == losses(plain.history)
    assert same_weights(weights(probed.path), weights(plain.path))


def test_it_measures_the_start_every_few_steps_and_the_end(tmp_path: Path, collection: Path) -> None:
    """The last figures are those of the model that is saved, read text by text."""
    result = run(tmp_path, "out", collection)
    rows = [row for row in result.history if WHITENED in row]
    assert [row["step"] for row in rows] == [0, 5, 10, 12]
    assert {PLAIN, WHITENED, ERROR, SECONDS} <= set(rows[0])
    assert len({row[PLAIN] for row in rows}) > 1
    pool = Pool.load(collection, "test")
    encoder, tokenizer = AutoModel.from_pretrained(result.path).eval(), AutoTokenizer.from_pretrained(result.path)
    vectors = []
    for texts in (pool.queries, pool.passages):
        read = [tokenizer(text, truncation=True, max_length=32, return_tensors="pt") for text in texts]
        with torch.no_grad():
            vectors.append(torch.cat([encoder(**one).last_hidden_state[:, 0] for one in read]).double())
    expected = score_pool(*vectors, pool.grades)
    assert {name: rows[-1][name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert json.loads((result.path / "tokenizer.json").read_text())["truncation"] is None


def scripted(monkeypatch: pytest.MonkeyPatch, curve: dict[int, float], trainer: type[PreTrainer] = PreTrainer) -> None:
    """Let probes say what a curve says of their steps."""
    probes: list[RetrievalProbe] = []

    class Listening(RetrievalProbe):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            probes.append(self)

    def say(*_: Any) -> dict[str, float]:
        return {PLAIN: 0.1, WHITENED: curve[probes[-1].trainer.state.global_step], ERROR: 0.01}

    monkeypatch.setattr(pretrain_module, "PreTrainer", trainer)
    monkeypatch.setattr(pretrain_module, "RetrievalProbe", Listening)
    monkeypatch.setattr(probe_module, "score_pool", say)


@pytest.mark.parametrize(
    ("best", "curve"),
    [
        (8, {0: 0.3, 4: 0.5, 8: 0.6, 12: 0.4}),
        (4, {0: 0.3, 4: 0.5, 8: 0.5, 12: 0.4}),
        (0, {0: 0.3, 4: 0.2, 8: 0.1, 12: 0.2}),
        (12, {0: 0.3, 4: 0.2, 8: 0.5, 12: 0.6}),
    ],
)
def test_the_best_weights_are_kept_across_a_kill(
    tmp_path: Path, collection: Path, monkeypatch: pytest.MonkeyPatch, best: int, curve: dict[int, float]
) -> None:
    given = {"probe_steps": 4, "save_strategy": "steps"}
    scripted(monkeypatch, curve)
    plain = run(tmp_path, "plain", collection, save_steps=4, **given)
    assert not (plain.path / BEST).exists()
    scripted(monkeypatch, curve, Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "cut", collection, save_steps=3, probe_keep_best=True, **given)
    assert (tmp_path / "cut" / BEST).is_file()
    scripted(monkeypatch, curve)
    kept = run(tmp_path, "cut", collection, save_steps=3, probe_keep_best=True, **given)
    if best:
        assert same_weights(weights(kept.path), weights(plain.path / f"checkpoint-{best}"))
    else:
        start = run(tmp_path, "start", collection, max_steps=1, learning_rate=0.0, probe=None)
        assert same_weights(weights(kept.path), weights(start.path))
    assert logged(kept.history, WHITENED) == list(curve.values())
    assert not (kept.path / BEST).exists()
    assert f"weights are those after step {best}, where the probe was best." in (kept.path / "README.md").read_text()
    if best != 12:
        assert not same_weights(weights(kept.path), weights(plain.path))


def test_the_best_weights_are_not_taken_from_elsewhere(
    tmp_path: Path, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, "first", collection, probe_keep_best=True, save_strategy="steps", save_steps=6)
    resumed = {"probe_keep_best": True, "resume_from_checkpoint": str(tmp_path / "first" / "checkpoint-6")}
    with pytest.raises(InputError, match=r"does not hold the best weights before .*checkpoint-6"):
        run(tmp_path, "second", collection, **resumed)
    assert not (tmp_path / "second").exists()


def test_a_resumed_run_has_the_probes_of_an_undisturbed_one(
    tmp_path: Path, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"save_strategy": "steps", "save_steps": 3}
    whole = run(tmp_path, "whole", collection, **given)
    with monkeypatch.context() as patched:
        patched.setattr(pretrain_module, "PreTrainer", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, "cut", collection, **given)
    resumed = run(tmp_path, "cut", collection, **given)
    for name in (PLAIN, WHITENED, ERROR, "loss"):
        assert logged(resumed.history, name) == logged(whole.history, name)


STOPPING = dict(enumerate([0.3, 0.29, 0.28, 0.33, 0.40, 0.41, 0.40, 0.39, 0.38, 0.38, 0.38, 0.38, 0.38]))


@pytest.mark.parametrize("cut", [False, True])
def test_a_run_stops_where_the_probe_says_so(
    tmp_path: Path, collection: Path, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    """Smoothed, step 6 is best; after two more probes the run ends, also one that was killed in between."""

    class Killed(PreTrainer):
        def training_step(self, *given: Any, **named: Any) -> Any:
            if self.state.global_step == 7:
                raise KeyboardInterrupt
            return super().training_step(*given, **named)

    given = {"probe_steps": 1, "probe_patience": 2, "save_strategy": "steps", "save_steps": 2}
    if cut:
        scripted(monkeypatch, STOPPING, Killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, "out", collection, **given)
    scripted(monkeypatch, STOPPING)
    result = run(tmp_path, "out", collection, **given)
    assert logged(result.history, WHITENED) == [STOPPING[step] for step in range(9)]
    manifest = manifest_of(result.path)
    assert manifest.facts["steps"] == 8
    assert len(logged(result.history, "loss")) == 8


def test_a_run_whose_probe_never_rose_goes_on(
    tmp_path: Path, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, {step: 0.3 - step / 100 for step in range(13)})
    result = run(tmp_path, "out", collection, probe_steps=1, probe_patience=1)
    assert len(logged(result.history, "loss")) == 12


def test_what_the_probe_is_made_from_is_a_part_of_the_run(tmp_path: Path, collection: Path) -> None:
    collection = Path(shutil.copytree(collection, tmp_path / "collection"))
    shutil.copy(collection / "qrels" / "test.tsv", collection / "qrels" / "dev.tsv")
    first = run(tmp_path, "out", collection, max_steps=1)
    assert run(tmp_path, "out", collection, max_steps=1) == PretrainingResult(first.path, first.history, done=True)
    other = write_dataset(tmp_path / "other", passages=30)
    for changes, sentence in (
        ({"probe": None}, "another probe"),
        ({"probe": f"{other}:test"}, "another probe"),
        ({"probe": str(collection)}, r"another probe_split \(test, now dev\)"),
        ({"probe_steps": 3}, r"another probe_steps \(5, now 3\)"),
        ({"probe_keep_best": True}, "another probe_keep_best"),
    ):
        with pytest.raises(InputError, match=sentence):
            run(tmp_path, "out", collection, max_steps=1, **changes)


@pytest.mark.parametrize(("few", "told"), [(1, False), (30, True)])
def test_too_few_queries_are_told_of(
    tmp_path: Path, collection: Path, monkeypatch: pytest.MonkeyPatch, few: int, told: bool
) -> None:
    said: list[str] = []
    monkeypatch.setattr(probe_module.logger, "warning", said.append)
    monkeypatch.setattr(probe_module, "FEW", few)
    pool = load_pool(tiny_options(tmp_path, probe=f"{collection}:test"))
    assert pool is not None
    sentence = f"The probe asks {len(pool.queries)} queries of {collection}:test, too few to tell checkpoints apart"
    assert [sentence in one for one in said] == [True] * told


def untrained(directory: Path, **changes: Any) -> Any:
    """Stand for a trainer as far as a probe needs one to begin."""
    given = {"is_fsdp_enabled": False, "is_deepspeed_enabled": False, "processing_class": tiny_tokenizer(), **changes}
    return SimpleNamespace(args=tiny_arguments(directory), **given)


def test_an_encoder_in_parts_is_not_probed(tmp_path: Path, collection: Path) -> None:
    with pytest.raises(InputError, match="leave out --probe"):
        RetrievalProbe(untrained(tmp_path, is_fsdp_enabled=True), Pool.load(collection, "test"), tiny_options(tmp_path))


def test_texts_are_cut_at_the_longest_length(tmp_path: Path, collection: Path) -> None:
    trainer = untrained(tmp_path)
    probe = RetrievalProbe(trainer, Pool.load(collection, "test"), tiny_options(tmp_path, max_length=9))
    assert max(map(len, probe.passages)) == 9
    assert max(map(len, trainer.processing_class(["abcd " * 9])["input_ids"])) == 38, "the trainer's own cuts nothing"


PROBED = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from tiny_pretraining import tiny_arguments, tiny_options
from hf_dense.pretraining.pretrain import pretrain

directory, probe = Path(sys.argv[1]), sys.argv[2]
given = {"probe": f"{probe}:test", "probe_steps": 5, "probe_keep_best": True} if probe else {}
options = tiny_options(directory, "cocondenser", **given)
pretrain(options, tiny_arguments(directory / ("probed" if probe else "plain"), per_device_train_batch_size=4))
"""


@pytest.mark.slow
def test_two_processes_train_as_without_a_probe(tmp_path: Path, collection: Path) -> None:
    tiny_options(tmp_path)  # writes the corpus
    script, here = tmp_path / "probed.py", Path(__file__).parent
    script.write_text(PROBED)
    for probe in ("", collection):
        done = launch(script, tmp_path, probe, here, here.parent)
        assert done.returncode == 0, done.stderr
    states = [json.loads((tmp_path / name / "trainer_state.json").read_text()) for name in ("plain", "probed")]
    plain, probed = (state["log_history"] for state in states)
    assert logged(probed, "loss") == logged(plain, "loss")
    assert [row["step"] for row in probed if WHITENED in row] == [0, 5, 10, 12]
