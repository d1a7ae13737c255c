"""Inputs that broke something once, by name, with what must come of each."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from attacks import LIMIT, Outcome
from forked import run_command
from judging import snapshot, verdict
from material import write_lines
from spoiling import DEEP, DIGITS

_TUNE: Final = "finetune --config @finetune.yaml --model @retriever --collection @collection --out @out"
_PRETRAIN: Final = "pretrain --config @pretrain.yaml --corpus @corpus.jsonl --out @out"
_EVALUATE: Final = "evaluate bm25 --tasks @collection --out @out"
_CURVE: Final = (
    "analyse curve 1=@evaluation/bm25/collection-test 2=@evaluation/bm25/collection-test --out @out --x_label"
)
_ASK: Final = "search @retriever --index @index --queries @questions.jsonl --hits @out"


class Named(NamedTuple):
    """An input: what is done to a copy of what is sound, the command, and what must come of it."""

    spoil: Callable[[Path], object]
    words: str
    expected: str
    said: str = ""


def _rows(path: Path, change: Callable[[list[dict[str, Any]]], list[Any]]) -> None:
    write_lines(path, change([json.loads(line) for line in path.read_text().splitlines()]))


def _lines(path: Path, *lines: str) -> None:
    path.write_text(path.read_text() + "".join(line + "\n" for line in lines))


def _replace(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


def _null_first(room: Path) -> None:
    corpus = room / "collection" / "corpus.jsonl"
    corpus.write_text("null\n" + corpus.read_text())


def _no_text(room: Path) -> None:
    corpus = room / "collection" / "corpus.jsonl"
    corpus.write_bytes(corpus.read_bytes().replace(b'"text": "', b'"text": "\xff', 1))


def _cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _unreadable(path: Path) -> None:
    """Spoil the head of a file of numbers, whose length stays."""
    path.write_bytes(path.read_bytes().replace(b"'shape': (", b"'shape': \x7f", 1))


def _twice(table: str) -> Callable[[Path], None]:
    return lambda room: _rows(room / "collection" / table, lambda rows: [*rows, {**rows[0], "text": "another"}])


def _judged(line: str) -> Callable[[Path], None]:
    return lambda room: _lines(room / "collection" / "qrels" / "test.tsv", line)


def _setting(file: str, name: str, value: object) -> Callable[[Path], None]:
    def spoil(room: Path) -> None:
        settings = json.loads((room / file).read_text())
        (room / file).write_text(json.dumps(settings | {name: value}))

    return spoil


def _nested(room: Path) -> None:
    (room / "documents" / "deep.html").write_text("<div>" * 50_000 + "some words are here" + "</div>" * 50_000)


def _long_word(room: Path) -> None:
    word = "".join(random.Random(0).choices("abcdefgh", k=1_000_000))
    _rows(room / "corpus.jsonl", lambda rows: [*rows, {**rows[0], "text": word}])


def _endless_question(room: Path) -> None:
    question = " ".join(random.Random(0).choices(["ab", "cd", "ef"], k=300_000))
    _rows(room / "collection" / "queries.jsonl", lambda rows: [*rows[:-1], {**rows[-1], "text": question}])


def _nothing(room: Path) -> None:
    """What is wrong stands in the command."""


_QUESTION: Final = '{{"id": "a", "text": "b", "more": {}}}'
NAMED: Final = {
    "two passages of one id": Named(_twice("corpus.jsonl"), _EVALUATE, "refused", "'p0' more than once"),
    "two queries of one id": Named(_twice("queries.jsonl"), _EVALUATE, "refused", "'q0' more than once"),
    "two queries of one id to train on": Named(_twice("queries.jsonl"), _TUNE, "refused", "'q0' more than once"),
    "two grades of one passage": Named(_judged("q0\tp0\t0"), _EVALUATE, "refused", "two grades"),
    "a judgement said twice": Named(_judged("q0\tp0\t1"), _EVALUATE, "done", "1 of its judgements twice"),
    "a grade of 2147483647": Named(_judged("q0\tp3\t2147483647"), _EVALUATE, "refused", "2147483647"),
    "a split that is a pattern": Named(_nothing, _EVALUATE.replace("@collection", "@collection:t*"), "refused", "'t*'"),
    "objects in place of texts": Named(
        lambda room: _rows(room / "corpus.jsonl", lambda rows: [{**rows[0], "text": {"a": "b"}}, *rows[1:]]),
        "data passages @corpus.jsonl --processes 1 --out @out",
        "done",
        "1 no text where one belongs",
    ),
    "an object as a query": Named(
        lambda room: _rows(room / "labels.jsonl", lambda rows: [{**rows[0], "query": {"a": "b"}}, *rows[1:]]),
        "data labels @labels.jsonl --out @out",
        "refused",
        "where a text belongs",
    ),
    "half a letter in a label": Named(
        lambda room: _lines(room / "labels.jsonl", '{"query": "a \\ud800", "positive": "b"}'),
        "data labels @labels.jsonl --out @out",
        "refused",
        "half a letter",
    ),
    "half a letter in an id": Named(
        lambda room: _lines(room / "questions.jsonl", '{"id": "a \\ud800", "text": "b"}'), _ASK, "done"
    ),
    "a number of 5,000 digits": Named(
        lambda room: _lines(room / "questions.jsonl", _QUESTION.format(DIGITS)), _ASK, "refused", "Line 7"
    ),
    "20,000 lists in each other": Named(
        lambda room: _lines(room / "questions.jsonl", _QUESTION.format(DEEP)), _ASK, "refused", "Line 7"
    ),
    "an id of 20,000 lists": Named(
        lambda room: _lines(room / "collection" / "corpus.jsonl", f'{{"_id": {DEEP}, "text": "a"}}'),
        _EVALUATE,
        "refused",
        "nested too deeply",
    ),
    "a first row that is null": Named(_null_first, _EVALUATE, "refused", "Line 1 of"),
    "a text that is no UTF-8": Named(_no_text, _EVALUATE, "refused", "corpus.jsonl is not UTF-8"),
    "a score that is a list": Named(
        _setting("evaluation/bm25/collection-test/result.json", "per_query", {"ndcg@10": {"q1": [], "q2": 1.0}}),
        f"{_CURVE} steps",
        "refused",
        "not an evaluation result",
    ),
    "a label of no letters": Named(
        _nothing,
        f"{_CURVE} \udcff",
        "refused",
        "cannot be printed",
    ),
    "a notebook of no format": Named(
        lambda room: _replace(room / "documents" / "four.ipynb", '"nbformat": 4, ', ""),
        "data passages @documents --processes 1 --out @out",
        "done",
    ),
    "a method that is a list": Named(
        lambda room: _lines(room / "pretrain.yaml", "method: [1, 2]"), _PRETRAIN, "refused", "method"
    ),
    "a dropout that is no number": Named(
        _setting("encoder/config.json", "hidden_dropout_prob", float("nan")),
        f"{_PRETRAIN} --backbone @encoder --max_steps 1",
        "refused",
        "dropout",
    ),
    "pairs of 20 digits": Named(
        _nothing, f"analyse contexts @retriever @corpus.jsonl --out @out --pairs {'9' * 20}", "refused", "--pairs"
    ),
    "a prompt of more tokens than can be counted": Named(
        _nothing,
        f"data generate @collection --model @writer --input_length {'9' * 20} --out @out",
        "refused",
        "input_length",
    ),
    "an encoder of more layers than can be made": Named(
        _nothing,
        f"sweep --config @sweep.yaml --collection @collection --layers {'9' * 20} --out @out",
        "refused",
        "layers",
    ),
    "a cluster whose address is a word": Named(
        _nothing, "search @retriever abcd --corpus @collection --index @out --ray abc", "refused", "'abc'"
    ),
    "a vocabulary below 0": Named(
        lambda room: _lines(room / "sweep.yaml", "vocabulary: -3"),
        "sweep --config @sweep.yaml --collection @collection --out @out",
        "refused",
        "vocabulary",
    ),
    "documents that are all null": Named(
        lambda room: _rows(room / "corpus.jsonl", lambda rows: [{**row, "document": None} for row in rows]),
        "data contexts @corpus.jsonl --processes 1 --out @out",
        "refused",
        "No document has two passages",
    ),
    "titles that are objects": Named(
        lambda room: _rows(room / "corpus.jsonl", lambda rows: [{**row, "title": {"a": 1}} for row in rows]),
        "data queries @corpus.jsonl --from headings --out @out",
        "refused",
        "'title'",
    ),
    "HTML of 50,000 nested elements": Named(_nested, "data passages @documents --processes 1 --out @out", "done"),
    "a word of a megabyte": Named(_long_word, f"{_PRETRAIN} --vocab_size 200", "done"),
    "a question of a megabyte that a cross-encoder reads": Named(
        _endless_question, f"{_EVALUATE} --rerank @reranker --rerank_depth 16", "done"
    ),
    "a vocabulary of 1e9": Named(_nothing, f"{_PRETRAIN} --vocab_size 1000000000", "refused", "vocab_size"),
    "a model that was cut off": Named(lambda room: _cut(room / "retriever" / "model.safetensors"), _ASK, "refused"),
    "an index that was cut off": Named(
        lambda room: _cut(room / "index" / "vectors-00000.npy"), _ASK, "refused", "build it again"
    ),
    "an index whose vectors have no shape": Named(
        lambda room: _unreadable(room / "index" / "vectors-00000.npy"),
        "analyse kinds @index @collection --model @retriever --out @out",
        "refused",
        "build it again",
    ),
    "a learning rate that is no number": Named(_nothing, f"{_TUNE} --learning_rate nan", "refused", "learning_rate"),
    "a seed below 0": Named(_nothing, f"{_TUNE} --seed -3", "refused", "--seed -3"),
    "no text at a time": Named(
        _nothing, "data train-generator @collection --base @writer --batch_size 0 --out @out", "refused", "batch_size"
    ),
    "a seed of 20 digits": Named(
        _nothing,
        f"sweep --config @sweep.yaml --collection @collection --out @out --seeds {'9' * 20}",
        "refused",
        "seed",
    ),
    "lists in each other in a task": Named(
        lambda room: _lines(room / "glue" / "cola" / "train.jsonl", f'{{"sentence": {DEEP}, "label": 1, "idx": 9}}'),
        "glue @encoder --tasks cola --data_dir @glue --max_length 16 --out @out",
        "refused",
        "nested too deeply",
    ),
    "a model of a billion layers": Named(
        _setting("reranker/config.json", "num_hidden_layers", 10**9),
        "data filter @collection --teacher @reranker --out @out",
        "refused",
        "layers",
    ),
    "a generator with a setting that is none": Named(
        _setting("writer/generation_config.json", "output_hidden_states", "no"),
        "data generate @collection --model @writer --out @out",
        "refused",
        "writer",
    ),
    "a tokenizer without a token for what it does not know": Named(
        _setting("encoder/tokenizer_config.json", "unk_token", ""),
        "glue @encoder --tasks cola --data_dir @glue --max_length 16 --out @out",
        "refused",
        "tokenizer",
    ),
    "a retriever without a token for what it does not know": Named(
        _setting("retriever/tokenizer_config.json", "unk_token", "zebra"),
        "analyse contexts @retriever @corpus.jsonl --pairs 5 --seed 1 --out @out",
        "refused",
        "no token for what it does not know",
    ),
    "queries whose column is no text": Named(
        lambda room: (room / "collection" / "queries.jsonl").write_bytes(b'{"\xff": "a"}\n'), _EVALUATE, "refused"
    ),
    "judgements whose column is no text": Named(
        lambda room: (room / "collection" / "qrels" / "test.tsv").write_bytes(b"query-id\tcorpus\xffid\tscore\n"),
        _EVALUATE,
        "refused",
    ),
    "a tokenizer whose greatest length is a list": Named(
        _setting("encoder/tokenizer_config.json", "model_max_length", [None]),
        "export @encoder --kind retriever --max_length 24 --out @out",
        "refused",
        "tokenizer",
    ),
    "architectures that are a number": Named(
        _setting("retriever/config.json", "architectures", 0.5),
        "evaluate @retriever --tasks @collection --out @out",
        "refused",
        "architectures",
    ),
    "a dimension that is a word": Named(
        _setting("retriever/1_Pooling/config.json", "embedding_dimension", "many"), _ASK, "refused", "dimensions, not"
    ),
    "more passages than can be counted": Named(_nothing, f"{_ASK} --top_k 99999999999999999999", "done"),
    "more hits than can be counted": Named(
        _nothing,
        "data negatives @collection --model @retriever --depth 99999999999999999999 --out @out",
        "done",
    ),
    "more texts at once than can be counted": Named(
        _nothing,
        f"data train-generator @collection --base @writer --batch_size {'9' * 20} --out @out",
        "refused",
        "batch_size",
    ),
    "a greatest length that is a word": Named(
        _setting("pretrained/tokenizer_config.json", "model_max_length", "many"),
        "export @pretrained --kind encoder --out @out",
        "refused",
        "model_max_length",
    ),
    "a greatest length that is an object": Named(
        _setting("encoder/tokenizer_config.json", "model_max_length", {}),
        "data keywords @corpus.jsonl --tokenizer @encoder --out @out",
        "refused",
        "model_max_length",
    ),
    "a length of all stages that is a word": Named(
        lambda room: _replace(room / "stages.yaml", "\nmax_length: 24", "\nmax_length: many"),
        "finetune --config @stages.yaml --model @encoder --collection @collection --out @out",
        "refused",
        "max_length: 'many', which is no whole number",
    ),
    "fewer texts at once than one": Named(_nothing, f"{_EVALUATE} --batch_size -3", "refused", "1 or more"),
    "a manifest that lacks a word on its commit": Named(
        lambda room: _replace(room / "retriever" / "hf_dense.json", '"dirty"', '"clean"'),
        "merge @retriever @retriever --weight 0.5 --out @out",
        "done",
    ),
    "a token that the re-ranker has not": Named(
        _setting("reranker/tokenizer_config.json", "sep_token", "zebra"),
        "data scores @collection --lists @lists --model @reranker --out @out",
        "refused",
    ),
    "a split without a name": Named(
        _nothing, "data labels @labels.jsonl --split \x00 --out @out", "refused", "name of a split"
    ),
    "positions that are objects": Named(
        lambda room: _rows(room / "corpus.jsonl", lambda rows: [{**row, "position": {"a": 1}} for row in rows]),
        "data contexts @corpus.jsonl --out @out",
        "refused",
        "no whole number",
    ),
    "a position that is a word": Named(
        lambda room: _rows(room / "corpus.jsonl", lambda rows: [{**row, "position": "a"} for row in rows]),
        "data queries @corpus.jsonl --from headings --out @out",
        "refused",
        "no whole number",
    ),
    "a position of more than four bytes": Named(
        lambda room: _rows(room / "corpus.jsonl", lambda rows: [{**row, "position": 2**31} for row in rows]),
        "data queries @corpus.jsonl --from headings --out @out",
        "refused",
        "no whole number: Integer value 2147483648 not in range",
    ),
    "a host that is no name": Named(_nothing, "serve @served --port 0 --host \x00", "refused", "name another --port"),
    "an encoder that is to write queries": Named(
        _nothing, "data generate @collection --model @retriever --out @out", "refused", "which writes no text"
    ),
    "an adaptation of a reranker": Named(
        _nothing, "adapt @manual.jsonl --base @reranker --keep none --out @out", "refused", "is a cross-encoder"
    ),
    "fewer steps than are logged": Named(_nothing, f"{_TUNE} --logging_steps 500", "done"),
}


def attack_named(name: str, material: Path, room: Path) -> Outcome:
    """Run a named input; its verdict is `done` or `refused` where that came of it which must, else what came."""
    case = NAMED[name]
    words = [word.replace("@", f"{room}/") for word in case.words.split()]
    shutil.copytree(material, room, dirs_exist_ok=True)
    case.spoil(room)
    before = snapshot(room)
    ended = run_command(words, room.with_name(f"{room.name}-said"), LIMIT)
    found = verdict(ended, before, snapshot(room))
    if found == case.expected and case.said not in ended.stdout + ended.stderr:
        found = f"{found} without saying {case.said!r}"
    elif found != case.expected and found in ("done", "refused"):
        found = f"{found}, not {case.expected}"
    return Outcome(-1, case.words.split()[0], name, found, ended, words)
