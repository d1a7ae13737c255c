"""Small real things for tests: a WordPiece tokenizer, a random BERT, an exported retriever, a dataset directory."""

from __future__ import annotations

import json
import random
from pathlib import Path

import torch
from transformers import BertConfig, BertModel, BertTokenizer

from hf_dense.hub import export_sentence_transformer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *LETTERS, *("##" + letter for letter in LETTERS)]


def tiny_tokenizer() -> BertTokenizer:
    """Make a tokenizer whose words are letters."""
    return BertTokenizer(vocab={token: index for index, token in enumerate(VOCABULARY)})


def tiny_config(**changes: int) -> BertConfig:
    """Make the configuration of a BERT of two layers of 32."""
    fields = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "initializer_range": 0.2,
        **changes,
    }
    return BertConfig(**fields)


def write_encoder(directory: Path, seed: int = 0) -> Path:
    """Write a plain random encoder, without a pooler, and its tokenizer."""
    torch.manual_seed(seed)
    BertModel(tiny_config(), add_pooling_layer=False).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return directory


def write_retriever(directory: Path, seed: int = 0, similarity: str = "dot") -> Path:
    """Write a random retriever in the form of Sentence-Transformers."""
    encoder = write_encoder(directory.with_name(directory.name + "-encoder"), seed)
    return export_sentence_transformer(encoder, directory, max_length=32, similarity=similarity)


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
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split in ("train", "test"):
        lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in qrels)]
        (directory / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return directory
