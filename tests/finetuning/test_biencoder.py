from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from tiny_retriever import random_words, write_encoder, write_retriever

from hf_dense import InputError
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune, load_history


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_retriever(tmp_path_factory.mktemp("retriever") / "dot")


@pytest.fixture(scope="module")
def pairs() -> Dataset:
    words = random_words(96)
    return Dataset.from_dict(
        {
            "query": words,
            "passage": [f"{word} {other}" for word, other in zip(words, reversed(words), strict=True)],
            "query_id": [str(row) for row in range(len(words))],
        }
    )


def arguments(output_dir: Path, **changes: Any) -> BiencoderTrainingArguments:
    options = {
        "per_device_train_batch_size": 16,
        "per_device_eval_batch_size": 16,
        "learning_rate": 2e-3,
        "max_steps": 6,
        "logging_steps": 1,
        "seed": 5,
        "use_cpu": True,
        "disable_tqdm": True,
        **changes,
    }
    return BiencoderTrainingArguments(output_dir=str(output_dir), **options)


def weights(model: Path) -> dict[str, torch.Tensor]:
    return load_file(model / "model.safetensors")


def test_loss_falls_and_history_is_kept(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    options = arguments(tmp_path / "run", max_steps=40, eval_strategy="steps", eval_steps=20)
    model = finetune(retriever, pairs, options, dev_pairs=pairs.select(range(32)))

    assert model == tmp_path / "run" / "model"
    history = load_history(tmp_path / "run")
    losses = [entry["loss"] for entry in history if "loss" in entry]
    assert len(losses) == 40
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    assert [entry["step"] for entry in history if "eval_loss" in entry] == [20, 40]
    assert SentenceTransformer(str(model)).similarity_fn_name == "dot"


def test_equal_seeds_give_equal_weights_and_other_seeds_do_not(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    first, same, other = (
        weights(finetune(retriever, pairs, arguments(tmp_path / name, seed=seed)))
        for name, seed in (("first", 5), ("same", 5), ("other", 6))
    )
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(
    retriever: Path, pairs: Dataset, tmp_path: Path
) -> None:
    options = {"max_steps": 10, "save_strategy": "steps", "save_steps": 4}
    whole = finetune(retriever, pairs, arguments(tmp_path / "whole", **options))

    (tmp_path / "killed").mkdir()
    shutil.copytree(tmp_path / "whole" / "checkpoint-4", tmp_path / "killed" / "checkpoint-4")
    resumed = finetune(retriever, pairs, arguments(tmp_path / "killed", resume_from_checkpoint="true", **options))

    expected, found = weights(whole), weights(resumed)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert [entry["step"] for entry in load_history(tmp_path / "killed") if "loss" in entry] == list(range(1, 11))


@pytest.mark.parametrize(("similarity", "temperature"), [("dot", 2.0), ("cosine", 0.05)])
def test_first_loss_is_the_softmax_over_the_batch(
    similarity: str, temperature: float, pairs: Dataset, tmp_path: Path
) -> None:
    model = write_retriever(tmp_path / "model", similarity=similarity)
    batch = pairs.select(range(16))
    options = arguments(
        tmp_path / "run", max_steps=1, eval_strategy="steps", eval_steps=1, learning_rate=0.0, temperature=temperature
    )
    finetune(model, batch, options, dev_pairs=batch)

    loaded = SentenceTransformer(str(model))
    queries = loaded.encode(batch["query"][:], convert_to_tensor=True)
    passages = loaded.encode(batch["passage"][:], convert_to_tensor=True)
    scores = loaded.similarity(queries, passages) / temperature
    expected = torch.nn.functional.cross_entropy(scores, torch.arange(16)).item()
    found = next(entry["eval_loss"] for entry in load_history(tmp_path / "run") if "eval_loss" in entry)
    assert found == pytest.approx(expected, rel=1e-4)


def test_two_positives_of_a_query_never_meet_in_a_batch(retriever: Path, tmp_path: Path) -> None:
    sampler = arguments(tmp_path).batch_sampler
    assert sampler == "no_duplicates"
    words = random_words(64)
    doubled = Dataset.from_dict({"query": words[:32] * 2, "passage": words})
    for batch in NoDuplicatesBatchSampler(doubled, 16, drop_last=True, generator=torch.Generator()):
        assert len({doubled[row]["query"] for row in batch}) == 16


def test_the_card_quotes_no_training_text(retriever: Path, tmp_path: Path) -> None:
    words = ["secretword" + letter for letter in "abcdefghijklmnop"]
    model = finetune(retriever, Dataset.from_dict({"query": words, "passage": words[::-1]}), arguments(tmp_path))
    assert "secretword" not in (model / "README.md").read_text()
    assert not [name for name in weights(model) if "pooler" in name]


@pytest.mark.parametrize(
    ("changes", "columns", "message"),
    [
        ({}, {"passage": "text"}, "has no column 'passage'"),
        ({"per_device_train_batch_size": 97}, {}, "fewer than one batch of 97"),
        ({"resume_from_checkpoint": "true"}, {}, "There is no checkpoint in"),
        ({"resume_from_checkpoint": "nowhere"}, {}, "There is no checkpoint directory nowhere"),
    ],
)
def test_bad_input_is_one_sentence(
    changes: dict, columns: dict, message: str, retriever: Path, pairs: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        finetune(retriever, pairs.rename_columns(columns), arguments(tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


def test_a_bare_encoder_is_refused(pairs: Dataset, tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")
    with pytest.raises(InputError, match="export_sentence_transformer"):
        finetune(encoder, pairs, arguments(tmp_path / "run"))


def test_temperature_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="temperature is 0"):
        arguments(tmp_path, temperature=0.0)
