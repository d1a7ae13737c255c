"""The Trainer: exact means, every loss on its own, steps that do not depend on how they are cut."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset, Features, List, Value
from tiny_pretraining import METHODS, NO_DROPOUT, tiny_arguments, tiny_keywords, tiny_vocabulary, token_rows

from hf_dense.errors import InputError
from hf_dense.methods import get_method
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.trainer import PreTrainer

VOCABULARY = tiny_vocabulary()


def make_rows(count: int, seed: int = 0) -> Dataset:
    """Tokenized rows of very different lengths."""
    rows = token_rows(count, seed=seed)
    for number, row in enumerate(rows):
        row |= {"length": len(row["text"]) + len(row["neighbour"]), "document": number // 2}
    ids = List(Value("int32"))
    columns = dict.fromkeys(("text", "neighbour", "continuation"), ids) | {"queries": List(ids)}
    columns |= {"length": Value("int64"), "document": Value("int64")}
    return Dataset.from_list(rows, features=Features(columns)).with_format("numpy")


def make_model(method: str, **config: Any) -> BottleneckForPreTraining:
    torch.manual_seed(0)
    kind = get_method(method)
    backbone = {"vocab_size": VOCABULARY.size, **NO_DROPOUT}
    return kind.pretraining(kind.config(backbone_config=backbone, **config))


def make_trainer(
    directory: Path,
    method: str = "retromae",
    rows: int = 24,
    config: dict[str, Any] | None = None,
    chunk: int | None = None,
    decoder_learning_rate: float | None = None,
    muon_learning_rate: float | None = None,
    **arguments: Any,
) -> PreTrainer:
    model = make_model(method, **(config or {}))
    training = tiny_arguments(directory, **arguments)
    training.remove_unused_columns = False
    return PreTrainer(
        model=model,
        args=training,
        collator=ViewCollator(model.config, VOCABULARY, 32, 0, tiny_keywords()),
        train_dataset=make_rows(rows),
        eval_dataset=make_rows(11, seed=1),
        chunk=chunk,
        decoder_learning_rate=decoder_learning_rate,
        muon_learning_rate=muon_learning_rate,
    )


def logged(trainer: PreTrainer, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def test_evaluations_know_nothing_of_each_other(tmp_path: Path) -> None:
    trainer, others = make_trainer(tmp_path), make_rows(13, seed=2)
    first, other = trainer.evaluate(), trainer.evaluate(others)
    losses = ("loss", "encoder_loss", "decoder_loss")
    predicted = trainer.predict(others).metrics or {}
    prefixed = trainer.evaluate(others, metric_key_prefix="mine")
    several = trainer.evaluate({"a": make_rows(11, seed=1), "b": others})
    for name in losses:
        for figures, prefix in ((predicted, "test"), (prefixed, "mine"), (several, "eval_b")):
            assert figures[f"{prefix}_{name}"] == pytest.approx(other[f"eval_{name}"], rel=1e-6)
        assert several[f"eval_a_{name}"] == pytest.approx(first[f"eval_{name}"], rel=1e-6)
    trainer.prediction_step(trainer.model, next(iter(trainer.get_eval_dataloader(others))), True)  # of one that stopped
    again = trainer.evaluate()
    assert {name: again[f"eval_{name}"] for name in losses} == {name: first[f"eval_{name}"] for name in losses}


@pytest.mark.parametrize("name", ["compute_metrics", "preprocess_logits_for_metrics", "compute_loss_func"])
def test_what_the_trainer_would_never_call_is_refused(name: str, tmp_path: Path) -> None:
    model = make_model("retromae")
    training = tiny_arguments(tmp_path)
    training.remove_unused_columns = False
    collator = ViewCollator(model.config, VOCABULARY, 32, 0)
    with pytest.raises(InputError, match=f"{name} does nothing here"):
        PreTrainer(model, training, collator, make_rows(4), **{name: print})


@pytest.mark.parametrize(
    ("method", "rows", "said"),
    [
        ("retromae", [1], "it is of the type list"),
        ("retromae", make_rows(4).to_iterable_dataset(), "it is of the type IterableDataset"),
        ("retromae", make_rows(4).remove_columns("length"), "it has no column 'length', but text, "),
        ("retromae", make_rows(4).remove_columns("text"), "it has no column 'text', but neighbour, "),
        ("cocondenser", make_rows(4).remove_columns("document"), "it has no column 'document', but text, "),
    ],
)
def test_rows_without_what_is_read_are_refused(method: str, rows: Any, said: str, tmp_path: Path) -> None:
    model, training = make_model(method), tiny_arguments(tmp_path)
    training.remove_unused_columns = False
    with pytest.raises(InputError, match=f"is to be what `tokenize` .*: {said}"):
        PreTrainer(model, training, ViewCollator(model.config, VOCABULARY, 32, 0), rows)


@pytest.mark.parametrize("method", METHODS)
def test_every_loss_is_logged_and_their_weighted_sum_is_the_loss(tmp_path: Path, method: str) -> None:
    name = next(iter(get_method(method).config().decoder_specs))
    config = {"encoders": {"encoder": {"weight": 0.5}}, "decoders": {name: {"weight": 2.0}}}
    trainer = make_trainer(
        tmp_path, method, config=config, max_steps=6, logging_steps=2, eval_strategy="steps", eval_steps=3
    )
    trainer.train()
    for prefix, count in (("", 3), ("eval_", 2)):
        weights = trainer.model.config.weights
        parts = {name: logged(trainer, f"{prefix}{name}_loss") for name in weights}
        total = logged(trainer, f"{prefix}loss")
        assert len(total) == count
        for at, row in enumerate(zip(*parts.values(), strict=True)):
            expected = sum(weight * value for weight, value in zip(weights.values(), row, strict=True))
            assert total[at] == pytest.approx(expected, rel=1e-4)
            assert min(row) > 0


def test_logged_losses_are_means_over_the_steps_since_the_last_log(tmp_path: Path) -> None:
    each = make_trainer(tmp_path, max_steps=6, logging_steps=1)
    each.train()
    every_third = make_trainer(tmp_path, max_steps=6, logging_steps=3)
    every_third.train()
    for name in ("loss", "encoder_loss", "decoder_loss"):
        single = logged(each, name)
        expected = [sum(single[:3]) / 3, sum(single[3:]) / 3]
        assert logged(every_third, name) == pytest.approx(expected, rel=1e-4)


def test_held_out_texts_are_masked_the_same_way_at_every_evaluation(tmp_path: Path) -> None:
    trainer = make_trainer(
        tmp_path, max_steps=9, learning_rate=0.0, eval_strategy="steps", eval_steps=2, eval_on_start=True
    )
    trainer.train()
    for name in ("eval_loss", "eval_encoder_loss", "eval_decoder_loss"):
        values = logged(trainer, name)
        assert len(values) >= 5
        assert len(set(values)) == 1
    assert len(set(logged(trainer, "encoder_loss"))) == 9, "training masks change from step to step"


def test_a_text_is_masked_anew_in_every_epoch(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, rows=8, max_steps=3, learning_rate=0.0)
    trainer.train()
    losses = logged(trainer, "encoder_loss")
    assert len({round(loss, 5) for loss in losses}) == 3


def test_the_evaluation_is_a_mean_over_tokens_however_they_are_batched(tmp_path: Path) -> None:
    results = [make_trainer(tmp_path, "cotmae", per_device_eval_batch_size=size).evaluate() for size in (1, 4, 11)]
    for name in ("eval_loss", "eval_encoder_loss", "eval_decoder_loss"):
        values = [result[name] for result in results]
        assert values == pytest.approx([values[0]] * 3, rel=1e-5)


def test_an_incomplete_batch_is_evaluated_where_training_drops_it(tmp_path: Path) -> None:
    first, second = (make_trainer(tmp_path, dataloader_drop_last=drop) for drop in (False, True))
    assert second.evaluate()["eval_loss"] == pytest.approx(first.evaluate()["eval_loss"], rel=1e-6)
    assert second.args.dataloader_drop_last


@pytest.mark.parametrize("method", [method for method in METHODS if method != "cocondenser"])
def test_two_accumulated_batches_of_four_are_one_of_eight(tmp_path: Path, method: str) -> None:
    """With eight rows a step holds all of them, so both runs see the same rows at every step."""
    whole = make_trainer(tmp_path, method, rows=8, max_steps=5)
    halves = make_trainer(
        tmp_path, method, rows=8, max_steps=5, per_device_train_batch_size=4, gradient_accumulation_steps=2
    )
    for trainer in (whole, halves):
        trainer.train()
    for name in ("loss", "encoder_loss", "decoder_loss", "grad_norm"):
        assert logged(halves, name) == pytest.approx(logged(whole, name), rel=1e-4)
    start = make_model(method).state_dict()
    for name, tensor in whole.model.state_dict().items():
        torch.testing.assert_close(halves.model.state_dict()[name], tensor, rtol=0, atol=2e-6, msg=name)
    assert not torch.equal(start["head.dense.weight"], whole.model.state_dict()["head.dense.weight"])


def test_accumulated_steps_read_the_rows_of_one_large_batch(tmp_path: Path) -> None:
    """The same step gives the same loss however it is cut up: its rows must be the same as well."""
    whole = make_trainer(tmp_path, rows=24, max_steps=6)
    halves = make_trainer(tmp_path, rows=24, max_steps=6, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    for trainer in (whole, halves):
        trainer.train()
    assert logged(halves, "loss") == pytest.approx(logged(whole, "loss"), rel=1e-4)


def test_settings_that_would_be_silently_wrong_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="label_smoothing_factor smooths none of the losses"):
        make_trainer(tmp_path, label_smoothing_factor=0.1)
    with pytest.raises(InputError, match="bf16_full_eval would leave the weights rounded to 16 bits"):
        make_trainer(tmp_path, bf16_full_eval=True)
    with pytest.raises(InputError, match="neftune_noise_alpha is of single texts"):
        make_trainer(tmp_path, neftune_noise_alpha=5.0)
    with pytest.raises(InputError, match="ignore_data_skip would let a run that goes on read other batches"):
        make_trainer(tmp_path, ignore_data_skip=True)
    with pytest.raises(InputError, match="include_for_metrics is for metrics that are not computed here"):
        make_trainer(tmp_path, include_for_metrics=["inputs"])
    with pytest.raises(InputError, match="dataloader_persistent_workers"):
        make_trainer(tmp_path, dataloader_persistent_workers=True, dataloader_num_workers=1)
    with pytest.raises(InputError, match=r"train_sampling_strategy is 'group_by_length'.*--group_by_length"):
        make_trainer(tmp_path, train_sampling_strategy="group_by_length")
    with pytest.raises(InputError, match="say --per_device_train_batch_size auto"):
        make_trainer(tmp_path, auto_find_batch_size=True)
    with pytest.raises(InputError, match="use_liger_kernel"):
        make_trainer(tmp_path, use_liger_kernel=True)
    silent = {"encoders": {"encoder": {"weight": 0.0}}, "decoders": {"decoder": {"weight": 0.0}}}
    with pytest.raises(InputError, match="All losses have the weight 0, so nothing would be learnt"):
        make_trainer(tmp_path, config=silent)


def test_contrast_refuses_what_would_cut_its_batch_up(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gradient_accumulation_steps would cut up"):
        make_trainer(tmp_path, "cocondenser", gradient_accumulation_steps=2)
    with pytest.raises(InputError, match="cocondenser reads texts in pairs; batch sizes must be even"):
        make_trainer(tmp_path, "cocondenser", per_device_train_batch_size=3)
    for method, rows in (("cocondenser", 2), ("query_cocondenser", 1)):
        with pytest.raises(InputError, match=f"with per_device_train_batch_size {rows} a text has its partner alone"):
            make_trainer(tmp_path, method, per_device_train_batch_size=rows).train()
    second = {"encoders": {"second": {"view": {"sources": ["text"]}}}}
    with pytest.raises(InputError, match="chunk cuts all views of a batch alike, and some read more sources"):
        make_trainer(tmp_path, "query_cocondenser", config=second, chunk=2)
    with pytest.raises(InputError, match="reads 8 documents of several passages in a step, and the corpus has fewer"):
        make_trainer(tmp_path, "cocondenser", rows=8, per_device_train_batch_size=16).train()


@pytest.mark.parametrize(
    ("method", "bottleneck"), [("cocondenser", "cls"), ("query_cocondenser", "cls"), ("cocondenser", "mean")]
)
def test_chunks_give_the_gradients_of_the_whole_batch(tmp_path: Path, method: str, bottleneck: str) -> None:
    gradients, losses, values = [], [], []
    for chunk in (None, 4):
        trainer = make_trainer(tmp_path, method, chunk=chunk, config={"bottleneck": bottleneck})
        model = trainer.model.double().train()
        value = trainer.compute_loss(model, trainer.collator(token_rows(12, seed=4)))
        value.backward()
        values.append(value.item())
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
        losses.append({name: float(share) for name, share in trainer._shares.items()})
    assert values[1] == pytest.approx(values[0])
    assert losses[1] == pytest.approx(losses[0])
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-8, atol=1e-11, msg=name)


def test_both_passes_of_a_chunk_drop_the_same_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(tmp_path, "cocondenser", chunk=4)
    model = trainer.model.train()
    for module in (*model.encoder.modules(), *model.runner.block.modules()):
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.3
    seen: list[torch.Tensor] = []
    plain = model.encode

    def encode(*given: Any) -> Any:
        encoded = plain(*given)
        seen.append(encoded["encoder"].bottleneck.detach())
        return encoded

    monkeypatch.setattr(model, "encode", encode)
    trainer.compute_loss(model, trainer.collator(token_rows(12, seed=4)))
    assert len(seen) == 6
    for first, second in zip(seen[:3], seen[3:], strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert not torch.equal(seen[0], seen[1])


def test_chunks_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"chunk is 4: .* for methods that contrast them, which retromae does not"):
        make_trainer(tmp_path, chunk=4)
    with pytest.raises(InputError, match="chunk is 3: it is an even number of texts"):
        make_trainer(tmp_path, "cocondenser", chunk=3)


def test_a_generator_draws_nothing_in_rows_that_are_repeated() -> None:
    trainer: Any = SimpleNamespace(accelerator=SimpleNamespace(process_index=1))
    view = {"labels": torch.ones(2, 3, dtype=torch.long), "uniform": torch.full((2, 3), 0.5)}
    found = PreTrainer._without_repeats(trainer, {"encoder": view}, size=2, left=3)["encoder"]
    assert found["counted"].tolist() == [True, False]
    assert found["uniform"].tolist() == [[0.5] * 3, [-1.0] * 3]
    assert found["labels"].tolist() == [[1] * 3, [-100] * 3]


def test_worker_processes_see_the_epoch(tmp_path: Path) -> None:
    alone = make_trainer(tmp_path, rows=8, max_steps=3)
    helped = make_trainer(tmp_path, rows=8, max_steps=3, dataloader_num_workers=1)
    for trainer in (alone, helped):
        trainer.train()
    assert logged(helped, "loss") == logged(alone, "loss")


@pytest.mark.parametrize("method", METHODS)
def test_what_is_added_to_the_encoder_learns_at_its_own_rate(tmp_path: Path, method: str) -> None:
    trainer = make_trainer(
        tmp_path, method, decoder_learning_rate=1e-2, learning_rate=1e-30, max_steps=2, warmup_steps=0
    )
    before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    now = trainer.model.named_parameters()
    moved = {name for name, value in now if not torch.allclose(value, before[name], rtol=0, atol=1e-20)}
    assert not any(name.startswith("encoder.") for name in moved), "tied weights are the encoder's"
    added = {name for name in before if not name.startswith("encoder.")}
    assert {name.split(".")[0] for name in moved} == {name.split(".")[0] for name in added}
    assert trainer.optimizer is not None
    optimised = [id(value) for group in trainer.optimizer.param_groups for value in group["params"]]
    assert len(optimised) == len(set(optimised)) == len(before)
    decays = {id(value): group["weight_decay"] for group in trainer.optimizer.param_groups for value in group["params"]}
    plain = make_trainer(tmp_path / "plain", method)
    plain.model = trainer.model
    for group in plain.create_optimizer().param_groups:
        assert {decays[id(value)] for value in group["params"]} <= {group["weight_decay"]}, "decay is as it was"


def test_compiled_parts_give_the_same_losses(tmp_path: Path) -> None:
    plain, compiled = (
        make_trainer(tmp_path, max_steps=3, **more) for more in ({}, {"torch_compile_backend": "aot_eager"})
    )
    assert compiled.args.torch_compile
    for trainer in (plain, compiled):
        trainer.train()
    assert logged(compiled, "loss") == pytest.approx(logged(plain, "loss"), rel=1e-4)
    assert "expand" in vars(compiled.model.runner.block)
    assert "expand" not in vars(plain.model.runner.block)
