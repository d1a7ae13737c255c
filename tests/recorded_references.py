"""What the released implementations computed, as it is recorded in `parity/data`: weights, inputs, results.

Nothing of the tests' tools is imported, so that a benchmark can compare with it on another device.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import BertConfig

from hf_dense.methods import get_method
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining

DATA = Path(__file__).parent / "parity" / "data"
METHODS = ["condenser", "cocondenser", "cotmae", "dupmae", "master", "retromae", "seed_encoder", "simlm"]
SIZES = {
    "vocab_size": 400,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 48,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
GENERATOR = {
    "vocab_size": 400,
    "embedding_size": 48,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 48,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}

Views = dict[str, dict[str, Tensor]]

# Our views by the prefixes of the reference's ids and attention mask.
MASTER_VIEWS = {
    "encoder": ("", ""),
    "half": ("next_encoder_", "next_encoder_"),
    "complement_encoder": ("overlap_encoder_", ""),
    "keywords": ("decoder_", ""),
    "queries": ("query_", "query_"),
    "continuation": ("gpt_", "gpt_"),
    "neighbour": ("next_decoder_", "next_decoder_"),
    "complement": ("overlap_decoder_", ""),
}


def reference_model(method: str, **changes: Any) -> BottleneckForPreTraining:
    if method == "seed_encoder":
        backbone = BertConfig(**SIZES, num_hidden_layers=3, layer_norm_eps=1e-5, pad_token_id=1)
    else:
        backbone = BertConfig(**SIZES, num_hidden_layers=3 if method == "master" else 4)
    if method == "simlm":
        changes = {"generator_config": GENERATOR, **changes}
    classes = get_method(method)
    return classes.pretraining(classes.config(backbone_config=backbone, **changes))


def view(ids: Tensor, mask: Tensor, labels: Tensor, **more: Tensor) -> dict[str, Tensor]:
    return {"input_ids": ids, "attention_mask": mask, "labels": labels, **more}


def recorded_views(name: str) -> Views:
    with np.load(DATA / name / "inputs.npz") as arrays:
        x = {key: torch.from_numpy(arrays[key]) for key in arrays}
    if name == "cotmae":
        encoder = view(x["input_ids"], x["attention_mask"], x["labels"])
        decoder = view(x["decoder_input_ids"], x["decoder_attention_mask"], x["decoder_labels"])
    elif name in ("condenser", "cocondenser"):
        return {"encoder": view(x["input_ids"], x["attention_mask"], x["labels"])}
    elif name == "master":
        return {
            ours: view(x[f"{ids}input_ids"], x[f"{mask}attention_mask"], x[f"{ids}labels"])
            for ours, (ids, mask) in MASTER_VIEWS.items()
        }
    elif name == "simlm":
        mask, types = x["enc_attention_mask"], x["enc_token_type_ids"]
        encoder = view(x["enc_sampled_input_ids"], mask, x["labels"], token_type_ids=types)
        decoder = view(x["dec_sampled_input_ids"], mask, x["labels"])
    elif name == "seed_encoder":
        encoder = view(x["src_tokens"], x["src_tokens"] != 1, x["encoder_labels"])
        decoder = view(x["prev_tokens"], x["prev_tokens"] != 1, x["decoder_labels"])
    else:
        mask = x["encoder_attention_mask"]
        encoder = view(x["encoder_input_ids"], mask, x["encoder_labels"])
        decoder = view(x["decoder_input_ids"], mask, x["decoder_labels"], visible=x["decoder_attention_mask"])
    return {"encoder": encoder, "decoder": decoder}


def recorded_weights(name: str) -> dict[str, Tensor]:
    return load_file(DATA / name / "weights.safetensors")


def recorded_results(name: str) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((DATA / name / "expected.json").read_text())
    return results


def reference_losses(expected: dict[str, Any]) -> dict[str, float]:
    """Recorded losses under our names."""
    parts = expected["expected"]["components"]
    unscored = ("replace_ratio", "g_mlm")
    return {our_name(key): value for key, value in parts.items() if key not in unscored}


# Where a reference does not say `encoder_mlm` and `decoder_mlm` or `decoder_lm`.
OUR_NAMES = {
    "late_mlm": "encoder",
    "head_mlm": "decoder",
    "contrastive": "encoder_contrast",
    "bow": "encoder_bag",
    "next_encoder_mlm": "half",
    "overlap_encoder_mlm": "complement_encoder",
    "decoder_self": "keywords",
    "decoder_query": "queries",
    "decoder_gpt": "continuation",
    "decoder_next": "neighbour",
    "decoder_overlap": "complement",
}


OUR_BOTTLENECKS = {"bottleneck_next": "half", "bottleneck_overlap": "complement_encoder"}


def our_name(loss: str) -> str:
    return OUR_NAMES.get(loss, loss.split("_")[0])
