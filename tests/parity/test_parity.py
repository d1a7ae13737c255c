"""The engine reproduces the released implementations: losses, bottlenecks and gradients, recorded from their code.

`data/<name>/`: weights under the reference's names, its inputs after masking, and what it computes from them; see
`data/README.md`. `dupmae` is here for RetroMAE's second query stream, which its code introduced; it has one more loss,
not computed here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from recorded_references import (
    DATA,
    METHODS,
    OUR_BOTTLENECKS,
    SIZES,
    our_name,
    recorded_results,
    recorded_views,
    recorded_weights,
    reference_losses,
    reference_model,
)
from torch import Tensor
from transformers import BertConfig

from hf_dense import BottleneckConfig, InputError
from hf_dense.hub.convert import REFERENCES, load_reference
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining, PreTrainingOutput
from hf_dense.modeling.modeling_simlm import SimLMForPreTraining

DTYPES = [torch.float64, torch.float32]


@dataclass
class Run:
    """One step of our engine on recorded weights and inputs."""

    expected: dict[str, Any]
    output: PreTrainingOutput
    gradients: dict[str, Tensor]


@cache
def run(name: str, dtype: torch.dtype) -> Run:
    model = reference_model(name)
    load_reference(model, recorded_weights(name))
    model.to(dtype)
    output = model(recorded_views(name))
    output.loss.backward()
    gradients = {key: parameter.grad for key, parameter in model.named_parameters() if parameter.requires_grad}
    return Run(recorded_results(name), output, gradients)


def gradient_norms(result: Run, method: str, floor: float) -> tuple[dict[str, float], dict[str, float]]:
    """The norm of each gradient, ours and the recorded one, under our names."""
    norms, recorded = {}, {}
    for name, expected in result.expected["grad_l2_norm_of_total_loss"].items():
        ours = REFERENCES[method].rename(name)
        if ours is None:
            assert expected < floor, f"{name} is listed as dead but has a gradient"
            continue
        norms[ours], recorded[ours] = result.gradients[ours].norm().item(), expected
    return norms, recorded


# A key bias shifts all scores of a row alike, so its true gradient is 0; what is left is rounding.
FLOOR = {torch.float64: 1e-6, torch.float32: 1e-3}

# In float64 all is the same but for rounding; the references of DupMAE and SEED-Encoder compute a part in float32.
ERROR = {torch.float64: 1e-9, torch.float32: 1e-5}
PARTLY_SINGLE = {"dupmae": 3e-7, "seed_encoder": 3e-7}
GRADIENT_ERROR = {torch.float64: 1e-9, torch.float32: 1e-4}  # relative


def close(expected: Any, name: str, dtype: torch.dtype) -> Any:
    """Equal to what a reference computed, which no NaN is."""
    error = max(ERROR[dtype], PARTLY_SINGLE.get(name, 0.0))
    return pytest.approx(expected, abs=error, rel=0)


def close_norms(expected: dict[str, float], name: str, dtype: torch.dtype) -> Any:
    """The same of norms of gradients, relative to what is recorded or to the floor, whichever is more."""
    relative = max(GRADIENT_ERROR[dtype], PARTLY_SINGLE.get(name, 0.0))
    return {key: pytest.approx(norm, abs=relative * FLOOR[dtype], rel=relative) for key, norm in expected.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", METHODS)
def test_losses_match(name: str, dtype: torch.dtype) -> None:
    result = run(name, dtype)
    losses = {key: value.item() for key, value in result.output.losses.items()}
    assert losses == close(reference_losses(result.expected), name, dtype)
    assert result.output.loss.item() == close(result.expected["expected"]["total"], name, dtype)


@pytest.mark.parametrize("name", METHODS)
def test_losses_match_those_that_the_reference_computes_in_float32(name: str) -> None:
    result = run(name, torch.float32)
    theirs = {"expected": result.expected["expected_float32"]}
    losses = {key: value.item() for key, value in result.output.losses.items()}
    assert losses == close(reference_losses(theirs), name, torch.float32)
    assert result.output.loss.item() == close(theirs["expected"]["total"], name, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", METHODS)
def test_bottlenecks_match(name: str, dtype: torch.dtype) -> None:
    result = run(name, dtype)
    for theirs, values in result.expected["bottleneck"].items():
        ours = OUR_BOTTLENECKS.get(theirs, "encoder")
        assert result.output.bottlenecks[ours].detach().numpy() == close(np.array(values), name, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
def test_every_gradient_norm_matches(method: str, dtype: torch.dtype) -> None:
    result = run(method, dtype)
    norms, recorded = gradient_norms(result, method, FLOOR[dtype])
    assert norms == close_norms(recorded, method, dtype)
    unrecorded = set(result.gradients) - set(norms)
    assert unrecorded == set(REFERENCES[method].zeros)


def drawing(model: SimLMForPreTraining, view: dict[str, Tensor], drawn: Tensor) -> dict[str, Tensor]:
    """`view` with the uniform numbers by which the generator draws given tokens: the middle of what belongs to each."""
    masked = view["labels"] != -100
    view = {**view, "uniform": torch.where(masked, 0.0, -1.0).double()}
    with torch.no_grad():
        predicted = model.generate(view)
        scores = torch.nn.functional.linear(predicted.features, predicted.words, predicted.bias)
        upper = scores.double().softmax(-1).cumsum(-1)
    tokens = drawn[masked][:, None]
    lower = torch.where(tokens > 0, upper.gather(1, (tokens - 1).clamp(min=0)), 0.0)
    view["uniform"][masked] = ((lower + upper.gather(1, tokens)) / 2).squeeze(1)
    return view


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_trained_generator_matches(dtype: torch.dtype) -> None:
    """A whole step: the generator draws what it drew in the reference, and is trained."""
    model = reference_model("simlm", generator_weight=0.2)
    load_reference(model, recorded_weights("simlm"))
    model.to(dtype)
    views = recorded_views("simlm")
    with np.load(DATA / "simlm" / "inputs.npz") as arrays:
        masked = {key: torch.from_numpy(arrays[f"enc_{key}"]) for key in ("input_ids", "attention_mask", "labels")}
        masked["token_type_ids"] = torch.from_numpy(arrays["enc_token_type_ids"])
        sampled = torch.from_numpy(arrays["enc_sampled_input_ids"])
    drawn = drawing(model, masked, sampled)
    filled = {**drawn, "labels": views["encoder"]["labels"]}
    (name,) = [name for name in recorded_results("simlm")["variants"] if name.startswith("generator_trained")]
    variant = recorded_results("simlm")["variants"][name]
    output = model({"encoder": filled, "decoder": views["decoder"]})
    losses = {key: value.item() for key, value in output.losses.items()}
    generator = {"generator": variant["components"]["g_mlm"]}
    assert losses == close(reference_losses({"expected": variant}) | generator, "simlm", dtype)
    assert output.loss.item() == close(variant["total"], "simlm", dtype)
    output.loss.backward()
    gradients = {key: parameter.grad for key, parameter in model.named_parameters()}
    recorded = {REFERENCES["simlm"].rename(key): norm for key, norm in variant["grad_norm_generator"].items()}
    norms = {key: gradients[key].norm().item() for key in recorded}
    assert norms == close_norms(recorded, "simlm", dtype)


def test_as_large_a_share_of_tokens_is_replaced_as_the_reference_counts() -> None:
    view = recorded_views("simlm")["encoder"]
    replaced = (view["input_ids"] != view["labels"])[view["labels"] != -100].sum() / view["attention_mask"].sum()
    assert replaced.item() == pytest.approx(
        recorded_results("simlm")["expected"]["components"]["replace_ratio"], abs=1e-6
    )


def test_gradcache_as_released_is_the_contrast_of_all_and_two_thirds_of_the_rest_by_chunks() -> None:
    """Chunks of two spans of three documents: the release takes 2 / 3 as the chunk's weight, where 2 / 6 is meant."""
    model = reference_model("cocondenser")
    load_reference(model, recorded_weights("cocondenser"))
    model.double()
    views, variant = recorded_views("cocondenser")["encoder"], recorded_results("cocondenser")["variants"]
    recorded = variant["gradcache_chunk2"]
    contrast = model({"encoder": views}).losses["encoder_contrast"]
    assert contrast.item() == close(recorded["contrastive"], "cocondenser", torch.float64)
    parts = [model({"encoder": {key: rows[at : at + 2] for key, rows in views.items()}}).losses for at in (0, 2, 4)]
    chunks = torch.stack([(losses["encoder"] + losses["decoder"]) * 2 / 3 for losses in parts])
    assert chunks.tolist() == close(recorded["mlm_chunk_losses"], "cocondenser", torch.float64)
    (contrast + chunks.sum()).backward()
    gradients = {key: parameter.grad for key, parameter in model.named_parameters()}
    norms = {REFERENCES["cocondenser"].rename(key): norm for key, norm in recorded["grad_norm_of_pooled"].items()}
    assert {key: gradients[key].norm().item() for key in norms} == close_norms(norms, "cocondenser", torch.float64)


