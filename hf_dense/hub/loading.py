"""Loading encoders, tokenizers and retrievers by directory or Hub id, with errors a user can act on."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeGuard

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.util import is_sentence_transformer_model, load_file_path
from tokenizers import Tokenizer
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_dense.data.hub_names import model_folder
from hf_dense.data.passages import check_longest, check_tokenizer
from hf_dense.data.tokenizers import rows_read
from hf_dense.errors import InputError, as_sentence, first_line
from hf_dense.hub.towers import check_one_encoder, parts_of
from hf_dense.methods import METHODS
from hf_dense.modeling.bottleneck_backbones import FAMILIES, quiet_loading

logger = logging.getLogger(__name__)

_LAYERS: Final = 1_000  # of an encoder at most
_LENGTHS: Final = ("max_seq_length", "query_length", "document_length")  # that a module of an encoder may say
_DENSE: Final = "SentenceTransformer"  # what makers of dense vectors say that they are, or nothing


def load_encoder(checkpoint: str | Path) -> PreTrainedModel:
    """Load the plain transformers encoder, without a pooler, of an hf_dense checkpoint or of a plain one.

    Raises:
        InputError: nothing there that transformers can load, or an encoder that needs remote code.
    """
    check_one_encoder(checkpoint)
    _check_directory(checkpoint)
    with plain_loading("an encoder", checkpoint):
        place = model_folder(checkpoint)
        model, loaded = AutoModel.from_pretrained(place, trust_remote_code=False, output_loading_info=True)
        _check_whole(loaded, checkpoint)
    encoder: PreTrainedModel = getattr(model, "backbone", model)
    if not type(encoder).__module__.startswith("transformers."):
        raise InputError(
            f"The encoder of {checkpoint} is a {type(encoder).__name__}, which is not part of transformers."
        )
    drop_pooler(encoder)
    check_dropout(encoder, checkpoint)
    if hasattr(encoder.config, "auto_map"):
        del encoder.config.auto_map
    return encoder


def load_tokenizer(checkpoint: str | Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer beside a checkpoint.

    Raises:
        InputError: no tokenizer there; transformers itself would go on with an empty vocabulary.
    """
    check_one_encoder(checkpoint)
    _check_directory(checkpoint)
    with plain_loading("a tokenizer", checkpoint):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            model_folder(checkpoint), trust_remote_code=False
        )
        check_longest(tokenizer)
        check_tokenizer(tokenizer, checkpoint)
    return tokenizer


def load_retriever(model: str | os.PathLike[str] | SentenceTransformer) -> SentenceTransformer:
    """Load a model that says how it makes vectors, without the pooler that nothing reads; a loaded one passes through.

    That is a Sentence-Transformers model, or a pre-training checkpoint, by its bottleneck and the embedder before it.

    Raises:
        InputError: nothing there, no tokenizer, or a bare encoder, which Sentence-Transformers would give mean pooling
            in silence; or neither a place nor such a model.
    """
    if isinstance(model, SentenceTransformer):
        retriever = model
    elif not isinstance(model, str | os.PathLike):
        raise InputError(
            f"A retriever is a path, a name on the Hub or a SentenceTransformer, not an object of the type "
            f"{type(model).__name__}."
        )
    elif is_checkpoint(place := model if isinstance(model, str) else Path(model)):
        from hf_dense.hub.retrievers import build_retriever  # which needs this module

        return build_retriever(place)
    else:
        _check_directory(place, marker="modules.json", remedy="; make one with hf-dense export")
        modules = load_file_path(model_folder(place), "modules.json")
        if modules is not None and b"HybridHead" in Path(modules).read_bytes():
            from hf_dense.hub.hybrid import load_hybrid  # which needs this module

            return load_hybrid(place)
        retriever = _load_sentence_transformer(str(place))
    drop_pooler(retriever)
    # Else saving asks the Hub whether the name of our directory is a model there, and cites it as the base model.
    retriever.model_card_data.local_files_only = True
    return retriever


def unread_prompts(model: SentenceTransformer) -> dict[str, str]:
    """Prompts for passages that Sentence-Transformers passes over: it takes the first of these names that there is."""
    named = [(role, model.prompts[role]) for role in ("document", "passage", "corpus") if role in model.prompts]
    return {role: prompt for role, prompt in named[1:] if prompt and prompt != named[0][1]}


