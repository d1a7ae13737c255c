"""Retrievers as ONNX files, for runtimes without PyTorch."""

from __future__ import annotations

import inspect
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import AutoTokenizer

from hf_dense.errors import InputError
from hf_dense.hub.export import write_export
from hf_dense.hub.fingerprints import retriever_fingerprint
from hf_dense.hub.hybrid import hybrid_head
from hf_dense.hub.loading import load_retriever, unread_prompts
from hf_dense.hub.retriever_settings import pools_prompts, query_length_of, settings_of
from hf_dense.hub.towers import two_encoders
from hf_dense.storage.output import Output
from hf_dense.storage.staged import Staged

_FILE, _OUTPUT = "model.onnx", "sentence_embedding"
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_TOLERANCE = 1e-4
_ONE_FILE = 2**31 - 2**20  # bytes of weights that an ONNX file holds; more go into a file beside it
_TRACED = ["one text", "and a longer text, so that the rows differ in length"]
_CHECKED = (["a"], ["some WORDS", "b", "and many more words than in the text before"], ["a long text " * 1000])


def export_onnx(retriever: str | Path, out: str | os.PathLike[str] | Output) -> Path:
    """Write a retriever as an ONNX file that goes from tokens to vectors, pooling and normalisation included.

    The file is compared to the model, on batches and lengths other than those it was made from, before it appears.

    Args:
        retriever: directory or Hub id of a Sentence-Transformers retriever without code of its own.
        out: where the directory appears, complete or not at all.

    Returns:
        The directory, with
        - `model.onnx`: `input_ids`, `attention_mask` and, where the encoder reads them, `token_type_ids`, all
          (batch, length) int64, to `sentence_embedding` (batch, dim) float32;
        - the tokenizer, whose `model_max_length` is the longest input;
        - `onnx.json`: names of the inputs and the output, the similarity, and the prompts that belong before texts.

    Raises:
        InputError: the packages of `hf_dense[onnx]` are absent, nothing to load, a model that PyTorch cannot export or
            whose file gives other vectors, or `out` holds something else (see `Output.stage`).
    """
    missing = [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]
    if missing:
        raise InputError(f"ONNX files need the package {missing[0]}; install it with pip install 'hf_dense[onnx]'.")
    model = load_retriever(retriever).to("cpu").float().eval()
    if two_encoders(model):
        raise InputError(f"{retriever} has two encoders, and an ONNX file holds one; export each as a retriever.")
    if model.transformers_model is None:
        raise InputError(f"{retriever} has no encoder of transformers, which an ONNX file is made from.")
    if hybrid_head(model):
        raise InputError(f"{retriever} cuts passages to their greatest words, not queries, which no ONNX file does.")
    if model.truncate_dim or getattr(model[0], "document_length", None):
        raise InputError(f"{retriever} has truncate_dim or document_length, which no ONNX file has; save it without.")
    if any(model.prompts.values()) and not pools_prompts(model):
        raise InputError(f"{retriever} leaves the states of its prompts out of its vectors, which no ONNX file can.")
    unread = unread_prompts(model)

    def write(work: Staged) -> None:
        work.facts |= settings_of(model).facts()
        names, file = _inputs(model), work.result / _FILE
        _trace(model, names, file)
        model.tokenizer.save_pretrained(work.result)
        _compare(model, names, file)
        facts = {
            "inputs": names,
            "output": _OUTPUT,
            "similarity": model.similarity_fn_name,
            "prompts": {role: prompt for role, prompt in model.prompts.items() if prompt and role not in unread},
            **({} if (queries := query_length_of(model)) is None else {"query_length": queries}),
        }
        (work.result / "onnx.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")

    return write_export(out, "ONNX retriever", retriever, retriever_fingerprint(model), write)


class _Vectors(nn.Module):
    """A retriever as a function of tensors alone."""

    def __init__(self, model: SentenceTransformer, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors: Tensor) -> Tensor:
        vectors: Tensor = self.model(dict(zip(self.names, tensors, strict=True)))[_OUTPUT]
        return vectors


def _inputs(model: SentenceTransformer) -> list[str]:
    """The tensors that both the tokenizer gives and the encoder reads."""
    encoder: Any = model[0].model
    read = inspect.signature(encoder.forward).parameters
    given = model.preprocess(_TRACED)
    return [name for name in _INPUTS if name in given and name in read]


def _trace(model: SentenceTransformer, names: list[str], file: Path) -> None:
    """Write the file, without the calls, by their paths on this machine, that each operation came from."""
    from onnxscript.ir.passes.common import ClearMetadataAndDocStringPass

    features = model.preprocess(_TRACED)
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    size = sum(tensor.nbytes for tensor in model.state_dict().values())
    try:
        with torch.no_grad():
            program = torch.onnx.export(
                _Vectors(model, names).eval(),
                tuple(features[name] for name in names),
                input_names=names,
                output_names=[_OUTPUT],
                dynamic_shapes=(tuple(free for _ in names),),
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise InputError(
            "PyTorch cannot export this model to ONNX; its encoder has an operation ONNX lacks."
        ) from error
    assert program is not None
    ClearMetadataAndDocStringPass()(program.model)
    program.save(file, external_data=size > _ONE_FILE)


def _compare(model: SentenceTransformer, names: list[str], file: Path) -> None:
    """Pass when the file, with the tokenizer beside it, and the model give the same vectors."""
    import onnxruntime

    tokenizer = AutoTokenizer.from_pretrained(file.parent, trust_remote_code=False)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for texts in _CHECKED:
        features, read = model.preprocess(texts), tokenizer(texts, padding=True, truncation=True, return_tensors="np")
        with torch.no_grad():
            expected = model({name: features[name] for name in names})[_OUTPUT].numpy()
        (found,) = session.run([_OUTPUT], {name: read[name] for name in names})
        apart = float(np.abs(found - expected).max() / max(1.0, float(np.abs(expected).max())))
        if not apart <= _TOLERANCE:
            raise InputError(
                f"The ONNX file gives vectors that differ from the model's by {apart:.1e}; none is written. The model "
                "may read texts by settings that no tokenizer keeps, such as do_lower_case."
            )
