"""What holds of any input: masks, batches, configurations, and what the readers of collections make of their files."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_pretraining import METHODS, tiny_keywords, tiny_vocabulary
from tiny_retriever import tiny_config

from hf_dense.data.collections import load_corpus, load_qrels, load_queries
from hf_dense.data.documents import DocumentReader
from hf_dense.data.passages import build_passages, pretoken_counter
from hf_dense.data.splits import divide_documents, parse_shares
from hf_dense.errors import InputError
from hf_dense.methods import METHODS as EVERY_METHOD
from hf_dense.methods import get_method
from hf_dense.modeling.bottleneck_losses import IGNORED
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.masking import draw_words, fill_hidden, noise, row_keys, word_index

VOCABULARY = tiny_vocabulary()
WORDS = np.flatnonzero(~VOCABULARY.special).tolist()
seeded = settings(max_examples=20, deadline=None, derandomize=True, database=None)

token_ids = st.lists(st.sampled_from(WORDS), min_size=2, max_size=30).map(lambda ids: np.array(ids, dtype=np.int32))
rows = st.fixed_dictionaries(
    {"text": token_ids, "neighbour": token_ids, "continuation": token_ids, "queries": st.lists(token_ids, min_size=1)}
)
rates = st.floats(0.05, 0.95)
# Whatever JSON may hold, halves of letters and null characters among it.
texts = st.text(st.characters(categories=("L", "N", "P", "Zs", "Cs", "Cc")), max_size=12)
cells = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


@cache
def collator(method: str) -> ViewCollator:
    """A collator of a method's own views."""
    config = get_method(method).config(backbone_config=tiny_config())
    return ViewCollator(config, VOCABULARY, 24, 0, tiny_keywords())


@pytest.mark.parametrize("method", METHODS)
@seeded
@given(batch=st.lists(rows, min_size=2, max_size=4))
def test_a_row_is_rendered_alike_whatever_stands_beside_it(method: str, batch: list[dict[str, Any]]) -> None:
    if "cocondenser" in method:
        batch = [*batch, *batch][: len(batch) // 2 * 2]  # spans of a document stand together
    together, collate = collator(method)(batch)["views"], collator(method)
    for at, row in enumerate(batch):
        for name, view in collate([row])["views"].items():
            for key in ("input_ids", "attention_mask", "labels"):
                sides, width = view[key].shape
                beside = together[name][key][at * sides : (at + 1) * sides]
                assert torch.equal(beside[:, :width], view[key])
                assert not (together[name]["attention_mask"][at * sides : (at + 1) * sides, width:]).any()


@pytest.mark.parametrize("method", METHODS)
@seeded
@given(batch=st.lists(rows, min_size=1, max_size=4))
def test_what_is_scored_is_a_token_of_the_text_and_what_is_not_hidden_stands(
    method: str, batch: list[dict[str, Any]]
) -> None:
    collate = collator(method)
    for name, view in collate(batch)["views"].items():
        ids, labels, present = (view[key] for key in ("input_ids", "labels", "attention_mask"))
        scored = labels != IGNORED
        assert present[scored].all()
        assert ids.min() >= 0
        assert ids.max() < VOCABULARY.size
        if collate.views[name].labels == "hidden":
            assert not VOCABULARY.special[labels[scored].numpy()].any()


@seeded
@given(texts=st.lists(token_ids, min_size=1, max_size=5), rate=rates, seed=st.integers(0, 99))
def test_words_are_hidden_whole_and_nothing_else_changes(
    texts: list[NDArray[np.int32]], rate: float, seed: int
) -> None:
    width = max(map(len, texts))
    ids = np.array([[*text, *[VOCABULARY.pad] * (width - len(text))] for text in texts], dtype=np.int64)
    maskable = ~VOCABULARY.special[ids]
    word = word_index(ids, maskable, VOCABULARY.continues)
    keys = row_keys(texts, seed, 0)
    hidden = draw_words(word, rate, noise(keys, "select"))
    assert not hidden[~maskable].any()
    for row in range(len(texts)):
        for number in range(word[row].max() + 1):
            assert len(set(hidden[row, word[row] == number].tolist())) == 1
    bits = noise(keys, "fill", width)[hidden]
    for fill in ("mask", "bert"):
        filled = fill_hidden(ids, hidden, bits, fill, VOCABULARY.mask, VOCABULARY.size)
        assert (filled[~hidden] == ids[~hidden]).all()
        assert (filled < VOCABULARY.size).all()


@pytest.mark.parametrize("method", sorted(EVERY_METHOD))
@seeded
@given(rate=rates, layers=st.integers(1, 3), crop=st.sampled_from(["head", "random"]))
def test_a_configuration_is_what_is_read_back_of_it(method: str, rate: float, layers: int, crop: str) -> None:
    kind = get_method(method).config
    plain = kind(backbone_config=tiny_config())
    encoders = {name: {"view": {"rate": rate}} for name, spec in plain.encoder_specs.items() if spec.view.rate}
    try:
        config = kind(backbone_config=tiny_config(), encoders=encoders, crop=crop)
    except ValueError:  # a decoder hides at least as much as its encoder
        return
    again = kind.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again.to_dict() == config.to_dict()
    assert again.encoder_specs == config.encoder_specs
    assert again.decoder_specs == config.decoder_specs


def _write(folder: Path, corpus: list[Any], queries: list[Any], judgements: str = "") -> None:
    (folder / "qrels").mkdir()
    for name, found in (("corpus", corpus), ("queries", queries)):
        lines = "".join(json.dumps(row) + "\n" for row in found)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgements}", encoding="utf-8")


