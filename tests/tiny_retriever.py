"""Small real things for tests: a WordPiece tokenizer, a random BERT, an exported retriever, a dataset directory."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
from json_lines import write_lines
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Router, StaticEmbedding, Transformer
from tiny_backbones import BACKBONES
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from hf_dense import DupMAEConfig, DupMAEForPreTraining, RetroMAEForPreTraining
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.hub.hybrid import export_hybrid

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BACKBONE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
VOCABULARY = [*SPECIAL, *LETTERS, *("##" + letter for letter in LETTERS)]


def tiny_tokenizer() -> BertTokenizer:
    """Make a tokenizer whose words are letters."""
    return BertTokenizer(vocab={token: index for index, token in enumerate(VOCABULARY)})


def spaced_tokenizer(texts: list[str], kind: str) -> PreTrainedTokenizerFast:
    """Train a tokenizer that marks spaces, not continuations: `bytes` (RoBERTa's kind) or `sentences` (XLM-R's)."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    if kind == "bytes":
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        letters = [*LETTERS, ".", "Ġ"]
        trainer = trainers.BpeTrainer(
            vocab_size=90, special_tokens=special, initial_alphabet=letters, show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=90,
            special_tokens=special,
            initial_alphabet=[*LETTERS, "."],
            unk_token="<unk>",
            show_progress=False,
        )
    tokenizer.train_from_iterator(texts, trainer)
    ends = [(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    names = {
        "cls_token": "<s>",
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def tiny_config(**changes: int) -> BertConfig:
    """Make the configuration of a BERT of two layers of 32."""
    fields = {
        "vocab_size": len(VOCABULARY),
        **BACKBONE,
        "initializer_range": 0.2,
        **changes,
    }
    return BertConfig(**fields)


def write_hybrid(directory: Path, dense: int, sparse: int, seed: int = 0) -> Path:
    """Write a random DupMAE as a model of hybrid vectors, some words of which score below 0."""
    torch.manual_seed(seed)
    source = DupMAEForPreTraining(DupMAEConfig(backbone_config=BACKBONES["bert"](0.0)))
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    source.save_pretrained(directory / "dupmae")
    tiny_tokenizer().save_pretrained(directory / "dupmae")
    return export_hybrid(directory / "dupmae", directory / "hybrid", max_length=22, dense=dense, sparse=sparse)


def write_encoder(directory: Path, seed: int = 0) -> Path:
    """Write a plain random encoder, without a pooler, and its tokenizer."""
    torch.manual_seed(seed)
    BertModel(tiny_config(), add_pooling_layer=False).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return directory


def write_checkpoint(
    directory: Path, kind: Any = RetroMAEForPreTraining, length: int | None = None, **config: Any
) -> Path:
    """Write a random pre-training checkpoint and its tokenizer, which may say the length that it was trained on."""
    torch.manual_seed(0)
    kind(kind.config_class(**{"backbone_config": tiny_config(), **config})).save_pretrained(directory)
    tokenizer = tiny_tokenizer()
    tokenizer.model_max_length = length or tokenizer.model_max_length
    tokenizer.save_pretrained(directory)
    return directory


def write_cross_encoder(directory: Path, seed: int = 0, labels: int = 1, **changes: int) -> Path:
    """Write a random model that scores pairs, and its tokenizer; `changes` are of its configuration."""
    torch.manual_seed(seed)
    BertForSequenceClassification(tiny_config(num_labels=labels, **changes)).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return directory


def write_writer(directory: Path, seed: int = 0) -> Path:
    """Write a random language model that writes queries, and its tokenizer."""
    torch.manual_seed(seed)
    special = {"vocab_size": len(VOCABULARY), "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    config = T5Config(**special, d_model=16, d_ff=32, d_kv=8, num_layers=1, num_heads=2, decoder_start_token_id=2)
    T5ForConditionalGeneration(config).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return directory


def weights(model: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a model."""
    return load_file(model / "model.safetensors")


def write_retriever(directory: Path, seed: int = 0, similarity: str = "dot") -> Path:
    """Write a random retriever in the form of Sentence-Transformers."""
    encoder = write_encoder(directory.with_name(directory.name + "-encoder"), seed)
    return export_sentence_transformer(encoder, directory, max_length=32, similarity=similarity)


def write_embedder(directory: Path, *more: nn.Module, seed: int = 0, pooling: str = "mean") -> Path:
    """Write a ready embedder, which is none of ours: mean pooling, vectors of length 1, cosine, a prompt, 20 tokens.

    `more` are modules behind the norm.
    """
    encoder = write_encoder(directory.with_name(directory.name + "-encoder"), seed)
    first = Transformer(str(encoder), max_seq_length=20)
    modules = [first, Pooling(first.get_embedding_dimension(), pooling_mode=pooling), Normalize(), *more]
    model = SentenceTransformer(modules=modules, prompts={"query": "ask "}, similarity_fn_name="cosine", device="cpu")
    model.save_pretrained(str(directory), create_model_card=False)
    card = "---\nlicense: mit\n---\n\n# Somebody's embedder\n"
    (directory / "README.md").write_text(card)
    return directory


def write_static(directory: Path) -> Path:
    """Write a random model of static embeddings, as Model2Vec makes them: no encoder, vectors of length 1."""
    torch.manual_seed(0)
    model = SentenceTransformer(modules=[static_embeddings(), Normalize()], similarity_fn_name="cosine", device="cpu")
    model.save_pretrained(str(directory), create_model_card=False)
    return directory


def static_embeddings() -> StaticEmbedding:
    """Make random vectors of 32 numbers for words that are letters."""
    letters = Tokenizer(models.WordPiece({token: index for index, token in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    letters.pre_tokenizer = pre_tokenizers.Whitespace()
    return StaticEmbedding(letters, embedding_dim=32)


def write_two_encoders(directory: Path, *queries: nn.Module) -> Path:
    """Write a model whose queries have 8 tokens, and whose passages 20, or whose queries are read by other modules."""
    routes = []
    for role, length in (("query", 8), ("document", 20)):
        encoder = write_encoder(directory.with_name(f"{directory.name}-{role}"), length)
        routes.append([Transformer(str(encoder), max_seq_length=length), Pooling(32, pooling_mode="mean")])
    router = Router.for_query_document([*queries] or routes[0], routes[1])
    model = SentenceTransformer(modules=[router, Normalize()], similarity_fn_name="cosine", device="cpu")
    model.save_pretrained(str(directory), create_model_card=False)
    return directory


def change_json(file: Path, **settings: object) -> None:
    """Change some settings of a file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def random_words(count: int, seed: int = 0) -> list[str]:
    """Draw `count` different words of four letters."""
    generator = random.Random(seed)
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(generator.choices(LETTERS, k=4))] = None
    return list(words)


def write_dataset(directory: Path, passages: int = 60, queries: int = 20) -> Path:
    """Write a dataset in BEIR form: each query is the first word of its passage; every third has a second positive."""
    words = random_words(3 * passages)
    corpus = [
        {"_id": f"p{row}", "title": words[3 * row], "text": " ".join(words[3 * row + 1 : 3 * row + 3])}
        for row in range(passages)
    ]
    asked = [{"_id": f"q{row}", "text": words[3 * row]} for row in range(queries)]
    qrels = [(f"q{row}", f"p{row}", 1) for row in range(queries)]
    qrels += [(f"q{row}", f"p{passages - 1 - row}", 1) for row in range(0, queries, 3)]
    (directory / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", corpus), ("queries", asked)):
        write_lines(directory / f"{name}.jsonl", rows)
    for split in ("train", "test"):
        lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in qrels)]
        (directory / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return directory
