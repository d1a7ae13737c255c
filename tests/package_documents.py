"""Real documents that every machine has, the documentation of a package, and a tiny embedder that knows their words."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny_retriever import tiny_config
from transformers import BertModel

from hf_dense.data.collections import load_corpus
from hf_dense.data.python_docs.collection import build_python_docs
from hf_dense.data.tokenizers import train_tokenizer
from hf_dense.hub.export import export_sentence_transformer


def write_documents(folder: Path, scratch: Path, count: int) -> None:
    """Markdown files with headings, of the documentation of a package."""
    corpus = load_corpus(build_python_docs(scratch, packages=["numpy"], length=48, progress=False)).to_pandas()
    folder.mkdir()
    for number, (name, rows) in enumerate(list(corpus.groupby("document"))[:count]):
        first, *others = rows["text"]
        (folder / f"{number}.md").write_text("\n\n".join([f"# {name}", first, f"## How to use {name}", *others]))


def write_word_embedder(directory: Path, documents: Path) -> None:
    """A random embedder that knows the documents' words: mean pooling, cosine, a prompt, 48 tokens."""
    texts = [file.read_text() for file in sorted(documents.glob("*.md"))]
    tokenizer = train_tokenizer(texts, 1000, 48)
    torch.manual_seed(0)
    encoder = directory.with_name("encoder")
    BertModel(tiny_config(vocab_size=len(tokenizer)), add_pooling_layer=False).save_pretrained(encoder)
    tokenizer.save_pretrained(encoder)
    export_sentence_transformer(
        encoder,
        directory,
        max_length=48,
        pooling="mean",
        normalize=True,
        similarity="cosine",
        prompts={"query": "ask "},
    )