def _load_sentence_transformer(model: str) -> SentenceTransformer:
    if not is_retriever(model):
        raise InputError(
            f"There is no Sentence-Transformers model {_asked(model)}, on the Hub or in its cache; an encoder becomes "
            "one by hf-dense export, which says how it pools."
        )
    check_makes_vectors(model)
    with plain_loading("a retriever", model):
        retriever = SentenceTransformer(model_folder(model), trust_remote_code=False)
        encoders = [module.model for module in parts_of(retriever) if isinstance(module, Transformer)]
        folders = _encoder_folders(model_folder(model))
        known = len(folders) == len(encoders)  # else nobody knows which is where
        for folder, encoder in zip(folders, encoders, strict=True) if known else ():
            if isinstance(encoder, PreTrainedModel):
                check_weights(model, type(encoder), subfolder=folder)
    check_dropout(retriever, model)
    cut_to_positions(retriever, model)
    with plain_loading("a retriever", model), one_thread():
        _check_tokenizers(retriever, model)
        for encode in (retriever.encode_query, retriever.encode_document):  # its modules' settings are read only then
            vector = encode("a", show_progress_bar=False)
    if (said := retriever.get_embedding_dimension()) not in (None, len(vector)):
        raise InputError(
            f"Cannot load a retriever from {model}: its vectors have {len(vector)} dimensions, not {said!r}."
        )
    for role, prompt in unread_prompts(retriever).items():
        logger.warning(
            "%s has the prompt %r for %r, which Sentence-Transformers puts before no passage, as there is one for "
            "'document'; if passages are to have it, export the model with --document_prompt",
            model,
            prompt,
            role,
        )
    return retriever


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in this thread alone: a child that is forked later has none of torch's threads, and waits for them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def check_weights(model: str | Path, kind: Any = AutoModel, *, pooled: bool = False, subfolder: str = "") -> None:
    """Pass when a model of transformers has all its weights; it would be given others at random, and next to no word.

    Args:
        model: directory or Hub id.
        kind: the class that loads it.
        pooled: whether a pooler is read, too.
        subfolder: of its files.

    Raises:
        InputError: some are not there.
    """
    with plain_loading("a model", model):  # without data: on this device there is none
        options = {"device_map": "meta", "output_loading_info": True, "trust_remote_code": False}
        _, loaded = kind.from_pretrained(model_folder(model), subfolder=subfolder, **options)
        _check_whole(loaded, model, pooled)


def _check_whole(loaded: Mapping[str, Any], origin: str | Path, pooled: bool = False) -> None:
    """Raise `InputError` where a load has made up weights, but for a pooler's that is not read."""
    lacking = sorted(name for name in loaded["missing_keys"] if pooled or "pooler" not in name.split("."))
    if lacking:
        unknown = sorted(loaded["unexpected_keys"])
        also = f"; it has {unknown[0]}, which is none of it" if unknown else ""
        raise InputError(f"{origin} lacks {len(lacking)} of its encoder's weights, such as {lacking[0]}{also}.")


def _encoder_folders(model: str) -> list[str]:
    """The folders of a retriever's encoders inside of it."""
    found = []
    for module in _read_json(model, "modules.json"):
        name = str(module["type"]).rpartition(".")[2]
        if name == "Transformer":
            found.append(str(module["path"]))
        elif name == "Router":
            types = _read_json(model, f"{module['path']}/router_config.json".lstrip("/"))["types"]
            inner = [part for part, kind in types.items() if str(kind).endswith(".Transformer")]
            found += [f"{module['path']}/{part}".lstrip("/") for part in inner]
    return found


def _read_json(model: str, name: str) -> Any:
    file = load_file_path(model, name)
    if file is None:
        raise InputError(f"{model} has no {name}.")
    return json.loads(Path(file).read_text(encoding="utf-8"))


