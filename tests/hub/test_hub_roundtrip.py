"""A checkpoint pushed to a Hub is loaded from it by somebody who does not have the package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_dense import METHODS

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


@pytest.mark.slow  # it starts a process of its own
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


PUSH_EVERY = """
import json, sys
import torch
from transformers import BertConfig, BertTokenizer
from hf_dense import METHODS

tokenizer = BertTokenizer(sys.argv[1])
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
batch = tokenizer(["pin memory in a data loader"], return_tensors="pt")
found = {}
for name, method in METHODS.items():
    torch.manual_seed(0)
    model = method.pretraining(method.config(backbone_config=BertConfig(vocab_size=len(tokenizer), **sizes))).eval()
    model.push_to_hub("someone/" + name)
    tokenizer.push_to_hub("someone/" + name)
    weights = sum(float(weight.double().abs().sum()) for weight in model.state_dict().values())
    found[name] = [model.encoder(**batch).pooler_output[0].tolist(), weights, type(model).__name__]
print(json.dumps(found))
"""

LOAD_EVERY = """
import json, sys
sys.modules["hf_dense"] = None
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

found = {}
for method in sys.argv[1:]:
    name = "someone/" + method
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)  # else transformers asks, needing none
    batch = tokenizer(["pin memory in a data loader"], return_tensors="pt")
    encoder = AutoModel.from_pretrained(name, trust_remote_code=True)
    model = AutoModelForPreTraining.from_pretrained(name, trust_remote_code=True)
    weights = sum(float(weight.double().abs().sum()) for weight in model.state_dict().values())
    found[method] = [encoder(**batch).pooler_output[0].tolist(), weights, type(model).__name__]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_every_method_travels_through_the_hub(hub_client: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """Its encoder, all that it was trained with, and its tokenizer, which needs no remote code."""
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(VOCABULARY))
    pushed = hub_client(PUSH_EVERY, str(vocabulary))
    loaded = hub_client(LOAD_EVERY, *pushed)
    assert len(pushed) == len(METHODS)
    for method, (bottleneck, weights, kind) in pushed.items():
        assert loaded[method][0] == pytest.approx(bottleneck, abs=1e-6), method
        assert loaded[method][1:] == [pytest.approx(weights, rel=1e-9), kind], method
