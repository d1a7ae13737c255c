"""Fine-tuning on lists: the losses that were asked for, exact chunks, other negatives in every epoch, exact resume."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from test_biencoder import arguments, killed_after, killed_at_the_end, weights
from tiny_retriever import random_words, write_retriever

from hf_dense.errors import InputError
from hf_dense.finetuning import biencoder
from hf_dense.finetuning.batches import ListCollator
from hf_dense.finetuning.biencoder import ListLoss, finetune
from hf_dense.finetuning.lists import Entry, PassageLists
from hf_dense.finetuning.losses import CONTRASTS, contrastive_loss, distillation_loss
from hf_dense.hub.lineage import lineage_of
from hf_dense.storage.checkpoints import load_history

EARLY = {  # ends before its last step: after the first ones it gets worse
    "max_steps": 60,
    "eval_strategy": "steps",
    "eval_steps": 5,
    "save_strategy": "steps",
    "save_steps": 5,
    "load_best_model_at_end": True,
    "metric_for_best_model": "validation_cosine_mrr@10",
    "patience": 2,
    "learning_rate": 0.2,
}


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_retriever(tmp_path_factory.mktemp("retriever") / "cosine", similarity="cosine")


def lists(passages: int = 3, size: int = 48, **changes: Any) -> PassageLists:
    """Queries whose positive holds their word; negatives are those of the next ones."""
    words = random_words(size)
    corpus = Dataset.from_dict(
        {"id": [f"p{at}" for at in range(size)], "title": [""] * size, "text": [f"{word} {word}" for word in words]}
    )
    entries = []
    for at, word in enumerate(words):
        negatives = tuple(f"p{(at + step) % size}" for step in range(1, 7))
        scores = {f"p{at}": 3.0, **{name: -float(rank) for rank, name in enumerate(negatives)}}
        entries.append(Entry(str(at), word, (f"p{at}",), negatives, scores))
    return PassageLists(entries, corpus, passages, seed=0, **changes)


def loss_of(model: SentenceTransformer, batch: dict[str, Any], tmp_path: Path, **changes: Any) -> torch.Tensor:
    features = [
        {key.removeprefix(prefix): value for key, value in batch.items() if key.startswith(prefix)}
        for prefix in ("query_", "passage_")
    ]
    found = ListLoss(model, arguments(tmp_path, temperature=0.1, **changes))(features, batch.get("label"))
    return torch.stack(list(found.values())).sum() if isinstance(found, dict) else found


def batch_of(model: SentenceTransformer, made: PassageLists, rows: int = 6) -> dict[str, Any]:
    numbered = made.dataset(numbered=True)
    return ListCollator(preprocess_fn=model.preprocess)([numbered[row] for row in range(rows)])


def relevant_of(made: PassageLists, rows: int) -> torch.Tensor:
    """Which passages of the first rows are positives of each of their queries."""
    drawn = [name for row in range(rows) for name in made.draw(row)]
    return torch.tensor([[name in entry.positives for name in drawn] for entry in made.entries[:rows]])


def test_a_positive_that_is_a_negative_of_another_list_is_none_of_its_own_query(
    retriever: Path, tmp_path: Path
) -> None:
    """Both lists are of the same two passages, so that with in-batch negatives each query has one."""
    made = lists(passages=2)
    crossed = [replace(made.entries[at], negatives=(f"p{1 - at}",), scores=None) for at in (0, 1)]
    made.replace(crossed)
    model = SentenceTransformer(str(retriever)).eval()
    assert relevant_of(made, rows=2).tolist() == [[True, False, False, True], [False, True, True, False]]
    queries = model.encode([entry.query for entry in crossed], convert_to_tensor=True, normalize_embeddings=True)
    passages = model.encode(made.texts(["p0", "p1"]), convert_to_tensor=True, normalize_embeddings=True)
    own, other = (10 * (queries * texts).sum(dim=1) for texts in (passages, passages.flip(0)))
    expected = (torch.stack([own, other, other]).logsumexp(dim=0) - own).mean()  # the other passage stands there twice
    for chunk in (None, 1, 3):
        found = loss_of(model, batch_of(model, made, rows=2), tmp_path, chunk=chunk)
        assert found.item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("contrast", CONTRASTS)
@pytest.mark.parametrize("distillation", ["none", "kl", "margin_mse"])
def test_the_loss_is_that_of_the_encoded_texts(
    retriever: Path, tmp_path: Path, contrast: str, distillation: str
) -> None:
    model, made = SentenceTransformer(str(retriever)).eval(), lists(scored=True)
    found = loss_of(model, batch_of(model, made), tmp_path, contrast=contrast, distillation=distillation)
    rows = [made.dataset()[row] for row in range(6)]
    queries = model.encode([row["query"] for row in rows], convert_to_tensor=True, normalize_embeddings=True)
    passages = torch.stack(
        [model.encode(row["passages"], convert_to_tensor=True, normalize_embeddings=True) for row in rows]
    )
    expected = contrastive_loss(contrast, queries, passages, 10.0, relevant_of(made, rows=6))
    if distillation != "none":
        scores = 10 * torch.einsum("bd,bnd->bn", queries, passages)
        teacher = torch.tensor([row["label"] for row in rows])
        expected = distillation_loss(distillation, scores, teacher) + 0.2 * expected
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_chunks_give_the_gradients_of_the_whole_batch(retriever: Path, tmp_path: Path, chunk: int) -> None:
    made, gradients = lists(), []
    for size in (None, chunk):
        model = SentenceTransformer(str(retriever)).eval()
        loss = loss_of(model, batch_of(model, made), tmp_path, chunk=size)
        loss.backward()
        gradients.append((loss.item(), [part.grad.clone() for part in model.parameters() if part.grad is not None]))
    (whole, expected), (cut, found) = gradients
    assert cut == pytest.approx(whole, rel=1e-6)
    assert len(found) == len(expected) > 0
    for first, second in zip(found, expected, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_loss_falls_and_both_parts_are_logged(retriever: Path, tmp_path: Path) -> None:
    options = arguments(tmp_path / "run", max_steps=60, temperature=0.1, distillation="kl", contrast="simlm")
    finetune(retriever, lists(scored=True), options)
    history = [row for row in load_history(tmp_path / "run") if "loss" in row]
    assert {"distillation_loss", "contrast_loss"} <= history[0].keys()
    assert sum(row["loss"] for row in history[-5:]) < 0.8 * sum(row["loss"] for row in history[:5])


@pytest.mark.parametrize("kill", [4, *(pytest.param(kill, marks=pytest.mark.slow) for kill in (2, 7))])
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(
    retriever: Path, tmp_path: Path, kill: int
) -> None:
    """Three steps are an epoch: before its end, past it, and in the third."""
    options = {"max_steps": 9, "save_strategy": "steps", "save_steps": 1}
    whole = finetune(retriever, lists(), arguments(tmp_path / "whole", **options))
    with killed_after(kill):
        finetune(retriever, lists(), arguments(tmp_path / "killed", **options))
    resumed = finetune(retriever, lists(), arguments(tmp_path / "killed", **options))
    expected, found = weights(whole), weights(resumed)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_every_epoch_draws_other_negatives(retriever: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, epochs = lists(), list[int]()
    monkeypatch.setattr(PassageLists, "draw", lambda self, row: (epochs.append(self.epoch), ["p0", "p1", "p2"])[1])
    finetune(retriever, made, arguments(tmp_path / "run", max_steps=9))
    assert epochs == sorted(epochs)
    assert set(epochs) == {0, 1, 2}


def search_of(made: PassageLists, **options: Any) -> InformationRetrievalEvaluator:
    queries = {entry.id: entry.query for entry in made.entries}
    corpus = dict(zip(made.ids, made.corpus["text"], strict=True))
    relevant = {entry.id: set(entry.positives) for entry in made.entries}
    return InformationRetrievalEvaluator(queries, corpus, relevant, mrr_at_k=[10], name="validation", **options)


def test_other_lists_passages_or_evaluations_are_refused(retriever: Path, tmp_path: Path) -> None:
    """The number of lists is the same every time."""
    run, made = tmp_path / "run", lists()
    options = {"eval_strategy": "steps", "eval_steps": 3}
    evaluator = search_of(made)
    model = finetune(retriever, made, arguments(run, **options), evaluator=evaluator)
    assert finetune(retriever, lists(), arguments(run, **options), evaluator=evaluator) == model, "used, it is the same"
    first = made.entries[0]
    for entry in (
        replace(first, query="other"),
        replace(first, negatives=first.negatives[::-1]),
        replace(first, positives=("p0", "p9"), scores={**(first.scores or {}), "p9": 1.0}),
        replace(first, scores={**(first.scores or {}), "p0": 4.0}),
    ):
        other = lists()
        other.replace([entry, *other.entries[1:]])
        with pytest.raises(InputError, match="other lists"):
            finetune(retriever, other, arguments(run, **options), evaluator=evaluator)
    texts = made.corpus.map(lambda row: {"text": row["text"].replace("a", "b")})
    for changed, evaluations, difference in [
        (PassageLists(made.entries, texts, 3, seed=0), evaluator, "collection"),
        (PassageLists(made.entries, made.corpus, 2, seed=0), evaluator, "passages"),
        (PassageLists(made.entries, made.corpus, 3, seed=1), evaluator, "seed of the lists"),
        (lists(), search_of(lists(size=40)), "evaluator"),
        (lists(), search_of(made, truncate_dim=8), "evaluator"),
    ]:
        with pytest.raises(InputError, match=f"was made from (an)?other {difference}"):
            finetune(retriever, changed, arguments(run, **options), evaluator=evaluations)


@pytest.mark.parametrize("kill", [7, *(pytest.param(kill, marks=pytest.mark.slow) for kill in (None, 12))])
def test_a_training_that_ends_early_is_the_same_after_a_kill(retriever: Path, tmp_path: Path, kill: int | None) -> None:
    models = []
    for name in ("whole", "killed"):
        if name == "killed":
            with killed_at_the_end() if kill is None else killed_after(kill):
                finetune(retriever, lists(), arguments(tmp_path / name, **EARLY), evaluator=search_of(lists()))
        models.append(finetune(retriever, lists(), arguments(tmp_path / name, **EARLY), evaluator=search_of(lists())))
    expected, found = map(weights, models)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    first, second = (
        [row["step"] for row in load_history(tmp_path / name) if "eval_validation_cosine_mrr@10" in row]
        for name in ("whole", "killed")
    )
    assert first == second
    assert first[-1] < 60


def test_the_best_checkpoint_is_kept_and_training_ends_early(retriever: Path, tmp_path: Path) -> None:
    made = lists()
    evaluator = search_of(made)
    model = finetune(retriever, made, arguments(tmp_path / "run", **EARLY), evaluator=evaluator)
    history = load_history(tmp_path / "run")
    scores = [row["eval_validation_cosine_mrr@10"] for row in history if "eval_validation_cosine_mrr@10" in row]
    assert len(scores) < 12
    kept = evaluator(SentenceTransformer(str(model)))["validation_cosine_mrr@10"]
    assert kept == pytest.approx(max(scores), abs=1e-6)
    best, ended = 5 * (1 + scores.index(max(scores))), history[-1]["step"]
    assert best < ended
    assert (
        f"Its weights are those after step {best} of {ended}, where validation_cosine_mrr@10 was best."
        in (model / "README.md").read_text()
    )
    assert lineage_of(model)[-1]["steps"] == best


def test_no_weights_are_reported_as_missing_where_the_best_checkpoint_is_loaded(
    retriever: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    made = lists()
    finetune(retriever, made, arguments(tmp_path / "run", **EARLY | {"max_steps": 10}), evaluator=search_of(made))
    assert "MISSING" not in caplog.text


def test_a_loss_that_is_no_number_ends_the_training(
    retriever: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(biencoder, "contrastive_loss", lambda *given: torch.tensor(math.nan, requires_grad=True))
    with pytest.raises(InputError, match="The loss is nan at step 1; lower learning_rate"):
        finetune(retriever, lists(), arguments(tmp_path / "run"))
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize(
    ("made", "changes", "sentence"),
    [
        ({"passages": 1}, {"contrast": "hinge"}, "contrast 'hinge' compares a query's own passages"),
        ({}, {"distillation": "kl"}, "distillation 'kl' needs a teacher's scores"),
        ({"size": 8}, {}, "There are 8 lists, fewer than one batch of 16"),
        ({}, {"dataloader_num_workers": 1}, "set dataloader_num_workers to 0"),
        ({}, {"dataloader_drop_last": False}, "only whole batches are trained on; leave dataloader_drop_last out"),
    ],
)
def test_losses_that_the_lists_have_nothing_for(
    retriever: Path, tmp_path: Path, made: dict[str, Any], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        finetune(retriever, lists(**made), arguments(tmp_path / "run", **changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"contrast": "triplet"}, "contrast is 'triplet'; allowed: in_batch, simlm_paper, simlm, own, hinge"),
        ({"distillation": "mse"}, "distillation is 'mse'; allowed: none, kl, margin_mse"),
        ({"chunk": 0}, "chunk is 0"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"contrast_weight": -1.0}, "contrast_weight is -1.0; it is a weight, 0 or more"),
        ({"patience": 0, "eval_strategy": "steps"}, "patience is 0; at least one evaluation is waited for"),
    ],
)
def test_bad_options(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        arguments(tmp_path, **changes)
