"""What "equal compute" is counted by."""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets import Dataset
from tiny_pretraining import tiny_tokenizer

from hf_dense import METHODS
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.corpus import tokenize
from hf_dense.pretraining.vocabulary import Vocabulary

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_operations_that_are_counted_are_those_that_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nearly all of them are the vocabulary's, which the counter sees in part."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    from needed_operations import needed_operations
    from operations import BATCHES, pretraining_operations

    tokenizer, method = tiny_tokenizer(), METHODS["retromae"]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = method.pretraining(method.config(backbone_config={**sizes, "vocab_size": 4000}))
    corpus = Dataset.from_dict({"text": ["abc def ghi jkl mno"] * BATCHES * 4})
    counted = pretraining_operations(model, corpus, tokenizer, size=4, max_length=32)
    rows = tokenize(corpus, tokenizer).remove_columns("length")
    views = ViewCollator(model.config, Vocabulary.of(tokenizer), 32, seed=0)(list(rows.select(range(4))))["views"]
    assert counted == pytest.approx(needed_operations(model.config, views), rel=0.03)
