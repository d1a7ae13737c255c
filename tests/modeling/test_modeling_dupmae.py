"""DupMAE's hybrid vectors: [CLS] projected, and the best entries of the vocabulary vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_backbones import BACKBONES, VOCABULARY
from torch import Tensor

from hf_dense import DupMAEConfig, DupMAEForPreTraining
from hf_dense.modeling.modeling_dupmae import DupMAEForRetrieval, hybrid_scores

OWN = {"encoder": {"bag": {"head": "own"}}}


def pretrained(directory: Path, encoders: dict[str, Any] | None = None) -> DupMAEForPreTraining:
    """A pre-training checkpoint on disk, with every bias random."""
    torch.manual_seed(0)
    config = DupMAEConfig(backbone_config=BACKBONES["bert"](0.0), encoders=encoders, dense_size=8, top_words=6)
    model = DupMAEForPreTraining(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(directory)
    return model


def texts(seed: int, rows: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, 10, (rows, 1), generator=generator)
    mask = (torch.arange(10) < lengths).long()
    return {"input_ids": torch.randint(5, VOCABULARY, mask.shape, generator=generator) * mask, "attention_mask": mask}


@pytest.mark.parametrize("encoders", [None, OWN], ids=["shared head", "own head"])
def test_vectors_are_what_the_pre_trained_parts_give(tmp_path: Path, encoders: dict[str, Any] | None) -> None:
    source = pretrained(tmp_path, encoders)
    model, report = DupMAEForRetrieval.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == {"projection.weight"}
    assert not report["unexpected_keys"]
    view = texts(1, rows=3)
    output, hidden = model.eval()(**view), source.encoder(**view).last_hidden_state
    torch.testing.assert_close(output.dense, hidden[:, 0] @ model.projection.weight.T)
    if encoders:
        scores = source.bag_heads["encoder"](hidden)
    else:
        scores = source.head(hidden) @ source.get_input_embeddings().weight.T + source.head.bias
    for row, length in enumerate(view["attention_mask"].sum(dim=1)):
        torch.testing.assert_close(output.words[row], scores[row, 1:length].max(dim=0).values)


def test_scores_are_equation_12_in_loops(tmp_path: Path) -> None:
    pretrained(tmp_path)
    model = DupMAEForRetrieval.from_pretrained(tmp_path).eval()
    queries, stored = model(**texts(1, rows=2)), model.passages(model(**texts(2, rows=3)))
    assert stored.values.shape == stored.tokens.shape == (3, 6)
    scores = hybrid_scores(queries, stored)
    for q in range(2):
        for d in range(3):
            dense = sum(queries.dense[q, i] * stored.dense[d, i] for i in range(8))
            words = sum(queries.words[q, stored.tokens[d, k]] * stored.values[d, k] for k in range(6))
            torch.testing.assert_close(scores[q, d], dense + words)


def test_passages_keep_their_best_words_and_padding_changes_nothing(tmp_path: Path) -> None:
    pretrained(tmp_path)
    model = DupMAEForRetrieval.from_pretrained(tmp_path).eval()
    view = texts(3, rows=2)
    output = model(**view)
    stored = model.passages(output)
    for row in range(2):
        assert stored.tokens[row].tolist() == output.words[row].argsort(descending=True)[:6].tolist()
    wide = {name: torch.nn.functional.pad(tensor, (0, 4)) for name, tensor in view.items()}
    torch.testing.assert_close(model(**wide).words, output.words)


def test_a_trained_model_comes_back_with_its_projection(tmp_path: Path) -> None:
    pretrained(tmp_path / "first")
    model = DupMAEForRetrieval.from_pretrained(tmp_path / "first").eval()
    model.save_pretrained(tmp_path / "second")
    again = DupMAEForRetrieval.from_pretrained(tmp_path / "second").eval()
    view = texts(4, rows=2)
    torch.testing.assert_close(again(**view).dense, model(**view).dense, atol=0, rtol=0)
