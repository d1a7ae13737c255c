"""What every method promises, whatever its declaration. A new method is tested by being registered."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from recorded_operations import Operations
from sentence_transformers.sentence_transformer.modules import Pooling
from tiny_backbones import BACKBONES, CLS, HIDDEN, MASK, PAD, SEP, VOCABULARY
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    PreTrainedConfig,
)
from transformers.utils import logging as transformers_logging

from hf_dense import METHODS, View
from hf_dense.modeling import bottleneck_precision
from hf_dense.modeling.bottleneck_backbones import build_backbone
from hf_dense.modeling.bottleneck_layout import FlatRows
from hf_dense.modeling.bottleneck_losses import IGNORED
from hf_dense.modeling.bottleneck_plan import Reading
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig, merge
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining, PreTrainingOutput
from hf_dense.pretraining.gap import gap_sums, row_group

LENGTHS = (9, 5, 12, 7)  # tokens of the four rows of the batch

Views = dict[str, dict[str, Tensor]]


class Case(NamedTuple):
    """A method, perhaps changed, on a family of backbones."""

    method: str
    backbone: str
    variant: str = ""

    @property
    def name(self) -> str:
        return "-".join(part for part in self if part)

    def config(self, dropout: float = 0.1, **changes: Any) -> BottleneckConfig:
        """The declaration, with further changes to its encoders and decoders."""
        changes = merge({"bottleneck": "mean"} if self.variant == "mean" else changes_of(self), changes)
        return METHODS[self.method].config(backbone_config=BACKBONES[self.backbone](dropout), **changes)


OTHER_DECODERS = ("queries", "continuation", "neighbour", "complement")
CAUSAL = {"layers": 1, "attention": "causal:3", "norm": "gpt2", "view": {"select": "none", "labels": "next"}}
MASKED = {"view": {"fill": "mask", "labels": "hidden"}}

# What papers and released code do otherwise, by the names of their pages in docs/methods.
VARIANTS: dict[tuple[str, str], dict[str, Any]] = {
    ("seed_encoder", "strong"): {"decoders": {"decoder": {"attention": "causal", "layers": 2}}},
    ("condenser", "silent"): {
        "decoders": {"decoder": {"inputs": "hidden:1"}},
        "encoders": {"encoder": {"weight": 0.0}},
    },
    ("cocondenser", "released"): {"encoders": {"encoder": {"weight": 2.0}}, "decoders": {"decoder": {"weight": 2.0}}},
    ("query_cotmae", "released"): {"decoders": {"decoder": CAUSAL}},
    ("simlm", "masked"): {"encoders": {"encoder": MASKED}, "decoders": {"decoder": MASKED}},
    ("simlm", "autoencoder"): {
        "encoders": {"encoder": {"weight": 0.0, "view": {"select": "none"}}},
        "decoders": {"decoder": {"view": {"select": "random", "rate": 1.0, "fill": "mask"}}},
    },
    ("retromae", "embedded"): {"decoders": {"decoder": {"stream": "bottleneck_embedded"}}},
    ("dupmae", "paper"): {"encoders": {"encoder": {"bag": {"weight": 1.0, "masked": False, "head": "own"}}}},
    ("dupmae", "sum"): {"encoders": {"encoder": {"bag": {"target": "sum"}}}},
    ("master", "shared"): {"decoders": {name: {"shares": "keywords"} for name in OTHER_DECODERS}},
    ("master", "one_loss"): {"encoders": {"half": {"weight": 0.0}, "complement_encoder": {"weight": 0.0}}},
    ("master", "two_tasks"): {
        "decoders": dict.fromkeys(OTHER_DECODERS[1:]),
        "encoders": {"half": None, "complement_encoder": None},
    },
}


# What cannot work, and what its refusal says.
REFUSED = {
    Case("dupmae", "electra-small"): "use stream='bottleneck'",
    Case("seed_encoder", "electra-small"): "use head='mlm'",
}
EVERY = [Case(method, backbone) for method in METHODS for backbone in BACKBONES]
CASES = [case for case in EVERY if case not in REFUSED]
CASES += [Case(method, backbone, variant) for method, variant in VARIANTS for backbone in ("bert", "modernbert")]

# Every method with the mean as its bottleneck, on one family of backbones after the other.
CARRYING = [name for name in BACKBONES if not any(case.backbone == name for case in REFUSED)]
MEAN = [Case(method, backbone, "mean") for method, backbone in zip(METHODS, cycle(CARRYING), strict=False)]

# What holds depends on the method, and on the family of backbones, hardly on which meet: in the fast tier every method
# and variant on BERT, and every family with one method after the other; all that meet in the slow one.
MET = {Case(method, name) for name, method in zip(BACKBONES, cycle(METHODS), strict=False)}
each_case = pytest.mark.parametrize(
    "case",
    [case if case.backbone == "bert" or case in MET else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
    ids=[case.name for case in CASES],
)
each_mean = pytest.mark.parametrize("case", MEAN, ids=[case.name for case in MEAN])


def make_model(case: Case, dropout: float = 0.1) -> BottleneckForPreTraining:
    """A tiny model in double precision, in evaluation mode, with every bias and norm random too."""
    classes = METHODS[case.method]
    torch.manual_seed(0)
    model = classes.pretraining(case.config(dropout)).eval()
    randomise(model, seed=0)
    return model.double()


@torch.no_grad()
def randomise(model: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)


def make_row(view: View, length: int, generator: torch.Generator) -> dict[str, Tensor]:
    """One text rendered for `view`, as a batch of one row without padding."""
    ids = torch.randint(5, VOCABULARY, (1, length), generator=generator)
    ids[:, 0], ids[:, -1] = CLS, SEP
    shown, labels = ids.clone(), torch.full_like(ids, IGNORED)
    if view.labels == "hidden":
        hidden = torch.arange(1, length - 1, 3)
        labels[:, hidden], shown[:, hidden] = ids[:, hidden], MASK
    elif view.labels == "every":
        labels[:, 1:-1] = ids[:, 1:-1]
    else:
        labels[:, :-1] = ids[:, 1:]
    visible = torch.rand((1, length, length), generator=generator) < 0.5
    visible[:, :, 0] = True
    visible &= ~torch.eye(length, dtype=torch.bool)
    return {"input_ids": shown, "attention_mask": torch.ones_like(ids), "labels": labels, "visible": visible}


def padded(row: dict[str, Tensor], length: int) -> dict[str, Tensor]:
    more = length - row["input_ids"].shape[1]
    fill = {"input_ids": PAD, "attention_mask": 0, "labels": IGNORED}
    wide = {key: torch.nn.functional.pad(row[key], (0, more), value=value) for key, value in fill.items()}
    return {**wide, "visible": torch.nn.functional.pad(row["visible"], (0, more, 0, more), value=False)}


def make_rows(case: Case, seed: int = 0) -> list[Views]:
    """The rows of a batch of four, each as a batch of its own."""
    config = case.config()
    rows = []
    for index, length in enumerate(LENGTHS):
        generator = torch.Generator().manual_seed(1000 * seed + index)
        row = {name: make_row(view, length, generator) for name, view in config.views.items()}
        rows.append(row)
    return rows


def stack(rows: list[Views], case: Case, extra: int = 0) -> Views:
    """Rows as one batch, padded to the longest and `extra` columns more; `visible` only where a decoder samples it."""
    length = max(row[name]["input_ids"].shape[1] for row in rows for name in row) + extra
    decoders = case.config().decoder_specs
    batch = {}
    for name in rows[0]:
        wide = [padded(row[name], length) for row in rows]
        batch[name] = {key: torch.cat([row[key] for row in wide]) for key in wide[0]}
        if name not in decoders or decoders[name].attention_kind != "sampled":
            del batch[name]["visible"]
    return batch


def make_batch(case: Case, extra: int = 0) -> Views:
    return stack(make_rows(case), case, extra)


def token_losses(case: Case) -> list[str]:
    """The losses that are means over tokens; a contrast's value depends on the texts it is drawn with."""
    return list(case.config().scored)


