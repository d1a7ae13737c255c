"""GPL in four commands: made queries, mined negatives, a cross-encoder's scores, and its margins learnt."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from json_lines import write_lines
from tiny_retriever import random_words, write_cross_encoder, write_retriever

from hf_dense.commands.main import main
from hf_dense.data.collections import load_corpus
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.finetuning.lists import Entry, load_entries
from hf_dense.hub.loading import load_retriever

FEW = ["--max_steps", "60", "--per_device_train_batch_size", "8", "--learning_rate", "3e-3"]
QUIET = ["--use_cpu", "true", "--report_to", "none", "--save_strategy", "no", "--disable_tqdm", "true"]


def write_corpus(file: Path) -> Path:
    """Passages of 60 documents, whose titles become queries."""
    generator, words = random.Random(0), random_words(300)
    rows = []
    for at in range(60):
        sentences = [" ".join(generator.choices(words, k=6)).capitalize() + "." for _ in range(3)]
        title = " ".join(generator.sample(words, 3))
        rows.append({"id": f"p{at}", "title": title, "text": " ".join(sentences), "document": f"d{at}", "position": 0})
    return write_lines(file, rows)


def error_of_margins(model: Path, collection: Path, entries: list[Entry]) -> float:
    """The mean squared difference of all margins from the teacher's."""
    corpus = load_corpus(collection)
    retriever, rows = load_retriever(model), {name: row for row, name in enumerate(corpus["id"])}
    passages = retriever.encode_document(list(PassageTexts(corpus)))
    queries = retriever.encode_query([entry.query for entry in entries])
    errors = []
    for entry, query in zip(entries, queries, strict=True):
        assert entry.scores
        found = {name: float(passages[rows[name]] @ query) for name in entry.scores}
        positive = entry.positives[0]
        margins = [[known[positive] - known[name] for name in entry.negatives] for known in (found, entry.scores)]
        errors.append(np.square(np.subtract(*margins)).mean())
    return float(np.mean(errors))


@pytest.mark.slow
def test_margins_of_made_queries_are_learnt(tmp_path: Path) -> None:
    corpus, start, teacher = write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "start", tmp_path / "teacher"
    write_retriever(start)
    write_cross_encoder(teacher, seed=1)
    made, mined, scores, tuned = (str(tmp_path / name) for name in ("made", "mined", "scores", "tuned"))
    main(["data", "queries", str(corpus), "--from", "headings", "--out", made])
    main(["data", "negatives", made, "--model", str(start), "--depth", "10", "--out", mined])
    main(["data", "scores", made, "--lists", mined, "--model", str(teacher), "--out", scores])
    learn = ["--distillation", "margin_mse", "--contrast_weight", "0", "--passages", "2", *FEW, *QUIET]
    main(["finetune", "--model", str(start), "--collection", made, "--lists", scores, "--out", tuned, *learn])
    entries = load_entries(scores)
    assert len(entries) > 30
    assert all(len(entry.negatives) == 10 for entry in entries)
    before = error_of_margins(start, Path(made), entries)
    assert error_of_margins(Path(tuned) / "model", Path(made), entries) < 0.5 * before
