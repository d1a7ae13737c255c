"""A checkpoint pushed to a Hub is loaded from it by somebody who does not have the package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "pin", "memory", "in", "a", "data", "loader"]

PUSH = """
import json, sys
import torch
from transformers import BertConfig, BertTokenizer
from hf_dense import RetroMAEConfig, RetroMAEForPreTraining

torch.manual_seed(0)
tokenizer = BertTokenizer(sys.argv[1])
backbone = BertConfig(
    vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
)
model = RetroMAEForPreTraining(RetroMAEConfig(backbone_config=backbone)).eval()
model.push_to_hub("someone/docs-retromae")
tokenizer.push_to_hub("someone/docs-retromae")
batch = tokenizer(["pin memory in a data loader"], return_tensors="pt")
print(json.dumps({
    "ids": batch["input_ids"][0].tolist(),
    "bottleneck": model.encoder(**batch).pooler_output[0].tolist(),
    "decoder": model.decoders["decoder"].layers[0].up.weight.sum().item(),
}))
"""

LOAD = """
import json, sys
sys.modules["hf_dense"] = None
from transformers import AutoConfig, AutoModel, AutoModelForPreTraining, AutoTokenizer

name = "someone/docs-retromae"
try:
    AutoModel.from_pretrained(name, trust_remote_code=False)
    refused = ""
except ValueError as error:
    refused = str(error)
tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
encoder = AutoModel.from_pretrained(name, trust_remote_code=True)
model = AutoModelForPreTraining.from_pretrained(name, trust_remote_code=True)
batch = tokenizer(["pin memory in a data loader"], return_tensors="pt")
print(json.dumps({
    "ids": batch["input_ids"][0].tolist(),
    "bottleneck": encoder(**batch).pooler_output[0].tolist(),
    "decoder": model.decoders["decoder"].layers[0].up.weight.sum().item(),
    "crop": AutoConfig.from_pretrained(name, trust_remote_code=True).crop,
    "refused": refused,
    "classes": [type(encoder).__name__, type(model).__name__],
}))
"""


def test_checkpoint_travels_through_the_hub(hub_client: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(VOCABULARY))
    pushed = hub_client(PUSH, str(vocabulary))
    loaded = hub_client(LOAD)
    assert loaded["ids"] == pushed["ids"] == [2, 5, 6, 7, 8, 9, 10, 3]
    assert loaded["bottleneck"] == pytest.approx(pushed["bottleneck"], abs=1e-6)
    assert loaded["decoder"] == pytest.approx(pushed["decoder"], abs=1e-6)
    assert loaded["crop"] == "head"
    assert loaded["classes"] == ["RetroMAEModel", "RetroMAEForPreTraining"]
    assert "trust_remote_code=True" in loaded["refused"]
