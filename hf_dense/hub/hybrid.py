"""DupMAE's hybrid vectors as a Sentence-Transformers directory, and back.

The one kind of model here that travels with code: `hybrid_head.py` lies beside `modules.json`.
"""

from __future__ import annotations

import json
import logging
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Transformer
from torch import nn
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedModel

from hf_dense.errors import InputError
from hf_dense.hub.export import check_fit
from hf_dense.hub.hybrid_head import HybridHead
from hf_dense.hub.loading import drop_pooler, load_tokenizer, quiet_loading
from hf_dense.modeling.bottleneck_backbones import family_of
from hf_dense.modeling.modeling_dupmae import DupMAEConfig, DupMAEForRetrieval
from hf_dense.storage.legacy import atomic_directory, check_replaceable

logger = logging.getLogger(__name__)

_FOLDER, _CODE = "1_HybridHead", "hybrid_head.py"


def export_hybrid(
    checkpoint: str | Path,
    output_dir: str | Path,
    *,
    max_length: int,
    dense: int = 384,
    sparse: int = 384,
    seed: int = 0,
) -> Path:
    """Write a DupMAE pre-training checkpoint as a model of hybrid vectors, to be fine-tuned.

    The projection of [CLS] is new, which a log line says: the paper introduces it with fine-tuning.

    Args:
        checkpoint: directory or Hub id of a DupMAE pre-training checkpoint, its tokenizer beside it.
        output_dir: where the directory appears, complete or not at all; an earlier export is replaced.
        max_length: longest input in tokens, special tokens included; longer texts are cut.
        dense: length d' of the projection of [CLS].
        sparse: entries of the vocabulary vector that a document keeps.
        seed: of the projection.

    Returns:
        `output_dir`; `load_hybrid` loads it, and without hf_dense `SentenceTransformer(output_dir,
        trust_remote_code=True)`, the modules of which make a `SparseEncoder(modules=[*model])` too.

    Raises:
        InputError: no checkpoint of DupMAE or no tokenizer there, a tokenizer that does not fit it, a number outside
            its range, an `output_dir` that holds something else.

    Source: Liu, Xiao, Shao and Cao 2023, arXiv:2305.02564, section 3.2.
    """
    check_replaceable(output_dir, marker=_CODE)
    if dense < 1:
        raise InputError(f"dense is {dense}; it must be at least 1.")
    tokenizer = load_tokenizer(checkpoint)
    source = _load_source(checkpoint, dense, seed)
    config = source.config
    check_fit(tokenizer, config.backbone, checkpoint, max_length, "cls")
    if not 1 <= sparse <= config.vocab_size:
        raise InputError(f"sparse is {sparse}; it must be from 1 to {config.vocab_size}, the size of the vocabulary.")
    own_words = len(source.bag_heads) > 0
    head = HybridHead(source.projection.in_features, config.vocab_size, dense, sparse, own_words)
    head.projection.load_state_dict(source.projection.state_dict())
    if head.words is not None:
        head.words.load_state_dict(next(iter(source.bag_heads.values())).state_dict())
    encoder = source.encoder.backbone if own_words else _masked_language_model(source)
    with tempfile.TemporaryDirectory() as plain:
        encoder.save_pretrained(plain)
        tokenizer.save_pretrained(plain)
        with quiet_loading():
            transformer = Transformer(
                plain,
                max_seq_length=max_length,
                transformer_task="feature-extraction" if own_words else "fill-mask",
                config_kwargs={"output_hidden_states": not own_words},
            )
    drop_pooler(transformer)
    prompts = {"query": "", "document": ""}
    modules: list[nn.Module] = [transformer, head]
    return save_hybrid(
        SentenceTransformer(modules=modules, similarity_fn_name="dot", prompts=prompts, device="cpu"), output_dir
    )


def save_hybrid(model: SentenceTransformer, output_dir: str | Path) -> Path:
    """Write a model of hybrid vectors, a fine-tuned one for instance, so that it loads without hf_dense.

    `model.save_pretrained` names the module by its place in hf_dense; here it is named by the file that travels.

    Args:
        model: of `load_hybrid`.
        output_dir: where the directory appears, complete or not at all; an earlier export is replaced.

    Returns:
        `output_dir`.

    Raises:
        InputError: the model has no hybrid vectors, or `output_dir` holds something else.
    """
    check_replaceable(output_dir, marker=_CODE)
    if not isinstance(model[-1], HybridHead):
        raise InputError("This model gives no hybrid vectors; load one with load_hybrid.")
    model.model_card_data.local_files_only = True  # as in load_retriever
    with atomic_directory(output_dir) as work:
        model.save_pretrained(str(work))
        listing = work / "modules.json"
        modules = json.loads(listing.read_text(encoding="utf-8"))
        modules[-1]["type"] = "hybrid_head.HybridHead"
        listing.write_text(json.dumps(modules, indent=2), encoding="utf-8")
    return Path(output_dir)


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
    name = str(model)
    try:
        config = HybridHead.load_config(name, config_filename="config_sentence_transformers.json")
        with quiet_loading():
            transformer = Transformer.load(name)
        head = HybridHead.load(name, subfolder=_FOLDER)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"There is no model of hybrid vectors in {model}.") from error
    drop_pooler(transformer)
    modules: list[nn.Module] = [transformer, head]
    loaded = SentenceTransformer(modules=modules, similarity_fn_name="dot", prompts=config.get("prompts"))
    loaded.default_prompt_name = config.get("default_prompt_name")
    loaded.model_card_data.local_files_only = True  # as in load_retriever
    return loaded


def hybrid_head(model: SentenceTransformer) -> HybridHead | None:
    """The module that makes hybrid vectors; None where a model has none."""
    head: Any = model[-1]
    return head if type(head).__name__ == "HybridHead" else None  # of another name space if it came as remote code


def _load_source(checkpoint: str | Path, dense: int, seed: int) -> DupMAEForRetrieval:
    """The checkpoint with a projection."""
    try:
        config = AutoConfig.from_pretrained(str(checkpoint), trust_remote_code=False)
        if not isinstance(config, DupMAEConfig):
            raise InputError(f"{checkpoint} is a checkpoint of {config.model_type}; hybrid vectors need one of dupmae.")
        config.dense_size = dense
        with quiet_loading(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            loaded: Any = DupMAEForRetrieval.from_pretrained(str(checkpoint), config=config, output_loading_info=True)
    except InputError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a projection of another length is there
        raise InputError(f"Cannot load a checkpoint of DupMAE with dense {dense} from {checkpoint}.") from error
    source: DupMAEForRetrieval = loaded[0]
    if "projection.weight" in loaded[1]["missing_keys"]:
        logger.warning("Newly initialised, not in %s: the projection of [CLS]; fine-tuning trains it.", checkpoint)
    return source


def _masked_language_model(source: DupMAEForRetrieval) -> PreTrainedModel:
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
