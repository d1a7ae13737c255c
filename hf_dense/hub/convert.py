"""Weights of the methods' released implementations, read into our models.

Every reference implementation has a table of names here. A table leaves nothing open: each of its tensors goes
somewhere or is listed as dead, and each of ours is filled, or loading fails with the names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hf_dense.errors import InputError
from hf_dense.modeling.bottleneck_backbones import FAMILIES
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining

Rule = tuple[str, str]


@dataclass(frozen=True)
class Reference:
    """The names of one released implementation.

    Args:
        rules: (regular expression of the whole reference name, our name). Tied copies are rules too: several reference
            names with one name of ours must hold equal tensors.
        dead: regular expressions of reference names that its forward pass never uses, or that only a pooler would.
        zeros: our names that the reference has no counterpart of; they are set to zero.
        skipped_positions: rows at the start of its position tables that stand for no position.
    """

    rules: tuple[Rule, ...]
    dead: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()
    skipped_positions: int = 0

    def rename(self, name: str) -> str | None:
        """Our name of a reference tensor; None for a dead one.

        Raises:
            KeyError: the table does not know the name.
        """
        for pattern, target in self.rules:
            if match := re.fullmatch(pattern, name):
                return match.expand(target)
        if any(re.fullmatch(pattern, name) for pattern in self.dead):
            return None
        raise KeyError(name)


_BACKBONE = "encoder.backbone"
_WORDS = f"{_BACKBONE}.embeddings.word_embeddings.weight"
_LAYER = r"decoders.decoder.layers.\g<layer>"

_BERT_PARTS = {theirs: ours for ours, theirs in FAMILIES["bert"].layer.items()}
_FAIRSEQ_ENCODER_PARTS = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
}
_FAIRSEQ_DECODER_PARTS = {
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.out_proj": "attention.output",
    "self_attn_layer_norm": "attention_norm",
    "encoder_attn.v_proj": "entry.value",
    "encoder_attn.out_proj": "entry.output",
    "fc1": "up",
    "fc2": "down",
    "final_layer_norm": "output_norm",
}


def _parts(source: str, target: str, parts: Mapping[str, str]) -> tuple[Rule, ...]:
    """Rules for the weights and biases of `parts` of the module `source` (regular expression), ours being `target`."""
    return tuple(
        (rf"{source}\.{re.escape(theirs)}\.(?P<kind>weight|bias)", rf"{target}.{ours}.\g<kind>")
        for theirs, ours in parts.items()
    )


def _masked_language_model(prefix: str) -> tuple[Rule, ...]:
    """Rules for a `BertForMaskedLM` whose names start with `prefix` (regular expression)."""
    head = rf"{prefix}cls\.predictions"
    return (
        (rf"{prefix}bert\.(?P<rest>(embeddings|encoder)\..*(weight|bias))", rf"{_BACKBONE}.\g<rest>"),
        *_parts(rf"{head}\.transform", "head", {"dense": "dense", "LayerNorm": "norm"}),
        (rf"{head}\.bias", "head.bias"),
        (rf"{head}\.decoder\.bias", "head.bias"),
        (rf"{head}\.decoder\.weight", _WORDS),
    )


_BERT_DEAD = (r".*embeddings\.position_ids", r"(lm\.)?bert\.pooler\..*", r"(lm\.)?cls\.seq_relationship\..*")
_SEED_ENCODER = r"seed_encoder\.encoder\.sentence_encoder"

# luyug/Condenser: `lm` is the masked language model, `c_head.0`, `c_head.1` the head's layers; `co_target` is a buffer.
_CONDENSER = Reference(
    rules=(*_masked_language_model(r"lm\."), *_parts(r"c_head\.(?P<layer>\d+)", _LAYER, _BERT_PARTS)),
    dead=(*_BERT_DEAD, r"co_target"),
)

# staoxiao/RetroMAE: `lm` is the masked language model, `c_head` the one decoder layer. Its DupMAE has the same names.
_RETROMAE = Reference(
    rules=(
        *_masked_language_model(r"lm\."),
        (r"decoder_embeddings\.(?P<rest>.*(weight|bias))", rf"{_BACKBONE}.embeddings.\g<rest>"),
        *_parts("c_head", "decoders.decoder.layers.0", _BERT_PARTS),
    ),
    dead=_BERT_DEAD,
)

# microsoft/SimXNS, MASTER: `lm` is the masked language model, one list of layers per decoder.
_MASTER_HEADS = {
    "c_head": "keywords",
    "query_head": "queries",
    "gpt_head": "continuation",
    "next_head": "neighbour",
    "overlap_head": "complement",
}

REFERENCES: dict[str, Reference] = {
    "condenser": _CONDENSER,
    "cocondenser": _CONDENSER,
    "retromae": _RETROMAE,
    "dupmae": _RETROMAE,
    "master": Reference(
        rules=(
            *_masked_language_model(r"lm\."),
            *(
                rule
                for theirs, ours in _MASTER_HEADS.items()
                for rule in _parts(rf"{theirs}\.(?P<layer>\d+)", rf"decoders.{ours}.layers.\g<layer>", _BERT_PARTS)
            ),
        ),
        dead=_BERT_DEAD,
    ),
    # microsoft/unilm, simlm: `encoder` is the masked language model, `decoder.0`, `decoder.1` the decoder's layers.
    "simlm": Reference(
        rules=(
            *_masked_language_model(r"encoder\."),
            *_parts(r"decoder\.(?P<layer>\d+)", _LAYER, _BERT_PARTS),
            (r"generator\.(?P<rest>.*(weight|bias))", r"generator.\g<rest>"),
        ),
        dead=(r".*embeddings\.position_ids",),
    ),
    # caskcsg/ir, cotmae: the model is a masked language model, `c_head.0`, `c_head.1`, ... are the decoder's layers.
    "cotmae": Reference(
        rules=(*_masked_language_model(""), *_parts(r"c_head\.(?P<layer>\d+)", _LAYER, _BERT_PARTS)),
        dead=_BERT_DEAD,
    ),
    # microsoft/SEED-Encoder: fairseq names. Positions start at pad + 1 = 2. The decoder attends to one vector, so the
    # softmax is 1 whatever query, key and the norm before the query are.
    "seed_encoder": Reference(
        rules=(
            (rf"{_SEED_ENCODER}\.embed_tokens\.weight", _WORDS),
            (r"decoder\.(embed_tokens|output_projection)\.weight", _WORDS),
            (r"lm_head\.weight", _WORDS),
            (rf"{_SEED_ENCODER}\.embed_positions\.weight", f"{_BACKBONE}.embeddings.position_embeddings.weight"),
            *_parts(_SEED_ENCODER, f"{_BACKBONE}.embeddings", {"emb_layer_norm": "LayerNorm"}),
            *_parts(
                rf"{_SEED_ENCODER}\.layers\.(?P<layer>\d+)",
                rf"{_BACKBONE}.encoder.layer.\g<layer>",
                _FAIRSEQ_ENCODER_PARTS,
            ),
            *_parts("lm_head", "head", {"dense": "dense", "layer_norm": "norm"}),
            (r"lm_head\.bias", "head.bias"),
            (r"decoder\.embed_positions\.weight", "decoders.decoder.embeddings.positions.weight"),
            *_parts("decoder", "decoders.decoder", {"layernorm_embedding": "embeddings.norm", "layer_norm": "norm"}),
            *_parts(r"decoder\.layers\.(?P<layer>\d+)", _LAYER, _FAIRSEQ_DECODER_PARTS),
        ),
        dead=(
            r"decoder\.version",
            r"decoder\.layers\.\d+\.encoder_attn\.[qk]_proj\.(weight|bias)",
            r"decoder\.layers\.\d+\.encoder_attn_layer_norm\.(weight|bias)",
        ),
        zeros=(f"{_BACKBONE}.embeddings.token_type_embeddings.weight",),
        skipped_positions=2,
    ),
}


@torch.no_grad()
def load_reference(model: BottleneckForPreTraining, state: Mapping[str, Tensor]) -> None:
    """Fill `model` with the weights of its method's released implementation, decoder included.

    Where a release keeps encoder and decoder in two files, give the union of their dictionaries. SEED-Encoder needs
    `BertConfig(layer_norm_eps=1e-5, pad_token_id=1)` and `max_position_embeddings` two less than its position table.

    Args:
        model: a model of the method with the reference's sizes; changed in place, only if everything fits.
        state: the reference's state dict.

    Raises:
        InputError: there is no table for the method, or tensors are unknown, missing, of another shape, or tied in
            our model and different in the reference; the message names them.
    """
    method = model.config.model_type
    if method not in REFERENCES:
        raise InputError(f"No reference names are known for {method!r}; there are: {', '.join(REFERENCES)}.")
    expected = model.state_dict()
    filled, problems = _rename_all(REFERENCES[method], state)
    for name in REFERENCES[method].zeros:
        filled[name] = torch.zeros_like(expected[name])
    problems["missing from the reference"] = sorted(set(expected) - set(filled))
    problems["not in the model"] = sorted(set(filled) - set(expected))
    problems["of another shape"] = [
        f"{name} {tuple(filled[name].shape)}, in the model {tuple(expected[name].shape)}"
        for name in sorted(set(filled) & set(expected))
        if filled[name].shape != expected[name].shape
    ]
    if any(problems.values()):
        found = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in problems.items() if names)
        raise InputError(f"These weights do not fit this {method} model. Tensors {found}.")
    model.load_state_dict(filled)


def _rename_all(reference: Reference, state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, list[str]]]:
    """The reference's tensors under our names, and the names that cannot be used, by kind of problem."""
    filled: dict[str, Tensor] = {}
    unknown: list[str] = []
    untied: list[str] = []
    for name, tensor in state.items():
        try:
            target = reference.rename(name)
        except KeyError:
            unknown.append(name)
            continue
        if target is None:
            continue
        if target.endswith(("position_embeddings.weight", "positions.weight")):
            tensor = tensor[reference.skipped_positions :]
        if target in filled and not torch.equal(filled[target], tensor):
            untied.append(f"{name} (tied to {target})")
        filled[target] = tensor
    return filled, {"of unknown name": unknown, "different though tied": untied}
