"""What is attacked, still sound: a small one of everything that a command reads."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml
from forked import Ended, run_command, run_forked
from tiny_retriever import random_words, tiny_config, tiny_tokenizer, write_encoder, write_retriever
from transformers import BertForSequenceClassification, T5Config, T5ForConditionalGeneration

PASSAGES, QUERIES = 16, 6
ADAPTED, ASKED = 240, 12  # passages and labelled queries of what is adapted to: of fewer, no query can be chosen by
TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
}


def make(folder: Path, said: Path) -> None:
    """Write everything, all in children, so that this process can be forked on.

    Raises:
        RuntimeError: a sound command fails.
    """
    folder.mkdir(parents=True)
    _write_texts(folder)
    pretrain = ["pretrain", "--config", f"{folder}/pretrain.yaml", "--corpus", f"{folder}/corpus.jsonl"]
    pretrain += ["--tokenizer", f"{folder}/encoder", "--out", f"{folder}/pretrained"]
    index = ["search", f"{folder}/retriever", "abcd", "--corpus", f"{folder}/collection", "--index", f"{folder}/index"]
    evaluation = ["evaluate", f"{folder}/retriever", "--tasks", f"{folder}/collection", "--out", f"{folder}/evaluation"]
    lists = ["data", "negatives", f"{folder}/collection", "--depth", "4", "--out", f"{folder}/lists"]
    steps: list[Callable[[], Ended]] = [
        lambda: run_forked(lambda: _write_models(folder), said, 120),
        *(lambda words=words: run_command(words, said, 120) for words in (pretrain, index, evaluation, lists)),
    ]
    for step in steps:
        ended = step()
        if ended.code:
            raise RuntimeError(f"What is sound fails:\n{ended.stdout}\n{ended.stderr}")
    shutil.copytree(folder / "retriever", folder / "served")
    shutil.copytree(folder / "index", folder / "served" / "index")


def _write_models(folder: Path) -> None:
    write_encoder(folder / "encoder")
    write_retriever(folder / "retriever")
    model = BertForSequenceClassification(tiny_config(num_labels=1))
    model.save_pretrained(folder / "reranker")
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0}
    T5ForConditionalGeneration(T5Config(vocab_size=len(tiny_tokenizer()), **sizes)).save_pretrained(folder / "writer")
    for name in ("reranker", "writer"):
        tiny_tokenizer().save_pretrained(folder / name)


def _write_texts(folder: Path) -> None:
    draw, words = random.Random(0), random_words(3 * PASSAGES)
    texts = [" ".join(draw.choices(words, k=8)) for _ in range(PASSAGES)]
    rows = [
        {
            "id": str(row),
            "title": f"Title {row} of it",
            "text": f"This is the {text} of all.",
            "document": f"d{row // 2}",
            "position": row % 2,
            "queries": ["ab cd"],
            "continuation": "ef gh",
        }
        for row, text in enumerate(texts)
    ]
    write_lines(folder / "corpus.jsonl", rows)
    collection = folder / "collection"
    (collection / "qrels").mkdir(parents=True)
    passages = [{"_id": f"p{row}", "title": words[row], "text": text} for row, text in enumerate(texts)]
    write_lines(collection / "corpus.jsonl", passages)
    asked = [{"_id": f"q{row}", "text": words[row]} for row in range(QUERIES)]
    write_lines(collection / "queries.jsonl", asked)
    judged = "".join(f"q{row}\tp{row}\t1\n" for row in range(QUERIES))
    for split in ("train", "dev", "test"):
        (collection / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    write_lines(folder / "labels.jsonl", [{"query": words[row], "positive": texts[row]} for row in range(QUERIES)])
    write_lines(folder / "questions.jsonl", [{"id": f"q{row}", "text": words[row]} for row in range(QUERIES)])
    _write_manual(folder)
    sentences = [{"sentence": texts[row], "label": row % 2, "idx": row} for row in range(QUERIES)]
    (folder / "glue" / "cola").mkdir(parents=True)
    for split in ("train", "validation"):
        write_lines(folder / "glue" / "cola" / f"{split}.jsonl", sentences)
    _write_documents(folder / "documents", texts)
    _write_settings(folder)


def _write_manual(folder: Path) -> None:
    """What an adaptation reads: passages with titles, of which queries can be made, and labelled ones beside them."""
    draw, words = random.Random(1), random_words(4 * ADAPTED)
    rows = [
        {
            "id": f"m{row}",
            "title": " ".join(words[4 * row : 4 * row + 3]),
            "text": " ".join(draw.choices(words, k=10)),
            "document": f"d{row // 2}",
            "position": row % 2,
        }
        for row in range(ADAPTED)
    ]
    write_lines(folder / "manual.jsonl", rows)
    asked = [{"query": row["title"], "positive": row["text"]} for row in rows[:ASKED]]
    write_lines(folder / "asked.jsonl", asked)
    write_lines(folder / "judged.jsonl", asked[:2])


def _write_documents(folder: Path, texts: list[str]) -> None:
    folder.mkdir()
    (folder / "one.md").write_text(f"# {texts[0]}\n\n{texts[1]}.\n\n## {texts[2]}\n\n{texts[3]}.\n")
    (folder / "two.html").write_text(f"<html><body><h1>{texts[4]}</h1><p>{texts[5]}.</p></body></html>")
    (folder / "three.txt").write_text(f"{texts[6]}.\n\n{texts[7]}.\n")
    cells = [{"cell_type": "markdown", "metadata": {}, "source": texts[8]}]
    (folder / "four.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    write_lines(folder / "five.jsonl", [{"id": "a", "title": texts[9], "text": texts[10]}])


def _write_settings(folder: Path) -> None:
    training = {
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-3,
        "use_cpu": True,
        "report_to": "none",
        "logging_steps": 1,
    }
    sizes = {"method": "retromae", "max_length": 24, "backbone_config": TINY, "save_steps": 1, "save_total_limit": 2}
    (folder / "pretrain.yaml").write_text(yaml.safe_dump({**sizes, **training}))
    fits = {"per_device_train_batch_size": 2}  # the pairs, also on two processes
    (folder / "finetune.yaml").write_text(yaml.safe_dump({**training, **fits}))
    few = {**training, "max_steps": 1, "per_device_train_batch_size": 2}
    stages = {"bm25": {"depth": 4}, "retriever1": {**few, "passages": 2}, "mined": {"depth": 4}}
    reranker = {"base": str(folder / "reranker"), "passages": 2, "kept": 2, "max_length": 24}
    stages |= {"retriever2": {**few, "passages": 2}, "reranker": {**few, **reranker}}
    stages["distilled"] = {**few, "passages": 2, "depth": 4, "distillation": "kl"}
    (folder / "stages.yaml").write_text(yaml.safe_dump({"max_length": 24, **stages}))
    mined = {"bm25": {"depth": 4}, "retriever1": {**few, "passages": 2}, "mined": {"depth": 4}}
    mined["retriever2"] = {**few, "max_steps": 6, "save_steps": 2, "passages": 2, "refresh": 1}
    (folder / "mined.yaml").write_text(yaml.safe_dump({"max_length": 24, **mined}))
    sweep = {"sweep": "fraction", "values": [0.5, 1], "method": "retromae", "split": "test", "seeds": [0]}
    sweep |= {"hidden": 16, "vocabulary": 100, "max_length": 16, "pretraining": few, "finetuning": few}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(sweep))


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """A file with a line of JSON for each row."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