def test_the_two_query_streams_of_retromae_differ() -> None:
    model = reference_model("retromae")
    load_reference(model, recorded_weights("dupmae"))
    loss = model(recorded_views("dupmae")).losses["decoder"].item()
    assert abs(loss - reference_losses(recorded_results("dupmae"))["decoder"]) > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_number_of_scored_tokens(method: str) -> None:
    recorded = recorded_results(method)["loss_positions"]
    expected = {our_name(key): count for key, count in recorded.items() if key != "generator_mlm"}
    counts = reference_model(method).count_scored(recorded_views(method))
    assert {key: int(count) for key, count in counts.items() if key in expected} == {
        key: count for key, count in expected.items() if "_bag" not in key
    }


State = dict[str, Tensor]


def drop_a_layer_tensor(state: State) -> None:
    del state[next(name for name in state if "c_head" in name or "fc1" in name or name.startswith("decoder.0"))]


def add_a_stranger(state: State) -> None:
    state["stranger"] = torch.zeros(1)


def shrink_the_vocabulary(state: State) -> None:
    state.update({name: tensor[:-1] for name, tensor in state.items() if tensor.shape == (400, 64)})


def untie_the_output_words(state: State) -> None:
    prefixes = ("lm.", "encoder.", "")
    (name,) = set(state) & {*(f"{prefix}cls.predictions.decoder.weight" for prefix in prefixes), "lm_head.weight"}
    state[name] = state[name] + 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_a_layer_tensor, "missing from the reference: "),
        (add_a_stranger, "of unknown name: stranger"),
        (shrink_the_vocabulary, "of another shape: "),
        (untie_the_output_words, "different though tied: "),
    ],
)
def test_weights_that_do_not_fit_are_named(method: str, change: Callable[[State], None], message: str) -> None:
    model, state = reference_model(method), recorded_weights(method)
    change(state)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(InputError, match=message):
        load_reference(model, state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_more_decoder_layers_than_the_model_has_are_refused() -> None:
    model = reference_model("cotmae", decoders={"decoder": {"layers": 1}})
    with pytest.raises(InputError, match=r"not in the model: decoders\.decoder\.layers\.1\."):
        load_reference(model, recorded_weights("cotmae"))


def test_a_method_without_a_table_is_refused() -> None:
    config = BottleneckConfig(backbone_config=BertConfig(**SIZES), encoders={"encoder": {}})
    with pytest.raises(
        InputError, match="No reference names are known for 'bottleneck'; there are: condenser, cocondenser"
    ):
        load_reference(BottleneckForPreTraining(config), {})


def test_poolers_and_position_ids_of_released_checkpoints_are_passed_over() -> None:
    model, state = reference_model("cotmae"), recorded_weights("cotmae")
    state["bert.embeddings.position_ids"] = torch.arange(48)[None]
    state["bert.pooler.dense.weight"] = torch.zeros(64, 64)
    load_reference(model, state)
    expected = state["c_head.1.output.dense.weight"]
    assert torch.equal(model.state_dict()["decoders.decoder.layers.1.down.weight"], expected)
