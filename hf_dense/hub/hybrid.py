"""DupMAE's hybrid vectors as a Sentence-Transformers directory, and back.

The one kind of model here that travels with code: `hybrid_head.py` lies beside `modules.json`.
"""

from __future__ import annotations

import json
import logging
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Transformer
from torch import nn
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedModel

from hf_dense.data.hub_names import model_folder
from hf_dense.errors import InputError
from hf_dense.hub.export import write_export
from hf_dense.hub.fingerprints import encoder_fingerprint
from hf_dense.hub.hybrid_head import HybridHead
from hf_dense.hub.loading import drop_pooler, load_tokenizer, plain_loading
from hf_dense.hub.retriever_settings import set_lengths
from hf_dense.hub.retrievers import as_module, check_fit
from hf_dense.modeling.bottleneck_backbones import family_of
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.modeling.modeling_dupmae import DupMAEConfig, DupMAEForPreTraining
from hf_dense.storage.output import Output
from hf_dense.storage.staged import Staged

logger = logging.getLogger(__name__)

_FOLDER = "1_HybridHead"


def export_hybrid(
    checkpoint: str | Path,
    out: str | os.PathLike[str] | Output,
    *,
    max_length: int,
    dense: int = 384,
    sparse: int = 384,
    query_length: int | None = None,
    seed: int = 0,
) -> Path:
    """Write a DupMAE pre-training checkpoint as a model of hybrid vectors, to be fine-tuned.

    The projection of the bottleneck is new, which a log line says: the paper introduces it with fine-tuning.

    Args:
        checkpoint: directory or Hub id of a DupMAE pre-training checkpoint, its tokenizer beside it.
        out: where the directory appears, complete or not at all.
        max_length: longest input in tokens, special tokens included; longer texts are cut.
        dense: length d' of the projection of the bottleneck; 0 for words alone (OT:768 of table 3, with 768 of them).
        sparse: entries of the vocabulary vector that a document keeps.
        query_length, seed: longest query in tokens (None: `max_length`), and of the projection.

    Returns:
        The directory, for `load_hybrid`, or without hf_dense `SentenceTransformer(..., trust_remote_code=True)`.

    Raises:
        InputError: no checkpoint of DupMAE, no tokenizer that fits it, a number outside its range, or `out` is taken.

    Source: Liu, Xiao, Shao and Cao 2023, arXiv:2305.02564, section 3.2.
    """
    if dense < 0:
        raise InputError(f"dense is {dense}; it must be 0, for words alone, or more.")
    tokenizer, source = load_tokenizer(checkpoint), _load_source(checkpoint)
    vocabulary = source.config.vocab_size
    check_fit(tokenizer, source.config.backbone, checkpoint, max_length, source.config.bottleneck)
    if not 1 <= sparse <= vocabulary:
        raise InputError(f"sparse is {sparse}; it must be from 1 to {vocabulary}, the size of the vocabulary.")

    def write(work: Staged) -> None:
        if dense:
            new = "the projection of the bottleneck; fine-tuning trains it"
            logger.warning("Newly initialised, not in %s: %s.", checkpoint, new)
            work.facts["limitations"] = ["The dense projection is random: fine-tune it before searching with it."]
        head = _make_head(source, dense, sparse, seed)
        encoder = source.encoder.backbone if head.own_words else _masked_language_model(source)
        transformer = as_module(
            encoder,
            tokenizer,
            work.pieces,
            max_length,
            transformer_task="feature-extraction" if head.own_words else "fill-mask",
            config_kwargs={"output_hidden_states": not head.own_words},
        )
        made = _as_retriever([transformer, head], {"query": "", "document": ""})
        set_lengths(made, max_length, query_length)
        save_hybrid(made, work.result)

    settings = {"max_length": max_length, "query_length": query_length, "dense": dense, "sparse": sparse}
    fingerprint = encoder_fingerprint(source, tokenizer)
    return write_export(out, "hybrid retriever", checkpoint, fingerprint, write, settings, seed)


