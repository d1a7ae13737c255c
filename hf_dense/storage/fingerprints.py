"""Fingerprints (SHA-256, hexadecimal): whether a file, a text, a model is the one that some work was made from."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hf_dense.errors import InputError
from hf_dense.storage.manifest import MANIFEST

if TYPE_CHECKING:
    from datasets import Dataset
    from tokenizers import Tokenizer
    from torch import nn
    from transformers import PreTrainedTokenizerBase

_BLOCK: Final = 1 << 20  # bytes read at once
_USUAL: Final = "right"  # side that too long texts are cut on


def fingerprint_files(files: Iterable[Path], root: Path) -> str:
    """Of the names, from `root`, and the bytes of some files."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(root).as_posix()}\0{file.stat().st_size}\0".encode("utf-8", "surrogatepass"))
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()


def fingerprint_path(path: str | Path) -> str:
    """Of a file's bytes, or of a directory's names and bytes.

    Manifests, the card of an output of ours, other outputs inside of it (a search index beside its model) and the
    checkpoints of a training have no part in it.

    Raises:
        InputError: nothing is there.
    """
    place = Path(path)
    if place.is_file():
        return fingerprint_files([place], place.parent)
    if not place.is_dir():
        raise InputError(f"There is no file or directory {path}.")
    return fingerprint_files(sorted(_content(place)), place)


def _content(directory: Path) -> Iterator[Path]:
    by_the_way = {MANIFEST, "README.md"} if (directory / MANIFEST).is_file() else set[str]()
    for place, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not _is_apart(Path(place) / name)]
        top = Path(place) == directory
        yield from (Path(place) / name for name in files if not (top and name in by_the_way))


def _is_apart(folder: Path) -> bool:
    """Whether a folder is an output of its own, or a checkpoint of a training."""
    checkpoint = folder.name.startswith("checkpoint-") and (folder / "trainer_state.json").is_file()
    return checkpoint or (folder / MANIFEST).is_file()


def fingerprint_texts(texts: Iterable[str]) -> str:
    """Of texts, in their order."""
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}\0".encode())
        digest.update(encoded)
    return digest.hexdigest()


def fingerprint_rows(rows: Dataset, columns: Iterable[str]) -> str:
    """Of some columns of a data set, in its order, wherever it was read from."""
    digest = hashlib.sha256()
    names = sorted(columns)
    digest.update(json.dumps(names).encode())
    for batch in rows.select_columns(names).with_format(None).iter(1000):
        digest.update(json.dumps([batch[name] for name in names], default=str).encode())
    return digest.hexdigest()


def fingerprint_weights(model: nn.Module) -> str:
    """Of the names, types, shapes and values of a model's weights."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"\0{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def fingerprint_tokenizer(tokenizer: PreTrainedTokenizerBase | Tokenizer) -> str:
    """Of all that decides on the tokens of a text; those of static embeddings are of no class of transformers."""
    from tokenizers import Tokenizer

    if isinstance(tokenizer, Tokenizer):
        return fingerprint_values({"model": json.loads(tokenizer.to_str())})
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        model: Any = sorted(tokenizer.get_vocab().items())
    else:  # padding and truncation are those of the last call
        model = {**json.loads(backend.to_str()), "padding": None, "truncation": None}
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    cut = {"cut": side} if (side := tokenizer.truncation_side) != _USUAL else {}
    return fingerprint_values({"model": model, "special": special, "class": type(tokenizer).__name__, **cut})


def fingerprint_values(values: Mapping[str, Any]) -> str:
    """Of settings, whatever JSON can hold, and strings of the rest."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()