def gradients(model: BottleneckForPreTraining) -> dict[str, Tensor]:
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in model.named_parameters()
    }


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor], tolerance: float = 1e-6) -> None:
    assert list(first) == list(second)
    for name in first:
        torch.testing.assert_close(first[name], second[name], atol=tolerance, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


def rounding(case: Case) -> dict[str, float]:
    """How far transformers' forward pass may be off: it rotates ModernBERT's queries and keys in float32."""
    return {"atol": 1e-5, "rtol": 0} if case.backbone == "modernbert" else {"atol": 1e-12, "rtol": 1e-12}


def with_states(
    model: BottleneckForPreTraining, views: Views, change: Callable[[Tensor], None]
) -> tuple[PreTrainingOutput, dict[str, Tensor]]:
    """A step in which the last states of each encoder (batch, length, dim) are changed in place before they are read.

    Returns:
        The output, and the states by encoder, as they were read.
    """
    seen: list[Tensor] = []
    plain = type(model)._encoded

    def changed(self: Any, layout: FlatRows, last: Tensor, inner: Any, read: Reading) -> Any:
        rows = read.last[layout.where.clamp(min=0)]
        states = last[rows.clamp(min=0)].clone()  # what is not read is there too, as any other row
        change(states)
        seen.append(states)
        return plain(self, layout, states.flatten(0, 1), inner, read._replace(last=layout.places.at))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "_encoded", changed)
        output = model(views)
    return output, dict(zip(model.encoder_specs, seen, strict=True))