@seeded
@given(found=st.lists(st.fixed_dictionaries({"_id": cells, "text": cells}, optional={"title": cells}), max_size=4))
def test_a_collection_is_refused_or_read_as_it_stands(found: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        _write(Path(name), found, found)
        for load in (load_corpus, load_queries):
            try:
                table = load(name)
            except InputError:
                continue
            assert table["id"][:] == [str(row["_id"]) for row in found]
            assert len({*table["id"][:]}) == len(found)
            assert table["text"][:] == [row["text"] or "" for row in found]


grades = st.integers(-20_000, 20_000)


@seeded
@given(judged=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("cd"), grades | st.just(1)), max_size=6))
def test_judgements_are_refused_or_read_as_they_stand(judged: list[tuple[str, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        _write(Path(name), [], [], "".join(f"{query}\t{passage}\t{grade}\n" for query, passage, grade in judged))
        sound = len({row[:2] for row in judged}) == len({*judged}) and all(abs(row[2]) <= 10_000 for row in judged)
        try:
            found = load_qrels(name, "test")
        except InputError:
            assert not sound
            return
        assert sound
        assert {(query, passage, grade) for query in found for passage, grade in found[query].items()} == {*judged}


@seeded
@given(found=st.lists(st.fixed_dictionaries({"id": cells, "text": cells}, optional={"title": cells}), min_size=1))
def test_every_row_of_a_table_is_a_document_or_counted(found: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "rows.jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
        reader = DocumentReader(str(path))
        documents = list(reader)
        counts = Counter(reader.counts)
        assert len(documents) == counts["documents read"]
        assert sum(counts.values()) == len(found)
        for document in documents:
            assert "{" not in document.id or any(str(row["id"]) == document.id for row in found)
            (document.id + document.title + document.text).encode("utf-8")


@seeded
@given(paragraphs=st.lists(st.text("abcdef .!?\u00e9\u4e2d", max_size=60), max_size=5), length=st.integers(2, 12))
def test_no_passage_is_too_long_and_no_letter_is_lost(paragraphs: list[str], length: int) -> None:
    count = pretoken_counter()
    (passages,) = build_passages([paragraphs], length, count)
    assert all(size <= length for size in count(passages))
    assert "".join("".join(passages).split()) == "".join("".join(paragraphs).split())


@seeded
@given(names=st.lists(texts, unique=True, max_size=30), train=st.integers(0, 100), seed=st.integers(0, 9))
def test_every_document_has_one_split_and_every_share_a_document(names: list[str], train: int, seed: int) -> None:
    shares = parse_shares(f"{train}/{100 - train}/0")
    splits = divide_documents(names, shares, seed)
    assert splits.keys() == set(names)
    assert all(shares[split] > 0 for split in splits.values())
    wanted = [name for name, share in shares.items() if share > 0]
    assert set(splits.values()) == set(wanted[: len(names)])
