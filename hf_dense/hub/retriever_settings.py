"""How a retriever makes vectors and compares them: what a model says of that, and what is chosen in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, StaticEmbedding, Transformer
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hf_dense.errors import InputError
from hf_dense.hub.loading import is_retriever, load_config, load_retriever, load_tokenizer, unread_prompts
from hf_dense.hub.towers import parts_of, reader_of
from hf_dense.methods import METHODS
from hf_dense.modeling.bottleneck_backbones import FAMILIES

PoolingMode = Literal["cls", "mean"]
Similarity = Literal["dot", "cosine"]

ROLES: Final = ("query", "document")
_LONGEST: Final = 10**6  # tokens; a tokenizer that names more names no length
_CAPITALS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ \u00c9\u0394\u042f"


@dataclass(frozen=True)
class RetrieverSettings:
    """How texts become vectors that are compared; what is None is not said.

    Attributes:
        pooling: of the states of a text's tokens: `cls`, `mean`, or what else Sentence-Transformers' `Pooling` knows.
        normalize: whether each vector is divided by its norm, as a part of the model.
        similarity: `dot`, `cosine`, or what else Sentence-Transformers knows.
        prompts: what is put before texts, by their role (`query`, `document`).
        max_length: longest text in tokens, special tokens included; longer ones are cut.
        query_length: longest query in tokens, where that is another.
        include_prompt: whether the states of a prompt are pooled, too; said where they are not.
    """

    pooling: str | None = None
    normalize: bool | None = None
    similarity: str | None = None
    prompts: Mapping[str, str] | None = None
    max_length: int | None = None
    query_length: int | None = None
    include_prompt: bool | None = None

    def updated(self, given: RetrieverSettings) -> RetrieverSettings:
        """These with what `given` says in their place; of prompts each role."""
        said = {each.name: value for each in fields(self) if (value := getattr(given, each.name)) is not None}
        if given.prompts is not None:
            said["prompts"] = {**(self.prompts or {}), **given.prompts}
        return replace(self, **said)

    def changes(self, given: RetrieverSettings) -> list[str]:
        """What `given` says otherwise, each in a few words.

        >>> RetrieverSettings("mean", similarity="dot").changes(RetrieverSettings("cls", True, "dot"))
        ['pooling cls in place of mean']
        """
        own, new = self._named(), given._named()
        if "max_length" in own:
            own.setdefault("query_length", own["max_length"])
        return [f"{name} {new[name]} in place of {own[name]}" for name in own if new.get(name, own[name]) != own[name]]

    def in_words(self) -> str:
        """What is said, as a sentence for people.

        >>> RetrieverSettings("mean", True, "cosine", {"query": ""}, 256).in_words()
        'How it makes vectors: pooling mean; normalize True; similarity cosine; max_length 256.'
        """
        said = [f"{name} {value}" for name, value in self._named().items() if value != "''"]
        return f"How it makes vectors: {'; '.join(said)}."

    def facts(self) -> dict[str, Any]:
        """What is said, as the manifest of a model has it that was not made from these settings, for its card."""
        lengths = {"max_length": self.max_length, "query_length": self.query_length}
        return {"remarks": [self.in_words()], **{name: length for name, length in lengths.items() if length}}

    def _named(self) -> dict[str, Any]:
        """What is said, by name; prompts by their role."""
        named = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "prompts"}
        named |= {f"{role} prompt": repr(text) for role, text in (self.prompts or {}).items()}
        return {name: value for name, value in named.items() if value is not None}


DEFAULTS: Final = RetrieverSettings("cls", False, "dot", dict.fromkeys(ROLES, ""))
"""Of models that do not say them."""


def check_choices(given: RetrieverSettings) -> None:
    """Raise `InputError` for a choice that is none of those that are offered."""
    for name, value, allowed in (
        ("pooling", given.pooling, get_args(PoolingMode)),
        ("similarity", given.similarity, get_args(Similarity)),
        *(("A prompt's role", role, ROLES) for role in given.prompts or {}),
    ):
        if value is not None and value not in allowed:
            raise InputError(f"{name} is {value!r}; it must be one of: {', '.join(allowed)}.")


def own_settings(model: str | Path) -> RetrieverSettings:
    """What a model says of itself: a Sentence-Transformers model all, a plain encoder nothing.

    Args:
        model: directory or Hub id of one of these, or of a pre-training checkpoint.

    Raises:
        InputError: nothing to load.
    """
    if is_retriever(model):
        return settings_of(load_retriever(model))
    config = load_config(model)
    return checkpoint_settings(config, load_tokenizer(model)) if config else RetrieverSettings()


def settings_of(model: SentenceTransformer) -> RetrieverSettings:
    """The settings of a retriever of Sentence-Transformers."""
    first = next((module for module in parts_of(model) if isinstance(module, Pooling)), None)
    modes = (
        () if first is None else (first.pooling_mode,) if isinstance(first.pooling_mode, str) else first.pooling_mode
    )
    unread = unread_prompts(model)
    prompts = {role: text or "" for role, text in model.prompts.items() if role not in unread}
    return RetrieverSettings(
        "+".join(modes) or None,
        isinstance(model[-1], Normalize),
        model.similarity_fn_name,
        prompts,
        length_of(model),
        query_length_of(model),
        None if pools_prompts(model) else False,
    )


def words_of(model: SentenceTransformer) -> str:
    """The settings of a retriever for people, and what they do not tell of: its modules, and a cut of its vectors."""
    parts = [type(part) for part in parts_of(model)]
    told = {*parts} <= {Transformer, StaticEmbedding, Pooling, Normalize}
    modules = "" if told else f" Its modules, one after the other: {', '.join(part.__name__ for part in parts)}."
    cut = f" Its vectors are cut to their first {model.truncate_dim} numbers." if model.truncate_dim else ""
    return f"{settings_of(model).in_words()}{modules}{cut}"


def pools_prompts(model: SentenceTransformer) -> bool:
    """Whether the states of prompts are pooled with those of texts, as by default."""
    return all(module.include_prompt for module in parts_of(model) if isinstance(module, Pooling))


def length_of(model: SentenceTransformer) -> int | None:
    """The longest passage in tokens; None where no text is cut."""
    reader = reader_of(model, "document")
    return _known(getattr(reader, "document_length", None) or getattr(reader, "max_seq_length", None))


def query_length_of(model: SentenceTransformer) -> int | None:
    """The longest query in tokens, where that is another length than of passages."""
    reader = reader_of(model, "query")
    if own := getattr(reader, "query_length", None):
        return int(own)
    length = _known(getattr(reader, "max_seq_length", None))
    return length if length != length_of(model) else None


def _known(length: float | None) -> int | None:
    return int(length) if length and length < _LONGEST else None


def set_lengths(model: SentenceTransformer, max_length: int, query_length: int | None) -> None:
    """Set the longest text and the longest query (None: the same) of a retriever, in tokens; no other length stays.

    Raises:
        InputError: a query would be longer than a text, or hold no token of its own, or the model tells no queries.
    """
    check_can_cut(model)
    check_lengths(max_length, query_length)
    readers = [module for module in parts_of(model) if isinstance(module, Transformer)]
    if query_length is not None and not readers:
        raise InputError("This model reads its texts by no encoder of transformers; leave query_length out.")
    model.max_seq_length = max_length
    for reader in readers:
        reader.query_length, reader.document_length = query_length, None


def check_can_cut(model: SentenceTransformer) -> None:
    """Raise `InputError` for static embeddings, of queries say, which read texts whole."""
    if any(isinstance(reader_of(model, role), StaticEmbedding) for role in ROLES):
        raise InputError("Static embeddings read texts of any length; leave max_length and query_length out.")


def check_lengths(max_length: int | None, query_length: int | None) -> None:
    """Raise `InputError` where a query would be longer than a text, or hold no token of its own."""
    if query_length is not None and not 2 < query_length <= (max_length or query_length):
        within = f"from 3 to max_length, {max_length} tokens" if max_length else "3 tokens or more"
        raise InputError(f"query_length is {query_length}; it must be {within}.")


def checkpoint_settings(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> RetrieverSettings:
    """The settings that a pre-training checkpoint says: those of its embedder, else pooling where its bottleneck is.

    Args:
        config: of the checkpoint; that of a plain encoder says nothing.
        tokenizer: beside it, which knows the length that was trained on.
    """
    if config.model_type not in METHODS:
        return RetrieverSettings()
    backbone: Any = config.backbone_config
    length = tokenizer.model_max_length
    if backbone.model_type in FAMILIES:
        length = min(length, FAMILIES[backbone.model_type].shape(backbone).positions) if length < _LONGEST else length
    own = RetrieverSettings(pooling=config.bottleneck, max_length=length if length < _LONGEST else None)
    return own.updated(RetrieverSettings(**(config.retriever or {})))


def embedder_settings(model: str | Path) -> RetrieverSettings:
    """The settings of a retriever that pre-training is to start from.

    Args:
        model: directory or Hub id of a Sentence-Transformers model.

    Raises:
        InputError: nothing to load, or it has parts or settings that an encoder alone would lose.
    """
    loaded = load_retriever(model)
    kinds = [type(module) for module in loaded]
    if kinds not in ([Transformer, Pooling], [Transformer, Pooling, Normalize]):
        others = [kind.__name__ for kind in kinds if kind not in (Transformer, Pooling, Normalize)]
        raise InputError(
            f"{model} makes its vectors by more than pooling and a norm ({', '.join(others) or 'in another order'}), "
            "which pre-training would lose; start from the encoder that it was made of, or fine-tune it as it is."
        )
    unkept = {name: value for name, value in _unkept(loaded).items() if value}
    if "do_lower_case" in unkept and load_tokenizer(model)(_CAPITALS) == loaded.tokenizer(_CAPITALS):
        del unkept["do_lower_case"]  # its tokenizer does so by itself
    if unkept:
        name, value = next(iter(unkept.items()))
        raise InputError(
            f"{model} has {name} {value!r}, which pre-training would lose; save it without, or fine-tune it as it is."
        )
    return settings_of(loaded)


def _unkept(model: SentenceTransformer) -> dict[str, Any]:
    """What a retriever may say of itself beside its settings, which no checkpoint keeps."""
    return {
        "truncate_dim": model.truncate_dim,
        "default_prompt_name": model.default_prompt_name,
        "document_length": getattr(model[0], "document_length", None),
        "do_lower_case": getattr(model[0], "do_lower_case", None),
    }
