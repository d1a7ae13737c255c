from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.data_loader import prepare_data_loader
from datasets import Dataset
from manifests import manifest_of
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from tiny_retriever import (
    random_words,
    tiny_tokenizer,
    weights,
    write_checkpoint,
    write_encoder,
    write_retriever,
)
from torch.utils.data import DataLoader

from hf_dense import InputError, RetroMAEForPreTraining
from hf_dense.finetuning import training
from hf_dense.finetuning.batches import SharedBatches
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.finetuning.lists import Entry, PassageLists
from hf_dense.finetuning.training import CarefulTraining
from hf_dense.hub import precision
from hf_dense.hub.loading import load_retriever
from hf_dense.storage.checkpoints import load_history
from hf_dense.storage.output import Output


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


def test_memory_is_pinned_only_for_a_gpu(
    retriever: Path, pairs: Dataset, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """torch warns of it where there is none, in every run."""
    finetune(retriever, pairs, arguments(tmp_path / "run", max_steps=1, use_cpu=False))
    assert not [found for found in recwarn if "pin_memory" in str(found.message)]


@pytest.mark.parametrize("kept", [torch.float16, torch.bfloat16])
def test_a_model_that_is_kept_in_16_bits_is_trained_in_32(
    kept: torch.dtype, retriever: Path, pairs: Dataset, tmp_path: Path
) -> None:
    half = SentenceTransformer(str(retriever), device="cpu").to(kept)
    half.save_pretrained(str(tmp_path / "half"))
    half.float().save_pretrained(str(tmp_path / "whole"))
    short, whole = (finetune(tmp_path / name, pairs, arguments(tmp_path / f"of-{name}")) for name in ("half", "whole"))
    assert weights(short).keys() == weights(whole).keys()
    assert all(torch.equal(tensor, weights(whole)[name]) for name, tensor in weights(short).items())
    assert not torch.equal(*(weights(model)["embeddings.word_embeddings.weight"] for model in (short, retriever)))


def test_equal_seeds_give_equal_weights_and_other_seeds_do_not(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    first, same, other = (
        weights(finetune(retriever, pairs, arguments(tmp_path / name, seed=seed)))
        for name, seed in (("first", 5), ("same", 5), ("other", 6))
    )
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def killed(*given: Any, **named: Any) -> Any:
    raise KeyboardInterrupt


@contextmanager
def killed_after(steps: int, trainer: type = CarefulTraining) -> Iterator[None]:
    """Trainings die when they have taken so many steps."""
    step, left = trainer.training_step, iter(range(steps))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            trainer, "training_step", lambda *given: (step if next(left, None) is not None else killed)(*given)
        )
        with pytest.raises(KeyboardInterrupt):
            yield


@contextmanager
def killed_at_the_end() -> Iterator[None]:
    """Trainings die when they are done and the model is to be written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "write_model_card", killed)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.parametrize("kill", [2, *(pytest.param(kill, marks=pytest.mark.slow) for kill in (5, None))])
def test_a_killed_run_goes_on_and_ends_with_the_weights_of_an_uninterrupted_one(
    retriever: Path, pairs: Dataset, tmp_path: Path, kill: int | None
) -> None:
    options = {"max_steps": 10, "save_strategy": "steps", "save_steps": 4}
    whole = finetune(retriever, pairs, arguments(tmp_path / "whole", **options))

    with killed_at_the_end() if kill is None else killed_after(kill):
        finetune(retriever, pairs, arguments(tmp_path / "killed", **options))
    assert not (tmp_path / "killed" / "model").exists()
    resumed = finetune(retriever, pairs, arguments(tmp_path / "killed", **options))

    expected, found = weights(whole), weights(resumed)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert [entry["step"] for entry in load_history(tmp_path / "killed") if "loss" in entry] == list(range(1, 11))
    assert not list(tmp_path.glob("**/*.partial"))


def test_steps_between_checkpoints_are_enough_to_have_some(tmp_path: Path) -> None:
    strategies = {
        steps: arguments(tmp_path, **({} if steps is None else {"save_steps": steps})).save_strategy
        for steps in (None, 3, 500)
    }
    assert strategies == {None: "no", 3: "steps", 500: "steps"}
    assert arguments(tmp_path).save_steps == 500
    assert arguments(tmp_path, save_strategy="no", save_steps=3).save_strategy == "no"


def test_weights_that_fsdp_would_cut_up_are_refused(
    retriever: Path, pairs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = arguments(tmp_path / "out", max_steps=2)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(InputError, match="start with a DDP configuration"):
        finetune(retriever, pairs, chosen)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor smooths none of the losses here"),
        ({"neftune_noise_alpha": 5.0}, "neftune_noise_alpha is of single texts"),
        ({"include_num_input_tokens_seen": "all"}, "include_num_input_tokens_seen counts none of the texts here"),
        ({"ignore_data_skip": True}, "ignore_data_skip would let a run that goes on read other batches"),
        ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy does nothing in fine-tuning"),
        ({"data_seed": 0}, "data_seed does nothing in fine-tuning, which draws by seed"),
        ({"router_mapping": {"query": "document"}}, "router_mapping does nothing in fine-tuning"),
        ({"multi_dataset_batch_sampler": "round_robin"}, "multi_dataset_batch_sampler does nothing in fine-tuning"),
        ({"batch_sampler": "group_by_label"}, "batch_sampler group_by_label puts rows together by labels"),
        ({"prompts": {"querry": "ask "}}, "prompts has 'querry': 'ask '; give the texts before each 'query' and"),
        ({"prompts": {"query": None}}, "prompts has 'query': None"),
        ({"prompts": {"passage": "a", "document": "b"}}, "prompts has 'passage' and 'document', which are the same"),
    ],
)
def test_options_of_the_trainer_that_do_nothing_here_are_refused(
    retriever: Path, pairs: Dataset, tmp_path: Path, given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        finetune(retriever, pairs, arguments(tmp_path / "out", max_steps=2, **given))
    assert not (tmp_path / "out").exists()


def test_a_model_of_which_no_weight_is_trained_is_refused(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    frozen = SentenceTransformer(str(retriever)).requires_grad_(False)
    with pytest.raises(InputError, match="No weight of a loaded model is one that is trained"):
        finetune(frozen, pairs, arguments(tmp_path / "out", max_steps=2))
    assert not (tmp_path / "out").exists()


def test_a_killed_run_goes_on_in_the_precision_that_it_began_with(
    retriever: Path, pairs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3}
    plain = weights(finetune(retriever, pairs, arguments(tmp_path / "plain", precision="fp32", **options)))
    monkeypatch.setattr(precision, "is_faster_in_bf16", lambda device: True)
    monkeypatch.setattr(precision, "_SMALL", 0)
    whole = finetune(retriever, pairs, arguments(tmp_path / "whole", **options))
    with killed_after(4):
        finetune(retriever, pairs, arguments(tmp_path / "killed", **options))
    monkeypatch.setattr(precision, "is_faster_in_bf16", lambda device: False)
    expected = weights(whole)
    resumed = weights(finetune(retriever, pairs, arguments(tmp_path / "killed", **options)))
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)
    assert not all(torch.equal(expected[name], plain[name]) for name in expected)
    manifest = manifest_of(whole)
    assert (manifest.made_from["precision"], manifest.made_from["bf16"]) == ("bf16", True)
    with pytest.raises(InputError, match=r"another bf16 \(True, now False\)"):
        finetune(retriever, pairs, arguments(tmp_path / "whole", precision="fp32", **options))


def test_the_time_of_a_killed_run_counts_until_its_last_checkpoint(
    retriever: Path, pairs: Dataset, tmp_path: Path
) -> None:
    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 4}
    with killed_after(5):
        finetune(retriever, pairs, arguments(tmp_path / "run", **options))
    before = manifest_of(tmp_path / "run")
    assert before.facts["seconds"] > 0
    replace(before, facts={**before.facts, "seconds": 1000.0}).save(tmp_path / "run")
    finetune(retriever, pairs, arguments(tmp_path / "run", **options))
    after = manifest_of(tmp_path / "run")
    assert 1000 < after.facts["seconds"] < 1100
    with killed_after(3):  # before any checkpoint: what is begun anew is counted anew
        finetune(retriever, pairs, arguments(tmp_path / "other", **options))
    finetune(retriever, pairs, arguments(tmp_path / "other", **options))
    anew = manifest_of(tmp_path / "other")
    assert 0 < anew.facts["seconds"] < 100


def test_arguments_of_the_caller_stay_as_they_are(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    given = arguments(tmp_path / "run")
    before = given.to_dict()
    assert finetune(retriever, pairs, given) == finetune(retriever, pairs, given)
    assert given.to_dict() == before


def test_the_same_again_is_done_and_something_else_refused(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = finetune(retriever, pairs, arguments(run))
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert finetune(retriever, pairs, arguments(run, logging_steps=2, per_device_eval_batch_size=4)) == model
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    words = pairs.map(lambda row: {"passage": row["passage"].upper()})
    other = write_retriever(tmp_path / "other", seed=1)
    for start, data, changes, difference in [
        (retriever, pairs, {"learning_rate": 1e-3}, r"learning_rate \(0.002, now 0.001\)"),
        (retriever, pairs, {"seed": 6}, "seed"),
        (retriever, pairs, {"temperature": 2.0}, "temperature"),
        (other, pairs, {}, "model"),
        (retriever, words, {}, "pairs"),
        (retriever, pairs.select(range(95)), {}, "pairs"),
    ]:
        with pytest.raises(InputError, match=f"was made from (an)?other {difference}.*--overwrite"):
            finetune(start, data, arguments(run, **changes))
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    expected = weights(finetune(retriever, pairs, arguments(tmp_path / "anew", seed=6)))
    found = weights(finetune(retriever, pairs, arguments(run, seed=6, overwrite=True)))
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_model_tells_what_it_was_made_from(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    model = finetune(retriever, pairs, arguments(tmp_path / "run"), output=Output(tmp_path / "run", command="me"))
    manifest = manifest_of(model)
    assert (manifest.kind, manifest.sources["model"], manifest.command) == ("retriever", str(retriever), "me")
    assert manifest.sources["pairs"] == "given from Python"
    assert (manifest.made_from["learning_rate"], manifest.facts["steps"]) == (2e-3, 6)
    card = (model / "README.md").read_text()
    assert "learning_rate" in card
    assert f"It reads at most {load_retriever(model).max_seq_length} tokens of a text; what follows is cut off." in card


def test_a_training_without_its_model_is_not_done(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 3}
    model = finetune(retriever, pairs, arguments(tmp_path / "run", **options))
    for checkpoint in (tmp_path / "run").glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    expected, before = weights(model), (model / "model.safetensors").stat().st_mtime_ns
    finetune(retriever, pairs, arguments(tmp_path / "run", **options))
    assert (model / "model.safetensors").stat().st_mtime_ns == before
    (model / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"model/model\.safetensors is gone, although the training is complete"):
        finetune(retriever, pairs, arguments(tmp_path / "run", **options))
    finetune(retriever, pairs, arguments(tmp_path / "run", overwrite=True, **options))
    assert all(torch.equal(expected[name], found) for name, found in weights(model).items())
    shutil.rmtree(model)
    with pytest.raises(InputError, match="is gone, although the training is complete"):
        finetune(retriever, pairs, arguments(tmp_path / "run", **options))


def test_a_foreign_directory_is_not_touched(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoint-4").mkdir(parents=True)
    (tmp_path / "run" / "checkpoint-4" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="was not written by hf_dense"):
        finetune(retriever, pairs, arguments(tmp_path / "run", overwrite=True))
    with pytest.raises(InputError, match=r"would replace it"):
        finetune(retriever, pairs, arguments(retriever, overwrite=True))
    assert (tmp_path / "run" / "checkpoint-4" / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("similarity", "given", "temperature"),
    [("dot", 2.0, 2.0), ("cosine", 0.2, 0.2), ("dot", None, 1.0), ("cosine", None, 0.05)],
)
def test_first_loss_is_the_softmax_over_the_batch(
    similarity: str, given: float | None, temperature: float, pairs: Dataset, tmp_path: Path
) -> None:
    model = write_retriever(tmp_path / "model", similarity=similarity)
    batch = pairs.select(range(16))
    options = arguments(
        tmp_path / "run", max_steps=1, eval_strategy="steps", eval_steps=1, learning_rate=0.0, temperature=given
    )
    finetune(model, batch, options, dev_pairs=batch)

    loaded = SentenceTransformer(str(model))
    queries = loaded.encode(batch["query"][:], convert_to_tensor=True)
    passages = loaded.encode(batch["passage"][:], convert_to_tensor=True)
    scores = loaded.similarity(queries, passages) / temperature
    expected = torch.nn.functional.cross_entropy(scores, torch.arange(16)).item()
    found = next(entry["eval_loss"] for entry in load_history(tmp_path / "run") if "eval_loss" in entry)
    assert found == pytest.approx(expected, rel=1e-4)
    manifest = manifest_of(tmp_path / "run" / "model")
    assert manifest.made_from["temperature"] == temperature


def test_what_is_relevant_for_a_query_in_another_pair_is_none_of_its_negatives(
    retriever: Path, pairs: Dataset, tmp_path: Path
) -> None:
    batch, loaded = pairs.select(range(16)), SentenceTransformer(str(retriever))
    also = {"query": pairs["query"][0].upper(), "passage": pairs["passage"][1]}
    both = Dataset.from_list([*pairs.select_columns(["query", "passage"]), also])
    options = arguments(tmp_path / "run", max_steps=1, eval_strategy="steps", eval_steps=1, learning_rate=0.0)
    finetune(retriever, both, options, dev_pairs=batch)
    queries, passages = (loaded.encode(batch[name][:], convert_to_tensor=True) for name in ("query", "passage"))
    scores = loaded.similarity(queries, passages)
    scores[0, 1] = -math.inf
    expected = torch.nn.functional.cross_entropy(scores, torch.arange(16)).item()
    found = next(entry["eval_loss"] for entry in load_history(tmp_path / "run") if "eval_loss" in entry)
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"query": "ask ", "passage": "read "}, {"query": "ask ", "document": "read "}),
        ({"document": "read "}, {"query": "own ", "document": "read "}),
        ("both ", {"query": "both ", "document": "both "}),
        ({"query": ""}, {"query": "", "document": ""}),
    ],
)
def test_prompts_that_are_given_are_trained_with_and_saved(
    given: Any, expected: dict[str, str], retriever: Path, pairs: Dataset, tmp_path: Path
) -> None:
    """The loss is that of the saved model, which learnt nothing."""
    start = SentenceTransformer(str(retriever), prompts={"query": "own "})
    start.save_pretrained(str(tmp_path / "start"))
    batch = pairs.select(range(16))
    options = {"max_steps": 1, "learning_rate": 0.0, "eval_strategy": "steps", "eval_steps": 1, "temperature": 2.0}
    run = tmp_path / "run"
    model = finetune(tmp_path / "start", batch, arguments(run, prompts=given, **options), dev_pairs=batch)
    assert finetune(tmp_path / "start", batch, arguments(run, prompts=given, **options), dev_pairs=batch) == model
    saved = SentenceTransformer(str(model))
    assert saved.prompts == expected
    queries = saved.encode_query(batch["query"][:], convert_to_tensor=True)
    passages = saved.encode_document(batch["passage"][:], convert_to_tensor=True)
    loss = torch.nn.functional.cross_entropy(saved.similarity(queries, passages) / 2.0, torch.arange(16)).item()
    found = next(entry["eval_loss"] for entry in load_history(run) if "eval_loss" in entry)
    assert found == pytest.approx(loss, rel=1e-4)
    assert manifest_of(model).sources["model"] == str(tmp_path / "start")


def test_the_card_quotes_no_training_text(retriever: Path, tmp_path: Path) -> None:
    words = ["secretword" + letter for letter in "abcdefghijklmnop"]
    passages = [f"{word} more" for word in words]
    model = finetune(retriever, Dataset.from_dict({"query": words, "passage": passages}), arguments(tmp_path))
    assert "secretword" not in (model / "README.md").read_text()
    assert not [name for name in weights(model) if "pooler" in name]


@pytest.mark.parametrize(
    ("changes", "columns", "message"),
    [
        ({}, {"passage": "text"}, "has no column 'passage'"),
        ({"per_device_train_batch_size": 97}, {}, "fewer than one batch of 97"),
        ({"per_device_train_batch_size": 1}, {}, "per_device_train_batch_size is 1, and a step has one passage"),
        ({"resume_from_checkpoint": "true"}, {}, "There is no complete checkpoint in"),
        ({"resume_from_checkpoint": "nowhere"}, {}, "nowhere is not a complete checkpoint"),
    ],
)
def test_bad_input_is_one_sentence(
    changes: dict, columns: dict, message: str, retriever: Path, pairs: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        finetune(retriever, pairs.rename_columns(columns), arguments(tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


def test_pairs_are_a_dataset(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    held_out = arguments(tmp_path / "run", eval_strategy="steps", eval_steps=3)
    for strange in (pairs.to_iterable_dataset(), pairs.to_dict(), pairs.to_list()):
        kind: Any = strange
        with pytest.raises(InputError, match=f"^pairs is of the type {type(kind).__name__}; give a Dataset"):
            finetune(retriever, kind, arguments(tmp_path / "run"))
        with pytest.raises(InputError, match=f"^dev_pairs is of the type {type(kind).__name__}; give a Dataset"):
            finetune(retriever, pairs, held_out, dev_pairs=kind)


@pytest.mark.parametrize(
    ("queries", "passages", "sentence"),
    [
        (
            96,
            10,
            "pairs has 10 different passages, and a batch of 16 has none twice; lower per_device_train_",
        ),
        (10, 96, "pairs has 10 different queries, and a batch of 16 has none twice; lower per_device_train_"),
    ],
)
def test_a_batch_of_more_rows_than_different_texts_is_refused(
    queries: int, passages: int, sentence: str, retriever: Path, pairs: Dataset, tmp_path: Path
) -> None:
    rows = range(96)
    few = Dataset.from_dict(
        {
            "query": [pairs["query"][row % queries] for row in rows],
            "passage": [pairs["passage"][row % passages] for row in rows],
        }
    )
    with pytest.raises(InputError, match=sentence):
        finetune(retriever, few, arguments(tmp_path / "run"))
    held_out = arguments(tmp_path / "run", eval_strategy="steps", eval_steps=3)
    with pytest.raises(InputError, match=r"dev_pairs has 10 different .*; lower per_device_eval_batch_size"):
        finetune(retriever, pairs, held_out, dev_pairs=few)
    assert not (tmp_path / "run").exists()
    finetune(retriever, few, arguments(tmp_path / "last", max_steps=1, dataloader_drop_last=False))
    finetune(retriever, few, arguments(tmp_path / "any", max_steps=1, batch_sampler="batch_sampler"))


def test_a_training_without_a_step_is_no_success(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    """There are 16 different queries and passages, and at most 2 rows that share none of them."""
    words = pairs["query"][:16]
    star = Dataset.from_dict({"query": [*words, *[words[0]] * 15], "passage": [*["a"] * 16, *words[:15]]})
    with pytest.raises(InputError, match=r"No step was trained: .*; lower per_device_train_batch_size"):
        finetune(retriever, star, arguments(tmp_path / "run"))
    assert not (tmp_path / "run" / "model").exists()


def test_a_bare_encoder_is_refused(pairs: Dataset, tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")
    with pytest.raises(InputError, match="make one with hf-dense export"):
        finetune(encoder, pairs, arguments(tmp_path / "run"))


def test_the_folder_of_a_training_says_where_its_model_is(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    finetune(retriever, pairs, arguments(tmp_path / "run", max_steps=1))
    with pytest.raises(InputError, match=f"no modules.json; give what is in it, {tmp_path / 'run' / 'model'}"):
        load_retriever(tmp_path / "run")


def test_a_pre_training_checkpoint_is_pooled_where_its_bottleneck_is(pairs: Dataset, tmp_path: Path) -> None:
    """The first step, which learns nothing, gives the checkpoint's own bottlenecks."""
    record = {"pooling": "mean", "normalize": False, "similarity": "cosine", "prompts": {"query": "ask "}}
    checkpoint = write_checkpoint(tmp_path / "retromae", bottleneck="mean", retriever={**record, "max_length": 20})
    source = RetroMAEForPreTraining.from_pretrained(checkpoint)
    model = finetune(checkpoint, pairs, arguments(tmp_path / "run", max_steps=1, learning_rate=0.0))
    found = SentenceTransformer(str(model), device="cpu")
    assert (found.similarity_fn_name, found.prompts["query"], found.max_seq_length) == ("cosine", "ask ", 20)
    batch = tiny_tokenizer()(["abc", "some words"], padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = source.encoder.eval()(**batch).pooler_output
    torch.testing.assert_close(found.encode(["abc", "some words"], convert_to_tensor=True), expected)


def test_two_positives_of_a_query_never_meet_in_a_step_of_several_processes(
    retriever: Path, pairs: Dataset, tmp_path: Path
) -> None:
    twice = Dataset.from_dict(
        {
            name: [*pairs[name][:32], *(f"{text} more" if name == "passage" else text for text in pairs[name][:32])]
            for name in ("query", "passage")
        }
    )
    assert arguments(tmp_path).batch_sampler == "no_duplicates"
    steps = NoDuplicatesBatchSampler(twice, 8, drop_last=True, valid_label_columns=[], generator=torch.Generator())
    shared = SharedBatches(steps, 4)
    batches = [*shared]
    assert len(batches) == len(shared) >= 12
    assert {len(batch) for batch in batches} == {4}
    for first, second in zip(batches[::2], batches[1::2], strict=True):
        asked = [twice["query"][row] for row in (*first, *second)]
        assert len(set(asked)) == len(asked)
    loader = prepare_data_loader(DataLoader(twice, batch_sampler=shared), num_processes=2, process_index=0)
    loader.set_epoch(3)
    assert steps.epoch == 3


def test_held_out_pairs_are_measured_beside_lists(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    entries = [Entry(str(row), query, (str(row),), (str((row + 1) % 96),)) for row, query in enumerate(pairs["query"])]
    corpus = Dataset.from_dict({"id": [*map(str, range(96))], "title": [""] * 96, "text": pairs["passage"]})
    lists = PassageLists(entries, corpus, 2, 0)
    options = arguments(tmp_path / "run", eval_strategy="steps", eval_steps=3)
    finetune(retriever, lists, options, dev_pairs=pairs.select(range(32)))
    assert [entry["step"] for entry in load_history(tmp_path / "run") if "eval_loss" in entry] == [3, 6]
    other = arguments(tmp_path / "other", eval_strategy="steps", contrast="own")
    with pytest.raises(InputError, match="Held-out pairs have no such loss; leave eval_strategy out"):
        finetune(retriever, lists, other, dev_pairs=pairs.select(range(32)))


def test_evaluations_change_nothing_of_a_training_with_dropout(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    held_out = pairs.select(range(32))
    plain, watched = (
        finetune(retriever, pairs, arguments(tmp_path / name, **looking), dev_pairs=held_out)
        for name, looking in (("plain", {}), ("watched", {"eval_strategy": "steps", "eval_steps": 2}))
    )
    assert len([entry for entry in load_history(tmp_path / "watched") if "eval_loss" in entry]) == 3
    assert all(torch.equal(tensor, weights(watched)[name]) for name, tensor in weights(plain).items())


def test_evaluations_that_cannot_be_are_refused_before_training(
    retriever: Path, pairs: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="eval_strategy is steps, and nothing is held out to evaluate"):
        finetune(retriever, pairs, arguments(tmp_path / "run", eval_strategy="steps"))
    with pytest.raises(InputError, match="patience counts evaluations without a better one; it needs eval_strategy"):
        arguments(tmp_path / "run", patience=2)
    assert not (tmp_path / "run").exists()
