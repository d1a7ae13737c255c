"""Word counts as a table that pre-training reads."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from json_lines import write_lines
from manifests import manifest_of
from pyarrow import parquet
from tiny_pretraining import tiny_arguments, tiny_options, write_corpus
from tiny_retriever import spaced_tokenizer, tiny_tokenizer

from hf_dense.errors import InputError
from hf_dense.pretraining.keywords import TABLE, Keywords
from hf_dense.pretraining.pretrain import pretrain
from hf_dense.pretraining.vocabulary import Vocabulary
from hf_dense.pretraining.word_counts import build_word_counts
from hf_dense.storage.output import Output

TEXTS = ["ab cd ab", "cd ef", "gh ab"] * 900  # more than are counted at once


def count(directory: Path, out: str | Output, texts: list[str] = TEXTS) -> Path:
    """Count the words of some texts."""
    tiny_tokenizer().save_pretrained(directory / "tokenizer")
    write_lines(directory / "corpus.jsonl", ({"text": text} for text in texts))
    target = out if isinstance(out, Output) else directory / out
    return build_word_counts(str(directory / "corpus.jsonl"), str(directory / "tokenizer"), target)


def test_words_are_spelled_and_counted(tmp_path: Path) -> None:
    assert count(tmp_path, "words") == tmp_path / "words"
    rows = parquet.read_table(tmp_path / "words" / TABLE).to_pylist()
    occurrences = Counter(word for text in TEXTS for word in text.split())
    passages = Counter(word for text in TEXTS for word in set(text.split()))
    assert {row["word"]: row["occurrences"] for row in rows} == occurrences
    assert {row["word"]: row["passages"] for row in rows} == passages
    manifest = manifest_of(tmp_path / "words")
    assert (manifest.kind, manifest.facts) == ("word counts", {"passages": len(TEXTS), "words": 4})


def test_a_directory_or_its_table_is_read(tmp_path: Path) -> None:
    out, vocabulary = count(tmp_path, "words"), Vocabulary.of(tiny_tokenizer())
    shutil.copy(out / TABLE, tmp_path / "words.parquet")
    tokens = [tiny_tokenizer()(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    counted = Keywords.of(map(np.array, tokens), vocabulary)
    for place in (out, out / TABLE, tmp_path / "words.parquet"):
        again = Keywords.load(place, vocabulary)
        assert again.total == counted.total == len(TEXTS)
        for name in ("words", "occurrences", "passages"):
            assert getattr(again, name).tolist() == getattr(counted, name).tolist()


def test_the_same_again_is_done_and_another_corpus_is_refused(tmp_path: Path) -> None:
    table = count(tmp_path, "words") / TABLE
    before = table.stat().st_mtime_ns
    count(tmp_path, "words")
    assert table.stat().st_mtime_ns == before
    with pytest.raises(InputError, match="was made from another corpus"):
        count(tmp_path, "words", TEXTS[:5])
    count(tmp_path, Output(tmp_path / "words", overwrite=True), TEXTS[:5])
    assert Keywords.load(tmp_path / "words", Vocabulary.of(tiny_tokenizer())).total == 5


def test_pre_training_with_other_counts_is_another_run(tmp_path: Path) -> None:
    for number, rows in enumerate((60, 40)):
        corpus = write_corpus(tmp_path / f"{number}.jsonl", rows)
        options = tiny_options(tmp_path, "master", keywords=str(tmp_path / f"words{number}"))
        build_word_counts(str(corpus), str(tmp_path / "tokenizer"), tmp_path / f"words{number}")
        if number:
            with pytest.raises(InputError, match="other keywords"):
                pretrain(options, tiny_arguments(tmp_path / "out", max_steps=1))
        else:
            pretrain(options, tiny_arguments(tmp_path / "out", max_steps=1))


def test_another_tokenizers_words_are_refused(tmp_path: Path) -> None:
    other = Vocabulary.of(spaced_tokenizer(TEXTS, "bytes"))
    with pytest.raises(InputError, match="were counted with another tokenizer"):
        Keywords.load(count(tmp_path, "words"), other)


def test_no_table_and_no_words(tmp_path: Path) -> None:
    (tmp_path / "words.parquet").write_text("no table")
    for place in ("words.parquet", ".", "nowhere"):
        with pytest.raises(InputError, match="is not a table of word counts; make one with hf-dense data keywords"):
            Keywords.load(tmp_path / place, Vocabulary.of(tiny_tokenizer()))
    with pytest.raises(InputError, match="The corpus has no words to count"):
        count(tmp_path, "none", [""])
    assert not (tmp_path / "none").exists()