def perturbed(model: BottleneckForPreTraining, views: Views, change: Callable[[Tensor], None]) -> PreTrainingOutput:
    """The output when the last states are changed in place before anything reads them."""
    return with_states(model, views, change)[0]


@each_case
class TestLosses:
    def test_losses_are_finite_and_add_up_by_weight(self, case: Case) -> None:
        model, views = make_model(case), make_batch(case)
        output = model(views)
        weights = model.config.weights
        assert list(output.losses) == list(weights)
        assert all(torch.isfinite(value) and value > 0 for value in output.losses.values())
        total = sum(weights[name] * value for name, value in output.losses.items())
        torch.testing.assert_close(output.loss, total)
        output.loss.backward()
        assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())

    def test_weights_scale_the_parts(self, case: Case) -> None:
        classes = METHODS[case.method]
        before = {name: spec.weight for name, spec in case.config().decoder_specs.items()}
        decoders = {name: {"weight": 0.25 * weight} for name, weight in before.items()}
        config = case.config(decoders=decoders)
        model, plain = classes.pretraining(config).double().eval(), make_model(case)
        model.load_state_dict(plain.state_dict())
        output, full = model(make_batch(case)), plain(make_batch(case))
        assert_same(output.losses, full.losses)
        drop = 0.75 * sum(weight * full.losses[name] for name, weight in before.items())
        torch.testing.assert_close(output.loss, full.loss - drop)

    def test_every_parameter_is_trained(self, case: Case) -> None:
        model = make_model(case)
        model(make_batch(case)).loss.backward()
        idle = [name for name, gradient in gradients(model).items() if not gradient.any()]
        assert idle == []

    def test_a_batch_without_scored_tokens_is_finite(self, case: Case) -> None:
        model, views = make_model(case), make_batch(case)
        for view in views.values():
            view["labels"] = torch.full_like(view["labels"], IGNORED)
            view["counted"] = torch.zeros(len(LENGTHS), dtype=torch.bool)
        output = model(views)
        output.loss.backward()
        assert output.loss.item() == 0.0
        assert all(not gradient.any() for gradient in gradients(model).values())

    def test_the_vocabulary_projection_sees_only_scored_tokens(self, case: Case) -> None:
        model, views = make_model(case), make_batch(case)
        memory = model.get_input_embeddings().weight.data_ptr()
        with torch.no_grad(), Operations() as operations:
            model(views)
        rows = [left.shape[0] for left, right in operations.products if right.untyped_storage().data_ptr() == memory]
        rows += [right.shape[1] for left, right in operations.products if left.untyped_storage().data_ptr() == memory]
        counts = model.count_scored(views)
        expected = [int(counts[name]) for name in token_losses(case)]
        assert sum(expected) < sum(views[view]["labels"].numel() for view in model.config.scored.values())
        shared = [encoder for encoder, bag in model.config.bags.values() if bag.head == "mlm"]
        bags = [int(views[encoder]["attention_mask"][:, 1:].sum()) for encoder in shared]  # these read all but [CLS]
        assert sorted(rows) == sorted(expected + bags)

    def test_gradient_checkpointing_changes_nothing(self, case: Case) -> None:
        results, decoder_runs = [], []
        for checkpointing in (False, True):
            model, runs = make_model(case, dropout=0.0).train(), []
            if checkpointing:
                model.activation_checkpointing_enable()
            for stack in model.decoders.values():
                stack.layers[0].up.register_forward_hook(lambda *_, runs=runs: runs.append(1))
            model(make_batch(case)).loss.backward()
            results.append(gradients(model))
            decoder_runs.append(len(runs))
        assert_same(*results, tolerance=1e-12)
        assert decoder_runs[1] == 2 * decoder_runs[0]  # the layers did run again in the backward pass

    def test_a_missing_view_is_named(self, case: Case) -> None:
        views = make_batch(case)
        name = list(views)[-1]
        del views[name]
        with pytest.raises(ValueError, match=f"lacks the view '{name}'"):
            make_model(case)(views)

    def test_scored_tokens_and_texts_are_counted(self, case: Case) -> None:
        model, views = make_model(case), make_batch(case)
        counts = model.count_scored(views)
        for name, view in model.config.scored.items():
            assert counts[name] == (views[view]["labels"] != IGNORED).sum()
            assert counts[name].dtype is torch.float32
        for name in set(counts) - set(model.config.scored):
            assert counts[name] == len(LENGTHS)
        for view in views.values():
            view["counted"] = torch.tensor([True, True, False, False])
        for name in set(counts) - set(model.config.scored):
            assert model.count_scored(views)[name] == 2

    def test_the_gap_is_what_another_texts_bottleneck_costs(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        model, views = make_model(case), make_batch(case)
        decoders, group = list(model.config.decoder_specs), row_group(model.config)
        found = dict(zip(decoders, gap_sums(model, views).unbind(), strict=True))
        plain = type(model)._encoded

        def rolled(*given: Any) -> Any:
            encoded = plain(*given)
            return encoded._replace(bottleneck=encoded.bottleneck.roll(group, dims=0))

        own, counts = model(views).losses, model.count_scored(views)
        with monkeypatch.context() as patch:
            patch.setattr(type(model), "_encoded", rolled)
            other = model(views).losses
        for name in decoders:
            rise, count = found[name]
            assert rise != 0
            assert count == counts[name]
            torch.testing.assert_close(rise, (other[name] - own[name]) * count, rtol=1e-9, atol=1e-9)

    def test_a_decoder_that_ignores_its_bottleneck_has_no_gap(
        self, case: Case, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, views = make_model(case), make_batch(case)
        plain = type(model).decode

        def blind(self: Any, name: str, layout: FlatRows, bottleneck: Tensor, *given: Any) -> Tensor:
            return plain(self, name, layout, torch.ones_like(bottleneck), *given)

        monkeypatch.setattr(type(model), "decode", blind)
        rises, counts = gap_sums(model, views).unbind(dim=1)
        assert not rises.any()
        assert counts.all()

    def test_texts_that_do_not_count_are_as_if_they_were_not_there(self, case: Case) -> None:
        model, rows = make_model(case), make_rows(case)
        whole, part = stack(rows, case), stack(rows[:2], case)
        for view in whole.values():
            view["counted"] = torch.tensor([True, True, False, False])
            view["labels"][2:] = IGNORED
        assert_same(model(whole).losses, model(part).losses)


@each_case
class TestBottleneck:
    def test_bottleneck_is_the_last_state_of_the_first_token(self, case: Case) -> None:
        model, views = make_model(case), make_batch(case)
        for name, bottleneck in model(views).bottlenecks.items():
            plain = model.encoder(views[name]["input_ids"], views[name]["attention_mask"])
            torch.testing.assert_close(bottleneck, plain.last_hidden_state[:, 0], **rounding(case))
            torch.testing.assert_close(bottleneck, plain.pooler_output, **rounding(case))

    def test_every_decoder_sends_a_gradient_to_its_bottleneck(self, case: Case) -> None:
        model, views = make_model(case), make_batch(case)
        output = model(views)
        for name, spec in model.config.decoder_specs.items():
            bottleneck = output.bottlenecks[spec.encoder]
            (gradient,) = torch.autograd.grad(output.losses[name], bottleneck, retain_graph=True)
            assert (gradient.norm(dim=-1) > 0).all()

    def test_decoders_see_the_encoder_through_the_bottleneck_only(self, case: Case) -> None:
        model, views = make_model(case), make_batch(case)
        before = model(views).losses
        elsewhere = perturbed(model, views, lambda hidden: hidden[:, 1:].normal_()).losses
        first = perturbed(model, views, lambda hidden: hidden[:, 0].normal_()).losses
        for name in model.config.decoder_specs:
            assert torch.equal(elsewhere[name], before[name])
            assert not torch.isclose(first[name], before[name])
        for name in model.config.encoder_specs:
            assert not torch.isclose(elsewhere[name], before[name])
        for name in model.config.contrasts:
            assert torch.equal(elsewhere[name], before[name])
            assert not torch.isclose(first[name], before[name])


@each_case
class TestPadding:
    def test_more_padding_changes_nothing(self, case: Case) -> None:
        model, results = make_model(case), []
        for extra in (0, 5):
            model.zero_grad()
            output = model(make_batch(case, extra))
            output.loss.backward()
            results.append((output.losses, gradients(model), output.bottlenecks))
        for narrow, wide in zip(*results, strict=True):
            assert_same(narrow, wide)

    def test_what_stands_at_padding_is_never_read(self, case: Case) -> None:
        model, views = make_model(case), make_batch(case)
        before = model(views).losses
        for view in views.values():
            view["input_ids"] = view["input_ids"].masked_fill(view["attention_mask"] == 0, 77)
            view["labels"] = view["labels"].masked_fill(view["attention_mask"] == 0, 77)
        assert_same(model(views).losses, before)

    def test_a_batch_is_its_texts_alone_weighted_by_their_scored_tokens(self, case: Case) -> None:
        model, rows = make_model(case), make_rows(case)
        together = model(stack(rows, case)).losses
        alone = [(model(b).losses, model.count_scored(b)) for b in (stack([row] * 2, case) for row in rows)]
        for name in token_losses(case):
            loss = together[name]
            parts = torch.stack([losses[name] * counts[name] for losses, counts in alone])
            total = torch.stack([counts[name] for _, counts in alone]).sum()
            torch.testing.assert_close(loss, parts.sum() / total, atol=1e-6, rtol=0)

    def test_half_batches_with_shared_counts_add_up(self, case: Case) -> None:
        if case.config().contrasts:
            pytest.skip("a contrast compares the texts of a whole batch; the trainer refuses to cut it")
        model, rows = make_model(case), make_rows(case)
        whole = stack(rows, case)
        full = model(whole)
        full.loss.backward()
        expected = gradients(model)
        model.zero_grad()
        halves = [model(stack(half, case), counts=model.count_scored(whole)) for half in (rows[:2], rows[2:])]
        for half in halves:
            half.loss.backward()
        assert_same(gradients(model), expected)
        assert_same({name: halves[0].losses[name] + halves[1].losses[name] for name in full.losses}, full.losses)
        torch.testing.assert_close(halves[0].loss + halves[1].loss, full.loss)


@each_case
class TestFilling:
    """Rows of zeros behind the rows that are multiplied, as on a CPU in 16 bits; here in double precision."""

    def test_it_changes_nothing(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        model, views, results = make_model(case), make_batch(case), []
        for kinds in ((), (torch.float64,)):
            monkeypatch.setattr(bottleneck_precision, "_SHORT", kinds)
            model.zero_grad()
            output = model(views)
            output.loss.backward()
            results.append((output.losses, gradients(model), output.bottlenecks))
        for plain, filled in zip(*results, strict=True):
            assert_same(plain, filled, tolerance=1e-9)

    def test_other_lengths_multiply_matrices_of_the_same_shapes(
        self, case: Case, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bottleneck_precision, "_SHORT", (torch.float64,))
        monkeypatch.setattr(bottleneck_precision, "_LEAST", 4096)
        model, rows, shapes = make_model(case), make_rows(case), []
        for texts in ((0, 1, 2, 3), (1, 1, 3, 3)):
            with Operations() as operations:
                model(stack([rows[text] for text in texts], case)).loss.backward()
            shapes.append({tuple(factor.shape for factor in product) for product in operations.products})
        assert shapes[0] == shapes[1]


@each_case
class TestDeclaration:
    def test_an_unknown_field_is_refused_with_the_known_ones(self, case: Case) -> None:
        config = METHODS[case.method].config
        name = next(iter(config().decoder_specs))
        with pytest.raises(ValueError, match="has no field 'depth'; it has: view, encoder, layers, inputs, stream"):
            config(decoders={name: {"depth": 3}})

    def test_an_unknown_value_is_refused_with_the_allowed_ones(self, case: Case) -> None:
        config = METHODS[case.method].config
        name = next(iter(config().encoder_specs))
        with pytest.raises(ValueError, match=r"View\.select is 'all'; allowed: none, random"):
            config(encoders={name: {"view": {"select": "all"}}})
        name = next(iter(config().decoder_specs))
        with pytest.raises(ValueError, match=r"Decoder\.head is 'big'; allowed: mlm, tied"):
            config(decoders={name: {"head": "big"}})


@pytest.fixture(scope="module")
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[Case, Path]:
    """A checkpoint directory of every case that a test asks for."""
    given = [
        test.callspec.params.get("case")
        for test in request.session.items
        if isinstance(test, pytest.Function) and "saved" in test.fixturenames
    ]
    tested = {case for case in given if isinstance(case, Case)}
    root = tmp_path_factory.mktemp("checkpoints")
    paths = {case: root / case.name for case in [*CASES, *MEAN] if case in tested}
    for case, path in paths.items():
        make_model(case).save_pretrained(path)
    return paths


def comparable(config: PreTrainedConfig) -> dict[str, Any]:
    """A configuration as plain data, without what saving adds: where it came from and by what it was written."""
    values: dict[str, Any] = config.to_dict()
    added = ("_name_or_path", "architectures", "dtype", "transformers_version")
    return {key: value for key, value in values.items() if key not in added}


ROUNDING = 1e-13  # of a loss in float64: small matrix products round by where the weights lie in memory


@each_case
class TestSaving:
    def test_pretraining_model_comes_back_equal(self, case: Case, saved: dict[Case, Path]) -> None:
        model, again = make_model(case), AutoModelForPreTraining.from_pretrained(saved[case])
        assert type(again) is METHODS[case.method].pretraining
        assert_same(again.state_dict(), model.state_dict(), tolerance=0.0)
        views = make_batch(case)
        torch.testing.assert_close(again(views).loss, model(views).loss, atol=0, rtol=ROUNDING)

    def test_encoder_comes_back_equal_without_the_rest(self, case: Case, saved: dict[Case, Path]) -> None:
        encoder, report = AutoModel.from_pretrained(saved[case], output_loading_info=True)
        assert type(encoder) is METHODS[case.method].encoder
        assert not report["missing_keys"]
        assert_same(encoder.state_dict(), make_model(case).encoder.state_dict(), tolerance=0.0)

    def test_encoder_saved_alone_comes_back_equal(self, case: Case, saved: dict[Case, Path], tmp_path: Path) -> None:
        encoder = AutoModel.from_pretrained(saved[case])
        encoder.save_pretrained(tmp_path)
        again, report = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
        assert type(again) is METHODS[case.method].encoder
        assert not report["missing_keys"]
        assert_same(again.state_dict(), encoder.state_dict(), tolerance=0.0)

    def test_encoder_saved_alone_can_start_pretraining(
        self, case: Case, saved: dict[Case, Path], tmp_path: Path
    ) -> None:
        encoder = AutoModel.from_pretrained(saved[case])
        encoder.save_pretrained(tmp_path)
        model = AutoModelForPreTraining.from_pretrained(tmp_path)
        assert_same(model.encoder.state_dict(), encoder.state_dict(), tolerance=0.0)
        assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())
        assert torch.isfinite(model(make_batch(case)).loss)

    def test_more_tokens_can_be_added(self, case: Case, tmp_path: Path) -> None:
        model = make_model(case)
        model.resize_token_embeddings(108, mean_resizing=False)
        assert model.config.vocab_size == 108
        loss = model(make_batch(case)).loss
        model.save_pretrained(tmp_path)
        torch.testing.assert_close(AutoModelForPreTraining.from_pretrained(tmp_path)(make_batch(case)).loss, loss)

    def test_configuration_comes_back_equal(self, case: Case, saved: dict[Case, Path]) -> None:
        config = AutoConfig.from_pretrained(saved[case])
        assert type(config) is METHODS[case.method].config
        assert comparable(config) == comparable(make_model(case).config)

    @pytest.mark.slow
    def test_loads_where_the_package_is_not_installed(self, case: Case, remote: dict[str, Any]) -> None:
        model, result = make_model(case), remote[case.name]
        assert result["loss"] == pytest.approx(model(make_batch(case)).loss.item(), abs=0, rel=ROUNDING)
        (first, *_) = make_batch(case).values()
        pooled = model.encoder(first["input_ids"], first["attention_mask"]).pooler_output
        assert result["pooler_output"] == pooled.tolist()
        assert result["encoder_sum"] == sum(p.abs().sum().item() for p in model.encoder.parameters())
        assert result["saved_again_loss"] == pytest.approx(result["loss"], abs=0, rel=ROUNDING)
        assert result["classes"] == [METHODS[case.method].config.__name__, METHODS[case.method].encoder.__name__]
        assert all(module.startswith("transformers_modules.") for module in result["modules"])


# bfloat16 is slow on a CPU without it: in the fast tier with the two kinds of layers alone, BERT's and ModernBERT's.
KINDS_OF_LAYERS = ("bert", "modernbert")
each_precision = pytest.mark.parametrize(
    "case",
    [case if case.backbone in KINDS_OF_LAYERS else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
    ids=[case.name for case in CASES],
)


@each_precision
class TestPrecision:
    def test_bfloat16_autocast_gives_about_the_same_losses(self, case: Case) -> None:
        rows = [row for seed in range(60) for row in make_rows(case, seed)]  # enough for a loss in chunks
        model, views = make_model(case).float(), stack(rows, case)
        plain = model(views)
        with torch.autocast("cpu", torch.bfloat16):
            output = model(views)
        output.loss.backward()
        assert {value.dtype for value in output.losses.values()} == {torch.float32}
        assert_same(output.losses, plain.losses, tolerance=0.05)
        assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())


@each_mean
class TestMean:
    """What differs where the mean of a text's states is its bottleneck."""

    def test_bottleneck_is_mean_pooling_of_sentence_transformers(self, case: Case) -> None:
        model, views = make_model(case), make_batch(case, extra=3)
        output, hidden = with_states(model, views, lambda states: None)
        for name, bottleneck in output.bottlenecks.items():
            mask = views[name]["attention_mask"]
            read = {"token_embeddings": hidden[name], "attention_mask": mask}
            expected = Pooling(HIDDEN, pooling_mode="mean")(read)["sentence_embedding"]
            torch.testing.assert_close(bottleneck, expected, rtol=1e-14, atol=1e-14)
            alone = model.encoder(views[name]["input_ids"], mask)
            torch.testing.assert_close(alone.pooler_output, bottleneck, **rounding(case))
            row = model.encoder(views[name]["input_ids"][:1, : LENGTHS[0]])  # no mask: no padding
            torch.testing.assert_close(row.pooler_output[0], bottleneck[0], **rounding(case))

    def test_every_token_and_no_padding_sends_the_bottlenecks_gradient_on(self, case: Case) -> None:
        model, views = make_model(case), make_batch(case)
        output, hidden = with_states(model, views, lambda states: None)
        reading = {name: spec.encoder for name, spec in model.config.decoder_specs.items()} | model.config.contrasts
        for name, encoder in reading.items():
            mask = views[encoder]["attention_mask"].double()
            wanted = [output.bottlenecks[encoder], hidden[encoder]]
            whole, each = torch.autograd.grad(output.losses[name], wanted, retain_graph=True)
            assert (whole.norm(dim=-1) > 0).all()
            share = (mask / mask.sum(dim=1, keepdim=True))[:, :, None]
            torch.testing.assert_close(each, whole[:, None] * share)

    def test_decoders_see_the_encoder_through_the_mean_only(self, case: Case) -> None:
        model, views = make_model(case), make_batch(case)
        before = model(views).losses

        def swap(hidden: Tensor) -> None:  # between two tokens that every text has; the mean stays
            hidden[:, 1:3] += torch.stack([torch.ones(HIDDEN), -torch.ones(HIDDEN)])

        same = perturbed(model, views, swap).losses
        other = perturbed(model, views, lambda hidden: hidden[:, 2].normal_()).losses
        for name in [*model.config.decoder_specs, *model.config.contrasts]:
            torch.testing.assert_close(same[name], before[name], rtol=1e-12, atol=0)
            assert not torch.isclose(other[name], before[name])
        for name in model.config.encoder_specs:
            assert not torch.isclose(same[name], before[name])

    test_more_padding_changes_nothing = TestPadding.test_more_padding_changes_nothing
    test_what_stands_at_padding_is_never_read = TestPadding.test_what_stands_at_padding_is_never_read
    test_every_parameter_is_trained = TestLosses.test_every_parameter_is_trained
    test_bfloat16_autocast = TestPrecision.test_bfloat16_autocast_gives_about_the_same_losses
    test_pretraining_model_comes_back_equal = TestSaving.test_pretraining_model_comes_back_equal
    test_configuration_comes_back_equal = TestSaving.test_configuration_comes_back_equal
    test_loads_where_the_package_is_not_installed = TestSaving.test_loads_where_the_package_is_not_installed


LOAD_WITHOUT_PACKAGE = """
import json, sys
sys.modules["hf_dense"] = None
import torch
from transformers import AutoConfig, AutoModel, AutoModelForPreTraining

root, again, names = sys.argv[1], sys.argv[2], sys.argv[3:]
results = {}
for name in names:
    path = f"{root}/{name}"
    config = AutoConfig.from_pretrained(path, trust_remote_code=True)
    encoder = AutoModel.from_pretrained(path, trust_remote_code=True)
    model = AutoModelForPreTraining.from_pretrained(path, trust_remote_code=True)
    model.save_pretrained(f"{again}/{name}")
    copy = AutoModelForPreTraining.from_pretrained(f"{again}/{name}", trust_remote_code=True)
    views = torch.load(f"{path}/views.pt", weights_only=True)
    first, *_ = views.values()
    results[name] = {
        "classes": [type(config).__name__, type(encoder).__name__],
        "modules": [type(thing).__module__ for thing in (config, encoder, model, copy)],
        "encoder_sum": sum(p.abs().sum().item() for p in encoder.parameters()),
        "pooler_output": encoder(first["input_ids"], first["attention_mask"]).pooler_output.tolist(),
        "loss": model(views).loss.item(),
        "saved_again_loss": copy(views).loss.item(),
    }
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def remote(saved: dict[Case, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process that cannot import hf_dense makes of the checkpoints of all methods."""
    root = next(iter(saved.values())).parent
    for case, path in saved.items():
        torch.save(make_batch(case), path / "views.pt")
    home = tmp_path_factory.mktemp("home")
    done = subprocess.run(
        [sys.executable, "-c", LOAD_WITHOUT_PACKAGE, str(root), str(home / "again"), *(case.name for case in saved)],
        env={**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


@pytest.fixture
def library_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """`caplog` with what transformers' loggers say."""
    transformers_logging.enable_propagation()
    with caplog.at_level(logging.WARNING):
        yield caplog
    transformers_logging.disable_propagation()


def announced(log: pytest.LogCaptureFixture) -> list[str]:
    """The parts that `from_backbone` says it had to initialise."""
    lines = [record.getMessage() for record in log.records if record.getMessage().startswith("Newly initialised")]
    return [part for line in lines for part in line.rstrip(".").rpartition(": ")[2].split(", ")]


def started_at_random(model: BottleneckForPreTraining) -> list[str]:
    """The decoders that do not start as copies of encoder layers, and heads that no encoder has."""
    decoders = [name for name, spec in model.config.decoder_specs.items() if spec.init == "random" and not spec.shares]
    return [*(f"decoders.{name}" for name in decoders), *(f"bag_heads.{name}" for name in model.bag_heads)]


def changes_of(case: Case) -> dict[str, Any]:
    return VARIANTS.get((case.method, case.variant), {})


@each_case
class TestFromBackbone:
    def test_masked_language_model_gives_encoder_and_head(
        self, case: Case, tmp_path: Path, library_log: pytest.LogCaptureFixture
    ) -> None:
        source = AutoModelForMaskedLM.from_config(BACKBONES[case.backbone](0.1)).eval()
        randomise(source, seed=3)
        source.save_pretrained(tmp_path)
        model = METHODS[case.method].pretraining.from_backbone(tmp_path, **changes_of(case)).eval()
        assert announced(library_log) == started_at_random(model)
        assert_same(model.encoder.backbone.state_dict(), source.base_model.state_dict(), tolerance=0.0)
        ids = torch.randint(5, VOCABULARY, (2, 5))
        scores = source(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        expected = torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids.flatten(), reduction="sum")
        hidden = model.encoder(ids, torch.ones_like(ids)).last_hidden_state
        torch.testing.assert_close(model.score(hidden.flatten(0, 1), ids.flatten(), "mlm"), expected)

    def test_headless_encoder_gives_the_encoder(
        self, case: Case, tmp_path: Path, library_log: pytest.LogCaptureFixture
    ) -> None:
        source = build_backbone(BACKBONES[case.backbone](0.1))
        randomise(source, seed=3)
        source.save_pretrained(tmp_path)
        model = METHODS[case.method].pretraining.from_backbone(tmp_path, **changes_of(case))
        assert announced(library_log) == [*started_at_random(model), "head"]
        assert_same(model.encoder.backbone.state_dict(), source.state_dict(), tolerance=0.0)
        assert all(torch.isfinite(parameter).all() for parameter in model.parameters())

    def test_declaration_can_be_changed_on_the_way(self, case: Case, tmp_path: Path) -> None:
        AutoModelForMaskedLM.from_config(BACKBONES[case.backbone](0.1)).save_pretrained(tmp_path)
        cls = METHODS[case.method].pretraining
        name = next(iter(METHODS[case.method].config().encoder_specs))
        model = cls.from_backbone(tmp_path, encoders={name: {"view": {"rate": 0.4}}}, crop="random")
        assert model.config.encoder_specs[name].view.rate == 0.4
        assert model.config.crop == "random"
        assert model.config.backbone_config.hidden_size == HIDDEN


@pytest.mark.parametrize("case", REFUSED, ids=[case.name for case in REFUSED])
def test_what_cannot_work_is_refused_in_one_sentence(case: Case) -> None:
    with pytest.raises(ValueError, match=REFUSED[case]) as caught:
        METHODS[case.method].config(backbone_config=BACKBONES[case.backbone](0.1))
    assert "\n" not in str(caught.value)
