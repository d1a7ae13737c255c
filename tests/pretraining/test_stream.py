"""A streamed corpus: all texts once an epoch, one order for any number of processes, resumed exactly."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, load_dataset
from test_pretrain import interrupt, saving
from tiny_pretraining import (
    logged,
    same_weights,
    tiny_arguments,
    tiny_model,
    tiny_options,
    tiny_tokenizer,
    tiny_vocabulary,
    weights,
    write_corpus,
)
from transformers import AutoConfig

from hf_dense.data.corpus import load_passages, stream_passages
from hf_dense.errors import InputError
from hf_dense.pretraining import stream as stream_module
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.corpus import add_sources, hold_out, joined_columns, tokenize
from hf_dense.pretraining.pretrain import pretrain
from hf_dense.pretraining.stream import PassageStream, StreamCollator


def corpus(tmp_path: Path, files: int = 3) -> Path:
    """Three files of 40 passages."""
    (tmp_path / "corpus").mkdir()
    for number in range(files):
        rows = load_dataset("json", data_files=str(write_corpus(tmp_path / "rows.jsonl", 40, number)), split="train")
        rows = rows.map(lambda row, number=number: {"document": f"{number}-{row['document']}"})
        rows.to_parquet(tmp_path / "corpus" / f"{number}.parquet")
    return tmp_path


def stream(tmp_path: Path, fraction: float = 0.0, seed: int = 0, **cut: int) -> PassageStream:
    made = PassageStream(stream_passages(str(tmp_path)), ["text"], fraction, seed)
    made.cut(**{"batch": 4, "step": 8, **cut})
    return made


def spread(made: PassageStream) -> float:
    """Of lengths within a step, as a share of that within the corpus."""
    texts = [text for _, batch in read(made, 15) for text in batch]
    lengths = np.array([len(text) for text in texts]).reshape(15, 8)
    return float(lengths.std(axis=1).mean() / lengths.std())


def read(made: PassageStream, batches: int) -> list[tuple[int, list[str]]]:
    return [(epoch, [row["text"] for row in rows]) for epoch, rows in islice(made, batches)]


def test_an_epoch_reads_every_text_once_and_the_next_in_another_order(tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    everything = sorted(load_passages(str(folder))["text"])
    batches = read(stream(folder), 60)
    first, second = ([text for epoch, texts in batches if epoch == number for text in texts] for number in (0, 1))
    assert sorted(first) == everything == sorted(second)
    assert first != second
    assert first != load_passages(str(folder))["text"][:]
    assert read(stream(folder), 60) == batches
    assert read(stream(folder, seed=1), 60) != batches


def test_texts_of_a_step_have_similar_lengths_unless_told_otherwise(tmp_path: Path) -> None:
    made = stream(corpus(tmp_path), batch=8)
    assert spread(made) < 0.3
    made.group_by_length = False
    assert spread(made) > 0.7


def test_a_step_holds_the_same_texts_on_any_number_of_processes(tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    alone = read(stream(folder, batch=8), 20)
    for processes in (2, 4):
        sides = [
            read(stream(folder, batch=8 // processes, process=process, processes=processes), 20)
            for process in range(processes)
        ]
        joined = [[text for _, texts in parts for text in texts] for parts in zip(*sides, strict=True)]
        assert joined == [texts for _, texts in alone]


def test_batches_are_passed_over_without_tokenizing(tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    for process in (0, 1):
        whole, later = (stream(folder, batch=4, process=process, processes=2) for _ in range(2))
        later.skip = 17
        assert read(later, 10) == read(whole, 27)[17:]


def test_documents_are_held_out_whole(tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    made = stream(folder, fraction=0.2)
    held = made.held_out()
    assert held is not None
    assert held.column_names == ["text"]
    trained = {text for epoch, texts in read(made, 60) if epoch == 0 for text in texts}
    everything = load_passages(str(folder))
    documents = dict(zip(everything["text"], everything["document"], strict=True))
    assert not trained & set(held["text"])
    assert not {documents[text] for text in trained} & {documents[text] for text in held["text"]}
    assert len(held) + len(trained) >= 112, "but for what does not fill a step"
    assert stream(folder).held_out() is None


def test_the_order_may_have_a_seed_of_its_own(tmp_path: Path) -> None:
    rows = stream_passages(str(corpus(tmp_path)))
    plain, other, again = (PassageStream(rows, ["text"], 0.2, 0, data_seed=seed) for seed in (None, 1, 1))
    held = [made.held_out() for made in (plain, other)]
    assert held[0] is not None
    assert held[1] is not None
    assert list(held[0]["text"]) == list(held[1]["text"])
    first, second, third = (read(made, 20) for made in (plain, other, again))
    assert first != second == third


def test_a_stream_reads_the_seed_of_the_data(tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    options = tiny_options(folder, corpus=str(folder), streaming=True)
    for name, data_seed in (("plain", None), ("same", 42), ("other", 1)):
        arguments = tiny_arguments(tmp_path / name, max_steps=2, data_seed=data_seed)
        pretrain(options, arguments)
        assert arguments.ignore_data_skip is False, "it is the user's, and refused"
    assert same_weights(weights(tmp_path / "plain"), weights(tmp_path / "same"))
    assert not same_weights(weights(tmp_path / "plain"), weights(tmp_path / "other"))


def test_rows_without_a_document_are_held_out_by_their_texts(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"text": "row {row}", "document": null}}\n' for row in range(200)))
    held = stream(tmp_path / "rows.jsonl", fraction=0.2).held_out()
    _, mapped = hold_out(load_passages(str(tmp_path / "rows.jsonl")), 0.2, seed=0)
    assert held is not None
    assert mapped is not None
    assert list(held["text"]) == list(mapped["text"])
    assert 20 < len(held) < 60


def test_a_batch_is_what_the_mapped_corpus_gives(tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    collator = ViewCollator(tiny_model("retromae").config, tiny_vocabulary(), 32, seed=3)
    epoch, rows = next(iter(stream(folder)))
    views = StreamCollator(collator, tiny_tokenizer())((epoch, rows))["views"]
    mapped = tokenize(load_passages(str(folder)).select_columns(["text"]), tiny_tokenizer())
    place = {text: at for at, text in enumerate(load_passages(str(folder))["text"])}
    expected = collator([mapped[place[row["text"]]] for row in rows])["views"]
    pairs = zip(views.values(), expected.values(), strict=True)
    assert all(torch.equal(left[key], right[key]) for left, right in pairs for key in left | right)


def test_a_title_of_a_stream_has_any_length_where_it_stands_before_its_text(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "ab cd", "title": "a"}\n{"text": "ef gh", "title": null}\n' * 4)
    titled = {"view": {"sources": ["titled"]}}
    config = tiny_model("retromae", encoders={"encoder": titled}, decoders={"decoder": titled}).config
    made = PassageStream(
        stream_passages(str(tmp_path / "rows.jsonl")), config.sources, 0.0, 0, joined=joined_columns(config.views)
    )
    made.cut(batch=8, step=8)
    collate = StreamCollator(ViewCollator(config, tiny_vocabulary(), 32, seed=0), tiny_tokenizer())
    view = collate(next(iter(made)))["views"]["decoder"]
    assert sorted(view["attention_mask"].sum(1).tolist()) == [6] * 4 + [8] * 4


@pytest.mark.parametrize(
    ("method", "workers"),
    [
        ("retromae", 0),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("simlm", "cotmae", "query_cotmae", "dupmae")),
    ],
)
def test_an_interrupted_run_ends_with_the_weights_of_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, workers: int
) -> None:
    folder = corpus(tmp_path)
    changes: dict[str, Any] = {}
    if method == "simlm":
        changes["generator"] = {"model_type": "electra", "hidden_size": 16, "num_hidden_layers": 1}
        changes["generator"] |= {"num_attention_heads": 2, "intermediate_size": 32, "embedding_size": 16}
    if method == "cotmae":
        paired = add_sources(load_passages(str(folder)), ["text", "neighbour"])
        for file in (folder / "corpus").glob("*"):
            file.unlink()
        paired.to_parquet(folder / "corpus" / "0.parquet")
    options = tiny_options(folder, method, corpus=str(folder), streaming=True, **changes)
    given = {"max_steps": 20, "dataloader_num_workers": workers}
    whole = pretrain(options, saving(tmp_path, "whole", **given))
    interrupt(monkeypatch, options, saving(tmp_path, "cut", **given))
    resumed = pretrain(options, saving(tmp_path, "cut", **given))
    assert same_weights(weights(tmp_path / "cut"), weights(tmp_path / "whole"))
    for name in ("loss", "eval_loss", "epoch"):
        assert logged(whole.history, name) == logged(resumed.history, name) != []


@pytest.mark.slow
def test_accumulated_batches_resume_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = corpus(tmp_path)
    options = tiny_options(folder, corpus=str(folder), streaming=True)
    given = {"max_steps": 20, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    pretrain(options, saving(tmp_path, "whole", **given))
    interrupt(monkeypatch, options, saving(tmp_path, "cut", **given))
    pretrain(options, saving(tmp_path, "cut", resume_from_checkpoint="last", **given))
    assert same_weights(weights(tmp_path / "cut"), weights(tmp_path / "whole"))


def test_a_tokenizer_is_trained_on_the_head_of_the_stream(tmp_path: Path) -> None:
    options = tiny_options(corpus(tmp_path), corpus=str(tmp_path), streaming=True, tokenizer=None, vocab_size=120)
    pretrain(options, tiny_arguments(tmp_path / "out", max_steps=1))
    assert AutoConfig.from_pretrained(tmp_path / "out").vocab_size == 120


def test_texts_of_one_character_and_empty_ones_are_passed_over_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(stream_module.logger, "warning", said.append)
    (tmp_path / "rows.jsonl").write_text('{"text": "ab cd"}\n{"text": "o"}\n{"text": ""}\n{"text": null}\n' * 8)
    made = PassageStream(stream_passages(str(tmp_path / "rows.jsonl")), ["text"], 0.0, 0)
    made.cut(batch=8, step=8)
    assert read(made, 1) == [(0, ["ab cd"] * 8)]
    (warning,) = said
    assert warning.startswith(
        "1 of the first 2 passages of the stream are left out: a text of theirs has no two tokens"
    )


def test_texts_without_spaces_are_read_where_they_have_two_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(stream_module.logger, "warning", said.append)
    texts = ["abc", "- .", "东京塔在哪里", "zß", "q!"]  # `zß` is one token, [UNK]
    rows = [{"text": text, "queries": [text, "a"]} for text in texts] * 2
    Dataset.from_list(rows).to_json(tmp_path / "rows.jsonl")
    made = PassageStream(stream_passages(str(tmp_path / "rows.jsonl")), ["text", "queries"], 0.0, 0)
    made.cut(batch=10, step=10)
    batch = next(iter(made))
    assert sorted({row["text"] for row in batch[1]}) == sorted(texts)
    collate = StreamCollator(
        ViewCollator(tiny_model("query_cotmae").config, tiny_vocabulary(), 32, seed=0), tiny_tokenizer()
    )
    mapped = tokenize(Dataset.from_list(rows), tiny_tokenizer())
    assert len(collate(batch)["views"]["encoder"]["labels"]) == len(mapped) > 0
    collate(batch)
    assert len([line for line in said if "of the stream" in line]) == 1


def test_a_batch_of_texts_of_one_token_is_read_all_the_same() -> None:
    collate = StreamCollator(ViewCollator(tiny_model("retromae").config, tiny_vocabulary(), 32, 0), tiny_tokenizer())
    view = collate((0, [{"text": "a"}, {"text": ""}]))["views"]["encoder"]
    assert view["attention_mask"].tolist() == [[1, 1, 1]]
    with pytest.raises(InputError, match="None of the 2 texts of a batch has a token"):
        collate((0, [{"text": "\u200b\u200b"}] * 2))
    config = tiny_model("query_cocondenser").config
    collate = StreamCollator(ViewCollator(config, tiny_vocabulary(), 32, 0), tiny_tokenizer())
    view = collate((0, [{"text": "a b", "queries": ["c"]}, {"text": "d", "queries": ["e f"]}]))["views"]["encoder"]
    assert len(view["labels"]) == 4, "processes contrast as many texts"


@pytest.mark.parametrize(
    ("changes", "given", "sentence"),
    [
        ({"method": "cocondenser"}, {}, "draws two passages of a document"),
        ({}, {"max_steps": -1}, "no length that is known; say --max_steps"),
        ({}, {"dataloader_num_workers": 2}, "set dataloader_num_workers to 0 or 1"),
        ({"method": "master"}, {}, "name its word counts with --keywords"),
        ({"method": "cotmae"}, {}, "needs the column 'neighbour'"),
        ({}, {"per_device_train_batch_size": 500}, "has .* texts to train on, and a step reads 500"),
        ({"corpus": "./nowhere.jsonl"}, {}, "does not exist"),
        ({"text_column": "body"}, {}, "no column 'body'"),
    ],
)
def test_what_a_stream_cannot_give(
    tmp_path: Path, changes: dict[str, Any], given: dict[str, Any], sentence: str
) -> None:
    folder = corpus(tmp_path)
    options = tiny_options(folder, **{"corpus": str(folder), "streaming": True, **changes})
    with pytest.raises(InputError, match=sentence):
        pretrain(options, tiny_arguments(tmp_path / "out", **given))


def test_an_empty_stream(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(InputError, match="is empty"):
        stream_passages(str(tmp_path / "a.jsonl"))


def test_the_head_of_a_stream_is_enough_to_hold_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "_HELD_OUT_AMONG", 30)
    held = stream(corpus(tmp_path), fraction=0.3).held_out()
    assert held is not None
    assert set(held["text"]) < set(load_passages(str(tmp_path))["text"][:30])
