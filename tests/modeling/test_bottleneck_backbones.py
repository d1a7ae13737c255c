"""Decoders on every family of backbones: the backbone's own layers, positions and vocabulary head."""

from __future__ import annotations

import pytest
import torch
from tiny_backbones import BACKBONES, HIDDEN, VOCABULARY
from torch import Tensor
from transformers import AutoModelForMaskedLM

from hf_dense import METHODS, BottleneckForPreTraining
from hf_dense.modeling.bottleneck_encoder import layer_masks
from hf_dense.modeling.bottleneck_layout import FlatRows

LENGTH = 11

each_backbone = pytest.mark.parametrize("backbone", BACKBONES)


def random_model(method: str, backbone: str, **changes: object) -> BottleneckForPreTraining:
    """A model in double precision, in evaluation mode, with every bias, norm and position random too."""
    torch.manual_seed(0)
    classes = METHODS[method]
    model = classes.pretraining(classes.config(backbone_config=BACKBONES[backbone](0.1), **changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def texts(rows: int = 3) -> dict[str, Tensor]:
    """Texts of different lengths."""
    lengths = torch.tensor([LENGTH, LENGTH - 4, LENGTH - 2])[:rows]
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    ids = torch.randint(5, VOCABULARY, mask.shape, generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids * mask, "attention_mask": mask}


@each_backbone
def test_a_decoder_that_copies_the_last_layers_computes_what_they_compute(backbone: str) -> None:
    """Layers, their attention windows, positions and final norm are the backbone's own."""
    model, view = random_model("simlm", backbone), texts()
    assert model.start_decoders() == []
    spec, stack = model.decoder_specs["decoder"], model.decoders["decoder"]
    output = model.encoder(**view, output_hidden_states=True)
    layout = FlatRows(view)
    memory = layout.flatten(output.hidden_states[-1 - spec.layers])
    masks = layer_masks(model.family, model.backbone, layout, memory, spec)
    decoded = stack(memory, memory, masks, memory[layout.where[:, 0]])
    torch.testing.assert_close(decoded, layout.flatten(output.last_hidden_state), atol=1e-5, rtol=0)


@each_backbone
def test_decoders_embed_a_text_as_the_backbone_does(backbone: str) -> None:
    model, view = random_model("cotmae", backbone), texts(rows=1)
    expected = model.encoder(**view, output_hidden_states=True).hidden_states[0]
    layout = FlatRows(view)
    embedded = model.family.embed(model.backbone, layout.positions, layout.input_ids)
    torch.testing.assert_close(embedded, layout.flatten(expected))


@each_backbone
def test_the_query_of_retromae_knows_its_position(backbone: str) -> None:
    """Two positions that see the same tokens are told apart, also where the backbone has no position table."""
    model, view = random_model("retromae", backbone), texts(rows=1)
    visible = torch.zeros(1, LENGTH, LENGTH, dtype=torch.bool)
    visible[:, :, [0, 1, 2]] = True
    bottleneck = torch.randn(1, HIDDEN, dtype=torch.float64)
    decoded = model.decode("decoder", FlatRows({**view, "visible": visible}), bottleneck)
    distances = torch.cdist(decoded, decoded) + torch.eye(LENGTH)
    assert distances.min() > 1e-3


@each_backbone
def test_texts_as_long_as_the_backbone_allows_can_be_read(backbone: str) -> None:
    model = random_model("seed_encoder" if backbone != "electra-small" else "cotmae", backbone)
    longest = model.family.shape(model.config.backbone).positions
    assert longest in (24, 22, 23)
    ids = torch.full((2, longest), 7)
    view = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    assert torch.isfinite(model(dict.fromkeys(model.config.views, view)).loss)


@each_backbone
def test_the_head_scores_as_the_masked_language_model_does(backbone: str, tmp_path: object) -> None:
    source = AutoModelForMaskedLM.from_config(BACKBONES[backbone](0.1)).eval()
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    source.save_pretrained(str(tmp_path))
    model = METHODS["retromae"].pretraining.from_backbone(str(tmp_path)).eval()
    view = texts()
    words = model.get_input_embeddings().weight
    scores = model.head(model.encoder(**view).last_hidden_state) @ words.T + model.head.bias
    kept = view["attention_mask"].bool()
    torch.testing.assert_close(scores[kept], source(**view).logits[kept], atol=1e-5, rtol=1e-5)


@each_backbone
def test_token_types_reach_backbones_that_have_them_only(backbone: str) -> None:
    model, view = random_model("condenser", backbone), texts()
    view["labels"] = view["input_ids"].masked_fill(view["attention_mask"] == 0, -100)
    second = {**view, "token_type_ids": view["attention_mask"].clone()}
    losses = [model({"encoder": given}).loss for given in (view, second)]
    told_apart = backbone in ("bert", "electra", "electra-small")
    assert torch.equal(*losses) != told_apart


def test_modernbert_copies_no_first_layer_and_keeps_windows() -> None:
    model = random_model("simlm", "modernbert")
    assert model.decoders["decoder"].kinds == ["sliding_attention", "sliding_attention"]
    assert random_model("cotmae", "modernbert").decoders["decoder"].kinds == ["full_attention", "full_attention"]
    with pytest.raises(ValueError, match="copies 3 encoder layers; the encoder has 3, whose first cannot be copied"):
        random_model("simlm", "modernbert", decoders={"decoder": {"layers": 3}})


def test_new_decoder_layers_need_a_backbone_that_sees_the_whole_text() -> None:
    sliding = BACKBONES["modernbert"](0.0)
    sliding.layer_types = ["sliding_attention"] * 3
    with pytest.raises(ValueError, match=r"decoder 'decoder', see the whole text, .* 'full_attention' in layer_types"):
        METHODS["retromae"].config(backbone_config=sliding)
    config = METHODS["simlm"].config(backbone_config=sliding)  # copies its layers
    view = {**texts(), "labels": texts()["input_ids"]}
    model = METHODS["simlm"].pretraining(config)
    assert torch.isfinite(model(dict.fromkeys(config.views, view)).loss)
