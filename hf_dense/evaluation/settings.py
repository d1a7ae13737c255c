"""How a model reads texts and compares them, as far as it decides on results."""

from __future__ import annotations

from typing import Final

from sentence_transformers import CrossEncoder, SentenceTransformer

from hf_dense.hub.loading import unread_prompts
from hf_dense.hub.retriever_settings import length_of, query_length_of
from hf_dense.storage.fingerprints import fingerprint_weights

CUT: Final = "vectors"


def describe_model(model: SentenceTransformer | CrossEncoder) -> dict[str, str]:
    """Settings by name, ready for JSON and for tables.

    Args:
        model: a retriever or a cross-encoder.

    Returns:
        `modules` (pooling and its kind among them), `longest text` in tokens, `precision`, `weights` (the first digits
        of their SHA-256), and of a retriever its `similarity`, the `prompts` that are read and not empty, and to how
        many dimensions its `vectors` are cut, where they are.
    """
    modules = [
        type(module).__name__ + (f" ({module.pooling_mode})" if hasattr(module, "pooling_mode") else "")
        for module in model
    ]
    settings = {
        "modules": ", ".join(modules),
        "longest text": f"{model.max_seq_length} tokens",
        "precision": str(next((weight.dtype for weight in model.parameters()), "none")).removeprefix("torch."),
        "weights": fingerprint_weights(model)[:12],
    }
    if isinstance(model, SentenceTransformer):
        unread = unread_prompts(model)
        prompts = [f"{role}: {prompt!r}" for role, prompt in model.prompts.items() if prompt and role not in unread]
        settings |= {
            "longest text": _longest(model),
            "similarity": str(model.similarity_fn_name),
            "prompts": "; ".join(prompts) or "none",
        }
        if model.truncate_dim is not None:
            settings[CUT] = f"cut to {model.truncate_dim} dimensions"
    return settings


def _longest(model: SentenceTransformer) -> str:
    """The longest text, and the longest query where that is another."""
    length, queries = length_of(model), query_length_of(model)
    texts = "any" if length is None else f"{length} tokens"
    return f"{texts}, of a query {queries}" if queries not in (None, length) else texts