def check_makes_vectors(model: str | Path) -> None:
    """Raise `InputError` for what makes no dense vectors, and would be given mean pooling in silence.

    That are cross-encoders, and what Sentence-Transformers has classes of its own for: a vector of words for a text
    (SPLADE), or one for each token (ColBERT).
    """
    if is_cross_encoder(model):
        raise InputError(f"{model} is a cross-encoder, which scores pairs and makes no vectors; name an encoder.")
    with plain_loading("a retriever", model):
        file = load_file_path(model_folder(model), "config_sentence_transformers.json")
        kind = json.loads(Path(file).read_text(encoding="utf-8")).get("model_type", _DENSE) if file else _DENSE
    if kind != _DENSE:
        raise InputError(f"{model} is a {kind} of Sentence-Transformers, which makes no dense vector of a text.")


def is_retriever(model: str | Path) -> bool:
    """Whether a directory or Hub id is a model of Sentence-Transformers.

    Raises:
        InputError: the Hub refuses to say.
    """
    try:
        return is_sentence_transformer_model(model_folder(model))
    except OSError as error:
        raise InputError(f"Cannot load a model from {_asked(model)}: {first_line(error)}") from error


def is_checkpoint(model: str | Path) -> bool:
    """Whether a directory or Hub id is a pre-training checkpoint of ours.

    Raises:
        InputError: the Hub refuses to say.
    """
    return not is_retriever(model) and getattr(load_config(model), "model_type", None) in METHODS


def load_config(model: str | Path) -> PreTrainedConfig | None:
    """The configuration of a directory or Hub id; None where there is none of transformers."""
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(model_folder(model), trust_remote_code=False)
    except (OSError, ValueError):
        return None
    except Exception as error:  # whatever a configuration holds that is none
        raise InputError(f"Cannot load a model from {_asked(model)}: {first_line(error)}") from error
    return config


def longest_text(config: PreTrainedConfig) -> float:
    """Tokens that an encoder has positions for; infinite where its configuration does not say."""
    if config.model_type in FAMILIES:
        return FAMILIES[config.model_type].shape(config).positions
    return float(getattr(config, "max_position_embeddings", math.inf))


def is_cross_encoder(
    model: str | Path | SentenceTransformer | CrossEncoder,
) -> TypeGuard[str | Path | CrossEncoder]:
    """Whether a model, loaded or by directory or Hub id, scores pairs: see `scoring_class`."""
    if not isinstance(model, str | Path):
        return isinstance(model, CrossEncoder)
    return scoring_class(model) is not None


def scoring_class(model: str | Path) -> Any:
    """The class of transformers that loads what a directory or Hub id scores pairs with, head and all.

    That is a classifier of sequences, or a language model of which Sentence-Transformers reads a score; else None.

    Raises:
        InputError: the Hub refuses to say, or its files hold something else.
    """
    if classifies(load_config(model)):
        return AutoModelForSequenceClassification
    if not is_retriever(model):  # or anything of Sentence-Transformers
        return None
    with plain_loading("a model", model):
        last = str(_read_json(model_folder(model), "modules.json")[-1]["type"])
    return AutoModelForCausalLM if last.endswith(".LogitScore") else None


def classifies(config: PreTrainedConfig | None) -> bool:
    """Whether a configuration is of a classifier of sequences.

    Raises:
        InputError: it names architectures that are no names.
    """
    named: object = getattr(config, "architectures", None) or []
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise InputError(f"The configuration's architectures are {str(named)[:60]!r}; they must be a list of names.")
    return any(name.endswith("ForSequenceClassification") for name in named)


def _check_tokenizers(retriever: SentenceTransformer, origin: str) -> None:
    """Pass when texts are read by transformers' tokenizers that fit, or by those of static embeddings."""
    for part in parts_of(retriever):
        if not hasattr(part, "tokenizer"):
            continue
        if isinstance(part, Transformer) and isinstance(part.tokenizer, PreTrainedTokenizerBase):
            check_tokenizer(part.tokenizer, origin)
            check_vocabulary(part.tokenizer, part.config, origin)
        elif not isinstance(part.tokenizer, Tokenizer):
            name = type(part).__name__
            raise InputError(f"{origin} reads texts by {name}; a retriever does by Transformer or StaticEmbedding.")


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, origin: str | Path) -> None:
    """Raise `InputError` for a tokenizer that reads texts as tokens of which its encoder has no row."""
    rows = getattr(config.get_text_config(), "vocab_size", math.inf)
    if (size := rows_read(tokenizer)) > rows:
        raise InputError(f"The tokenizer of {origin} has {size} tokens, its encoder only {rows}.")