def save_hybrid(model: SentenceTransformer, directory: str | Path) -> Path:
    """Write a model of hybrid vectors, a fine-tuned one for instance, into a directory, without a card.

    It loads without hf_dense then: `model.save_pretrained` names the module by its place in hf_dense; here it is named
    by the file that travels.

    Raises:
        InputError: the model has no hybrid vectors.
    """
    if not isinstance(model[-1], HybridHead):
        raise InputError("This model gives no hybrid vectors; load one with load_hybrid.")
    model.save_pretrained(str(directory), create_model_card=False)
    listing = Path(directory) / "modules.json"
    modules = json.loads(listing.read_text(encoding="utf-8"))
    modules[-1]["type"] = "hybrid_head.HybridHead"
    listing.write_text(json.dumps(modules, indent=2), encoding="utf-8")
    return Path(directory)


def load_hybrid(model: str | Path) -> SentenceTransformer:
    """Load a model of hybrid vectors without remote code.

    Args:
        model: directory or Hub id of what `export_hybrid`, `save_hybrid` or `finetune` wrote.

    Returns:
        The model: `encode_query` gives (n, dense + vocabulary) whole vectors, `encode_document` those in which the
        entries behind the dense part are 0 but for the `sparse` greatest. Their inner product is equation 12.

    Raises:
        InputError: nothing there, or another kind of model.
    """
    load_tokenizer(model)
    name = model_folder(model)
    with plain_loading("a model of hybrid vectors", model):
        if not HybridHead.load_config(name, subfolder=_FOLDER):
            raise InputError(f"There is no model of hybrid vectors in {model}.")
        config = HybridHead.load_config(name, config_filename="config_sentence_transformers.json")
        transformer = Transformer.load(name)
        head = HybridHead.load(name, subfolder=_FOLDER)
    drop_pooler(transformer)
    loaded = _as_retriever([transformer, head], config.get("prompts"))
    loaded.default_prompt_name = config.get("default_prompt_name")
    loaded.model_card_data.local_files_only = True  # as in load_retriever
    return loaded


def _as_retriever(modules: list[nn.Module], prompts: dict[str, str] | None) -> SentenceTransformer:
    return SentenceTransformer(modules=modules, similarity_fn_name="dot", prompts=prompts)


def hybrid_head(model: SentenceTransformer) -> HybridHead | None:
    """The module that makes hybrid vectors; None where a model has none."""
    head: Any = model[-1]
    return head if type(head).__name__ == "HybridHead" else None  # of another name space if it came as remote code


def _load_source(checkpoint: str | Path) -> BottleneckForPreTraining:
    """The checkpoint, which must be of DupMAE."""
    with plain_loading("a checkpoint of DupMAE", checkpoint):
        place = model_folder(checkpoint)
        config = AutoConfig.from_pretrained(place, trust_remote_code=False)
        if not isinstance(config, DupMAEConfig):
            raise InputError(f"{checkpoint} is a checkpoint of {config.model_type}; hybrid vectors need one of dupmae.")
        source: BottleneckForPreTraining = DupMAEForPreTraining.from_pretrained(place, config=config)
    return source


def _make_head(source: BottleneckForPreTraining, dense: int, sparse: int, seed: int) -> HybridHead:
    """The module of hybrid vectors, with a projection that is drawn as the encoder's weights were."""
    own_words = len(source.bag_heads) > 0
    config = source.config
    hidden = family_of(config.backbone).shape(config.backbone).hidden
    head = HybridHead(hidden, config.vocab_size, dense, sparse, own_words, config.bottleneck)
    deviation = getattr(config, "initializer_range", 0.02)
    if head.projection is not None:
        nn.init.normal_(head.projection.weight, std=deviation, generator=torch.Generator().manual_seed(seed))
    if head.words is not None:
        head.words.load_state_dict(next(iter(source.bag_heads.values())).state_dict())
    return head


def _masked_language_model(source: BottleneckForPreTraining) -> PreTrainedModel:
    """Encoder and head as a plain masked language model of transformers."""
    config = deepcopy(source.config.backbone)
    config.tie_word_embeddings = True
    model: PreTrainedModel = AutoModelForMaskedLM.from_config(config)
    model.base_model.load_state_dict(source.encoder.backbone.state_dict())
    theirs = family_of(config).head
    with torch.no_grad():
        for ours, tensor in source.head.state_dict().items():
            model.get_parameter(theirs[ours]).copy_(tensor)
    return model
