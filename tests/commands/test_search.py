"""`hf-dense search`: an index is built once, and never one of another model or corpus."""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from manifests import manifest_of
from pyarrow import parquet
from tiny_retriever import spaced_tokenizer, write_cross_encoder, write_dataset, write_retriever
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_dense.commands import search
from hf_dense.commands.main import main
from hf_dense.data import passage_corpus
from hf_dense.data.engines import Engine
from hf_dense.data.passage_corpus import Cutting, build_passage_corpus
from hf_dense.data.passages import tokenizer_source
from hf_dense.errors import InputError
from hf_dense.hub.loading import load_tokenizer
from hf_dense.search import dense
from hf_dense.search.approximate import KINDS
from hf_dense.search.cross_encoder import load_reranker
from hf_dense.search.index import SearchIndex
from hf_dense.search.index_building import cutting_in, update_index
from hf_dense.search.reranking import rerank_hits


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_retriever(tmp_path / "model")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "dataset", passages=50, queries=10)


def run(*words: Any) -> None:
    parser = argparse.ArgumentParser()
    search.add_arguments(parser)
    search.run(parser.parse_args(list(map(str, words))))


def hits(shown: str) -> list[str]:
    return shown.splitlines()[:-1]


def test_the_index_is_built_once(model: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = (model, "abc def", "--top_k", 3)
    run(*given, "--corpus", corpus)
    first = capsys.readouterr().out
    assert [line.split(".")[0].strip() for line in first.splitlines() if ". " in line[:4]] == ["1", "2", "3"]
    assert "50 passages ready in" in first
    built = (model / "index" / "vectors-00000.npy").stat().st_mtime_ns
    for again in (given, (*given, "--corpus", corpus)):
        run(*again)
        assert hits(capsys.readouterr().out) == hits(first)
    assert (model / "index" / "vectors-00000.npy").stat().st_mtime_ns == built


@pytest.mark.parametrize("at", [1, 3], ids=["before the options", "after them"])
def test_who_is_given_the_index_is_not_told_what_was_asked(model: Path, corpus: Path, at: int) -> None:
    words = [str(model), "--corpus", str(corpus)]
    main(["search", *words[:at], "who is ill", *words[at:]])
    assert manifest_of(model / "index").command == f"hf-dense search {model} --corpus {corpus}"


def test_an_index_of_another_corpus_or_model_is_refused_and_rebuilt_when_asked(
    model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("abc", "--index", tmp_path / "index")
    run(model, *given, "--corpus", corpus)
    other_corpus = write_dataset(tmp_path / "smaller", passages=30, queries=10)
    other_model = write_retriever(tmp_path / "other", seed=1)
    with pytest.raises(InputError, match=r"was made from another corpus \(.*--update.*--overwrite"):
        run(model, *given, "--corpus", other_corpus)
    with pytest.raises(InputError, match=r"was made from another kind \(exact, now int8\).*--update"):
        run(model, *given, "--corpus", corpus, "--kind", "int8")
    with pytest.raises(InputError, match=r"was made from another model \(.*--overwrite"):
        run(other_model, *given, "--corpus", corpus)
    with pytest.raises(InputError, match=r"made by another model \(.*model\)"):
        run(other_model, *given)
    run(other_model, *given, "--corpus", other_corpus, "--overwrite")
    capsys.readouterr()
    run(other_model, *given)
    assert "30 passages" in capsys.readouterr().out


def test_the_first_passages_are_ordered_anew(
    model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reranker = write_cross_encoder(tmp_path / "reranker")
    run(model, "abc def", "--corpus", corpus)
    given = ("--rerank", reranker, "--rerank_depth", 20, "--top_k", 6)
    index, ranker = SearchIndex.load(model / "index"), load_reranker(reranker)
    wanted = [hits[:6] for hits in rerank_hits(ranker, ["abc def", "ghi"], index.search_many(["abc def", "ghi"], 20))]
    assert wanted[0] != index.search("abc def", 6)
    capsys.readouterr()
    run(model, "abc def", *given)
    shown = capsys.readouterr().out
    assert [line.split("  ")[1] for line in shown.splitlines() if ". " in line[:4]] == [
        f"{hit.title} ({hit.id})" for hit in wanted[0]
    ]
    (tmp_path / "questions.txt").write_text("abc def\nghi\n")
    run(model, *given, "--queries", tmp_path / "questions.txt", "--hits", tmp_path / "hits.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text().splitlines()]
    assert [[hit["id"] for hit in row["hits"]] for row in rows] == [[hit.id for hit in hits] for hits in wanted]


def test_what_is_no_reranker_is_said_before_anything_is_encoded(model: Path, corpus: Path) -> None:
    for words, message in (
        (("--rerank", model), "has no head that scores pairs"),
        (("--rerank", corpus / "nowhere"), "nowhere"),
        (("--rerank_depth", 5), "name it with --rerank MODEL"),
    ):
        with pytest.raises(InputError, match=message):
            run(model, "abc", "--corpus", corpus, *words)
    assert not (model / "index").exists()


def test_what_cannot_be_searched(model: Path, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.tex").write_text("years of work")
    for words, message in (
        ((model, "abc"), "name a corpus"),
        ((model / "nowhere", "abc", "--corpus", corpus), "is not a directory"),
        ((model, " ", "--corpus", corpus), "question is empty"),
        ((model, "abc", "--corpus", corpus / "nowhere"), "nowhere"),
        ((model, "abc", "--index", tmp_path / "theirs"), "no search index"),
        ((model, "abc", "--corpus", corpus, "--index", tmp_path / "theirs", "--overwrite"), "not written by hf_dense"),
    ):
        with pytest.raises(InputError, match=message):
            run(*words)
    assert not (model / "index").exists()


def test_documents_are_cut_as_a_corpus_of_them_is(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("abc", "def"):
        (folder / f"{name}.md").write_text(f"# {name}\n\n" + f"Some {name} words are {name}. " * 40)
    run(model, "abc", "--corpus", folder)
    passages = parquet.read_table(model / "index" / "passages.parquet").to_pylist()
    corpus = build_passage_corpus(str(folder), tmp_path / "corpus", engine=Engine(processes=1))
    rows = parquet.read_table(corpus / "corpus").to_pylist()
    assert passages == [{name: row[name] for name in ("id", "title", "text")} for row in rows]
    run(model, "abc", "--corpus", corpus)  # the same passages: nothing to do
    with pytest.raises(InputError, match=r"lies inside .*docs, all of which is read"):
        run(model, "abc", "--corpus", folder, "--index", folder / "index")


def test_documents_that_changed_are_cut_as_those_of_the_index_were(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, tokenizer = tmp_path / "docs", tmp_path / "tokenizer"
    folder.mkdir()
    load_tokenizer(model).save_pretrained(tokenizer)
    cutting, before = Cutting(length=40, tokenizer=str(tokenizer)), 0
    for at, name in enumerate(("abc", "def", "ghi")):
        (folder / f"{name}.md").write_text(f"# {name}\n\n" + f"Some {name} words are {name}. " * 40)
        corpus = build_passage_corpus(
            str(folder), tmp_path / f"corpus{at}", cutting, code="drop", engine=Engine(processes=1)
        )
        if at == 0:
            run(model, "abc", "--corpus", corpus)
        else:
            run(model, "abc", "--corpus", folder, "--update")
            assert f"{before:,} passages kept, " in capsys.readouterr().out
        rows = parquet.read_table(corpus / "corpus").select(["id", "title", "text"])
        assert parquet.read_table(model / "index" / "passages.parquet").equals(rows)
        before = rows.num_rows
    fingerprint = tokenizer_source(str(tokenizer))["tokenizer"].fingerprint
    assert cutting_in(model / "index") == {**asdict(cutting), "code": "drop", "fingerprint": fingerprint}


def write_document(folder: Path, name: str) -> None:
    (folder / f"{name}.md").write_text(f"# {name}\n\n" + f"Some unusual {name} words are {name}. " * 40)


def other_tokenizer() -> PreTrainedTokenizerFast:
    return spaced_tokenizer(["Some unusual abc words are abc."], "bytes")


def cut_and_indexed(model: Path, tmp_path: Path, by: PreTrainedTokenizerBase) -> tuple[Path, Path]:
    """A folder of documents, and the place of the tokenizer that cut them; a model has an index of the passages."""
    folder, tokenizer = tmp_path / "docs", tmp_path / "tokenizer"
    folder.mkdir()
    write_document(folder, "abc")
    by.save_pretrained(tokenizer)
    cutting = Cutting(length=40, tokenizer=str(tokenizer))
    corpus = build_passage_corpus(str(folder), tmp_path / "corpus", cutting, engine=Engine(processes=1))
    run(model, "abc", "--corpus", corpus)
    return folder, tokenizer


@pytest.mark.parametrize("then", ["gone", "another"])
def test_documents_are_cut_with_the_tokenizer_of_the_model_where_that_of_the_index_is_gone_or_another(
    then: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, tokenizer = cut_and_indexed(model, tmp_path, load_tokenizer(model))
    before, known = indexed(model), cutting_in(model / "index")
    shutil.rmtree(tokenizer)
    if then == "another":
        other_tokenizer().save_pretrained(tokenizer)
    passage_corpus._counter.cache_clear()  # as in another process
    run(model, "abc", "--corpus", folder, "--update")
    assert f"{len(before)} passages kept, 0 encoded, 0 removed\n" in capsys.readouterr().out
    assert indexed(model) == before
    write_document(folder, "def")
    run(model, "abc", "--corpus", folder, "--update")
    assert f"{len(before)} passages kept, {len(before)} encoded, 0 removed\n" in capsys.readouterr().out
    assert cutting_in(model / "index") == known


def test_passages_that_are_given_as_rows_keep_how_documents_are_cut(model: Path, tmp_path: Path) -> None:
    cut_and_indexed(model, tmp_path, load_tokenizer(model))
    known = cutting_in(model / "index")
    update_index(model, Dataset.from_list(indexed(model)[:1]), model / "index")
    assert known
    assert cutting_in(model / "index") == known


@pytest.mark.parametrize(
    ("then", "said"), [("gone", "which is not there now"), ("another", "where another tokenizer is now")]
)
def test_documents_that_no_tokenizer_cuts_as_before_are_refused(
    then: str, said: str, model: Path, tmp_path: Path
) -> None:
    folder, tokenizer = cut_and_indexed(model, tmp_path, other_tokenizer())
    before = indexed(model)
    run(model, "abc", "--corpus", folder, "--update")
    assert indexed(model) == before
    shutil.rmtree(tokenizer)
    if then == "another":
        load_tokenizer(model).save_pretrained(tokenizer)
    with pytest.raises(InputError, match=rf"cut to 40 tokens of .*tokenizer for this index, {said}; cut"):
        run(model, "abc", "--corpus", folder, "--update")
    assert indexed(model) == before


def test_an_index_of_before_knows_the_tokenizer_by_its_name(model: Path, tmp_path: Path) -> None:
    folder, tokenizer = cut_and_indexed(model, tmp_path, load_tokenizer(model))
    manifest, before = manifest_of(model / "index"), indexed(model)
    del manifest.facts["cutting"]["fingerprint"]
    manifest.save(model / "index")
    run(model, "abc", "--corpus", folder, "--update")
    assert indexed(model) == before
    tokenizer.rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"cut to 40 tokens of .*tokenizer for this index, which is not there now"):
        run(model, "abc", "--corpus", folder, "--update")


def write_products(path: Path, count: int) -> Path:
    """A table whose texts are notes, and whose descriptions are of 30 words."""
    rows = [f"s{at},Product {at},note {at} for the staff alone,{'word described ' * 15}" for at in range(count)]
    path.write_text("\n".join(["sku,title,text,description", *rows]) + "\n")
    return path


def indexed(model: Path) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = parquet.read_table(model / "index" / "passages.parquet").to_pylist()
    return rows


@pytest.mark.parametrize("length", [12, None])
def test_a_table_is_cut_as_the_documents_of_the_index_were(
    length: int | None, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_products(tmp_path / "products.csv", 3)
    columns, cutting = {"id": "sku", "text": "description"}, Cutting(length, repeats="keep")
    corpus = build_passage_corpus(str(table), tmp_path / "corpus", cutting, columns=columns, engine=Engine(processes=1))
    run(model, "abc", "--corpus", corpus)
    before = indexed(model)
    assert len(before) == (9 if length else 3)
    run(model, "abc", "--corpus", table)  # the same passages: nothing to do
    capsys.readouterr()
    run(model, "abc", "--corpus", table, "--update")
    assert f"{len(before)} passages kept, 0 encoded, 0 removed\n" in capsys.readouterr().out
    assert indexed(model) == before
    write_products(table, 4)
    run(model, "abc", "--corpus", table, "--update")
    assert indexed(model)[: len(before)] == before
    assert [row["id"] for row in indexed(model)[len(before) :]] == (["s3#0", "s3#1", "s3#2"] if length else ["s3"])
    assert cutting_in(model / "index") == {**asdict(cutting), "code": "keep", "columns": columns}


def test_documents_are_cut_as_before_also_where_passages_were_removed_in_python(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = cut_and_indexed(model, tmp_path, load_tokenizer(model))
    write_document(folder, "def")
    run(model, "abc", "--corpus", folder, "--update")
    before, known, sources = indexed(model), cutting_in(model / "index"), manifest_of(model / "index").sources
    SearchIndex.load(model / "index").remove([before[0]["id"]])
    assert (cutting_in(model / "index"), manifest_of(model / "index").sources) == (known, sources)
    run(model, "abc", "--corpus", folder, "--update")
    assert f"{len(before) - 1} passages kept, 1 encoded, 0 removed\n" in capsys.readouterr().out
    assert indexed(model) == before


@pytest.mark.parametrize("more", [(), ("--corpus", "changed", "--update")], ids=["asked", "updated"])
def test_an_index_that_a_killed_update_moved_away_is_put_back(
    more: tuple[str, ...], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before, after = (write_dataset(tmp_path / name, number, 4) for name, number in (("docs", 9), ("changed", 12)))
    run(model, "abc", "--corpus", before, "--kind", "int8", "--weight", "0.5")
    rename = os.rename

    def killed(old: Path, new: Path) -> None:
        if Path(new) == model / "index":
            raise KeyboardInterrupt
        rename(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            run(model, "abc", "--corpus", after, "--update")
    assert not (model / "index").exists()
    run(model, "abc", *more)
    index = SearchIndex.load(model / "index")
    assert (len(index), index.kind, index.weight) == (12 if more else 9, "int8", 0.5)


def test_rows_that_were_passages_stay_so(model: Path, tmp_path: Path) -> None:
    table = write_products(tmp_path / "products.csv", 3)
    for number, more in ((3, ()), (4, ("--update",))):
        write_products(table, number)
        run(model, "abc", "--corpus", table, *more)
        assert [row["text"] for row in indexed(model)] == [f"note {at} for the staff alone" for at in range(number)]
    assert cutting_in(model / "index") is None


def test_columns_are_those_of_the_index_also_beside_files_of_text(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    write_products(folder / "products.csv", 3)
    (folder / "guide.md").write_text("# Guide\n\nHow the products are cleaned and put away.")
    columns = {"id": "sku", "text": "description"}
    corpus = build_passage_corpus(str(folder), tmp_path / "corpus", columns=columns, engine=Engine(processes=1))
    run(model, "abc", "--corpus", corpus)
    before = indexed(model)
    run(model, "abc", "--corpus", folder, "--update")
    assert indexed(model) == before
    assert not any("staff" in row["text"] for row in before)


def test_what_is_left_out_of_documents_is_said(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.md").write_text(f"# Heading\n\nWords that stand in the file {name} of caf\u00e9s.")
    (folder / "d.md").write_text("Too few.")
    run(model, "abc", "--corpus", folder)
    said = f"{folder}: 4 documents read, 1 passages below 4 words, 3 passages\n"
    assert capsys.readouterr().out.startswith(said)
    (folder / "b.md").write_bytes("Words that stand in the file b of caf\u00e9s.".encode("cp850"))
    run(model, "abc", "--corpus", folder, "--update")
    said = f"{folder}: 3 documents read, 1 broken UTF-8, 1 passages below 4 words, 2 passages\n2 passages kept, "
    assert capsys.readouterr().out.startswith(said)
    table = tmp_path / "table.jsonl"
    table.write_text('{"id": "1", "text": "a b"}\n{"id": "2", "text": " "}\n')
    run(model, "abc", "--corpus", table, "--index", tmp_path / "index")
    assert capsys.readouterr().out.startswith(f"{table}: 1 documents read, 1 empty\n")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "id,title,text\n", "it is empty"),
        ("a.csv", "", "it is empty"),
        ("a.jsonl", '{"id": "1", "text": ""}\n{"id": "2", "text": " "}\n', "2 empty"),
    ],
)
def test_a_table_without_a_text_is_a_sentence(name: str, content: str, said: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=rf"a\.{name[2:]} holds no passage that can be read: {said}; name"):
        run(model, "abc", "--corpus", tmp_path / name)
    assert not (model / "index").exists()


def test_a_folder_of_documents_is_named_where_another_one_is_refused(model: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        (folder / "a.md").write_text(f"# Heading\n\nWords of the {folder.name} folder.")
    run(model, "abc", "--corpus", folders[0])
    found = manifest_of(model / "index")
    assert found.sources["corpus"] == str(folders[0])
    with pytest.raises(InputError, match=rf"another corpus \({folders[0]}, now {folders[1]}\)"):
        run(model, "abc", "--corpus", folders[1])


def test_without_a_question_lines_are_questions(
    model: Path, corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(model, "abc def", "--corpus", corpus, "--top_k", 2)
    first = hits(capsys.readouterr().out)
    for typed in ("abc def\nq w e\n", "abc def\nq w e\n\nnever asked\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        run(model, "--top_k", 2)
        shown = capsys.readouterr().out
        assert shown.startswith("\n".join(first))
        assert shown.count(" 1. ") == 2
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    run(model)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), encoding="utf-8"))
    with pytest.raises(InputError, match="not text in UTF-8"):
        run(model)


def test_a_prompt_asks_where_somebody_types(
    model: Path, corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(model, "abc", "--corpus", corpus)
    capsys.readouterr()
    typed = io.StringIO("abc\n")
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", typed)
    run(model)
    assert capsys.readouterr().out.startswith("50 passages; ask a question per line, an empty line ends.\n?  1. ")


def test_many_questions_are_answered_in_a_file(
    model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_TOGETHER", 4)
    out = tmp_path / "hits.jsonl"
    run(model, "--corpus", corpus, "--queries", corpus / "queries.jsonl", "--hits", out, "--top_k", 3)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert "10 questions searched for in 50 passages" in capsys.readouterr().out
    assert [row["id"] for row in rows] == [f"q{row}" for row in range(10)]
    assert [len(row["hits"]) for row in rows] == [3] * 10
    run(model, rows[7]["text"], "--top_k", 3)
    assert f"{rows[7]['hits'][0]['score']:.3f}" in capsys.readouterr().out
    with pytest.raises(InputError, match="is there already"):
        run(model, "--queries", corpus / "queries.jsonl", "--hits", out)


@pytest.mark.parametrize("quiet", [False, True])  # TQDM_DISABLE, which tqdm reads once
def test_an_update_says_what_it_did(
    quiet: bool,
    model: Path,
    corpus: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dense, "tqdm", partial(tqdm, disable=quiet))
    run(model, "abc", "--corpus", corpus)
    changed = tmp_path / "changed"
    shutil.copytree(corpus, changed)
    lines = (corpus / "corpus.jsonl").read_text().splitlines()[5:]
    new = [json.dumps({"_id": f"n{at}", "title": "new", "text": "b " * at}) for at in range(3)]
    (changed / "corpus.jsonl").write_text("\n".join([*new, *lines]) + "\n")
    capsys.readouterr()
    run(model, "abc", "--corpus", changed, "--update", "--kind", "binary", "--weight", 0.5)
    shown = capsys.readouterr().out
    assert shown.startswith("45 passages kept, 3 encoded, 5 removed\n")
    assert "48 passages ready" in shown
    made = manifest_of(model / "index")
    assert (made.made_from["kind"], made.made_from["weight"]) == ("binary", 0.5)
    run(model, "abc", "--corpus", changed)  # the same, of its kind and weight


def test_an_index_keeps_precision_and_length(
    model: Path, corpus: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    run(model, "abc def", "--corpus", corpus, "--precision", "bf16", "--max_length", 8, "--batch_size", 4)
    first = hits(capsys.readouterr().out)
    manifest = manifest_of(model / "index")
    assert (manifest.made_from["precision"], manifest.made_from["max_length"]) == ("bf16", 8)
    run(model, "abc def", "--corpus", corpus)
    assert hits(capsys.readouterr().out) == first
    assert "Questions are" not in caplog.text
    run(model, "abc def", "--precision", "fp32")
    assert "Questions are encoded in fp32; the passages were in bf16" in caplog.text
    for more in ((), ("--update",)):
        with pytest.raises(InputError, match=r"another precision \(bf16, now fp32\)"):
            run(model, "abc def", "--corpus", corpus, "--precision", "fp32", *more)
    with pytest.raises(InputError, match="--max_length is for building an index"):
        run(model, "abc def", "--max_length", 8)


def test_the_weight_is_kept_where_an_index_is_built(
    model: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    word = json.loads((corpus / "corpus.jsonl").read_text().splitlines()[20])["title"]
    run(model, word, "--corpus", corpus, "--weight", 0, "--top_k", 1)
    by_words = hits(capsys.readouterr().out)
    assert by_words[0] == f" 1. 1.000  {word} (p20)", "its id names the document"
    run(model, word, "--top_k", 1)
    assert hits(capsys.readouterr().out) == by_words
    run(model, word, "--corpus", corpus, "--weight", 1)
    assert hits(capsys.readouterr().out)[0].split()[1] != "1.000"
    run(model, "xxxxyyyy")
    assert hits(capsys.readouterr().out)[0] == "No passage was found."


def test_options_that_do_not_go_together(model: Path, corpus: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text("abc\n")
    for words, message in (
        (("--update",), "--update is for building an index"),
        (("abc", "--overwrite"), "--overwrite is for building an index; name what it holds with --corpus CORPUS"),
        (("--kind", "int8"), "--kind is for building an index"),
        (("--update", "--corpus", corpus), "no index in .* to update"),
        (("--queries", asked, "--corpus", corpus), "need both"),
        (("--hits", tmp_path / "hits", "--corpus", corpus), "need both"),
        (("abc", "--queries", asked, "--hits", tmp_path / "hits", "--corpus", corpus), "but not both"),
        (("--queries", tmp_path / "no", "--hits", tmp_path / "hits", "--corpus", corpus), "can be read"),
        (("--queries", asked, "--hits", asked / "hits", "--corpus", corpus), "no directory"),
        (("abc", "--top_k", 0, "--corpus", corpus), "top_k is 0"),
        (("abc", "--weight", 2, "--corpus", corpus), "weight is 2"),
        (("", "--corpus", corpus), "question is empty"),
    ):
        with pytest.raises(InputError, match=message):
            run(model, *words)
    assert not (model / "index").exists()
    assert not (tmp_path / "hits").exists()


def test_kinds_are_those_of_the_library() -> None:
    assert search.KINDS == KINDS