def drop_pooler(model: nn.Module) -> None:
    """Remove the poolers of every encoder inside `model`, in place.

    Retrieval reads hidden states; a pooler that no checkpoint holds would be saved with random weights.
    """
    for module in model.modules():
        if isinstance(module, PreTrainedModel) and getattr(module, "pooler", None) is not None:
            module.register_module("pooler", None)


def cut_to_positions(model: nn.Module, origin: str | Path) -> None:
    """Set the longest texts, in place, to what encoders have positions for, where a model says more.

    It would stop at the first text of such a length.
    """
    for part in model.modules():
        positions = _positions(part.model) if isinstance(part, Transformer) else None
        for name in _LENGTHS if positions is not None else ():
            length = getattr(part, name)
            if length is not None and length > positions:
                logger.warning(
                    "%s is to read %d tokens of a text (%s), and its encoder has positions for %d; it reads these.",
                    *(origin, length, name, positions),
                )
                setattr(part, name, positions)


def _positions(encoder: Any) -> int | None:
    """The tokens that an encoder's table of positions has rows for; None where it has no such table."""
    table = getattr(getattr(getattr(encoder, "base_model", None), "embeddings", None), "position_embeddings", None)
    if not isinstance(table, nn.Embedding):
        return None
    return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)


def check_dropout(model: nn.Module, origin: str | Path) -> None:
    """Raise `InputError` where a model's configuration drops out by no probability: torch says so at the first step."""
    for module in model.modules():
        if isinstance(module, nn.Dropout) and not 0 <= module.p <= 1:
            raise InputError(f"The configuration of {origin} has a dropout of {module.p}; it is from 0 to 1.")


@contextmanager
def plain_loading(what: str, origin: object) -> Iterator[None]:
    """Load in silence, and say in a sentence why that fails.

    Args:
        what: is loaded: "an encoder".
        origin: directory or Hub id.

    Raises:
        InputError: for every other exception.
    """
    with as_sentence(f"Cannot load {what} from {_asked(origin)}"), quiet_loading():
        try:
            yield
        except RuntimeError as error:
            if "ignore_mismatched_sizes" not in str(error):
                raise
            raise ValueError("its weights have other shapes than its config.json says") from error


def _asked(name: object) -> str:
    """A name as errors say it: one of the Hub may be a directory that was meant, and is not there."""
    path = Path(str(name))
    meant = len(path.parts) == 2 and os.path.isdir(path.parent) and not os.path.exists(path)
    return f"{name} (the directory {path.parent} has none)" if meant else str(name)


def _check_directory(given: str | Path, marker: str = "config.json", remedy: str = "") -> None:
    if (folder := model_folder(given)) != str(given):
        given = Path(folder)
    path = Path(given)
    could_be_hub_id = isinstance(given, str) and not path.is_absolute() and len(path.parts) <= 2
    if path.is_dir():
        if not (path / marker).is_file():
            if (path / "modules.json").is_file():
                parts = sorted(str(file.parent) for file in path.glob("*_Transformer/config.json"))
                named = f"name that, {parts[0]}" if parts else "name another model"
                raise InputError(
                    f"{given} is a Sentence-Transformers model, and an encoder of transformers is wanted here, which "
                    f"is not at its top; {named}."
                )
            inside = sorted(str(found.parent) for deep in ("", "*/") for found in path.glob(f"{deep}model/{marker}"))
            where = f"; give what is in it, {' or '.join(inside)}" if inside else remedy
            raise InputError(f"{given} is not a model directory: it has no {marker}{where}.")
        closed = [file for file in path.glob("*.safetensors") if file.exists() and not os.access(file, os.R_OK)]
        if closed:  # safetensors says that there is no such file
            raise InputError(f"{min(closed)} may not be read by this user; let others read it (chmod a+r).")
        layers = getattr(load_config(path), "num_hidden_layers", 0)
        if isinstance(layers, int) and layers > _LAYERS:  # each would be made before weights are found to lack
            raise InputError(f"{path / 'config.json'} says {layers} layers, which no encoder has; correct it.")
    elif path.exists() or not could_be_hub_id:
        raise InputError(f"There is no model directory {given}.")
