"""Every kind of source gives its documents; what cannot be read is counted and the rest goes on."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pdf_files import write_pdf
from pyarrow import parquet

from hf_dense.data.documents import MAX_BYTES, DocumentReader
from hf_dense.data.readers import kinds
from hf_dense.errors import InputError


def read(source: Path | str, **columns: str) -> tuple[list[tuple[str, str, str]], dict[str, int]]:
    reader = DocumentReader(str(source), columns=columns)
    rows = [(document.id, document.title, document.text) for document in reader]
    return rows, dict(reader.counts)


def write_lines(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_list_of_json_is_read_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "docs.json"
    path.write_text(json.dumps([{"id": "a", "title": "A", "text": "one"}, None, {"text": "two"}], indent=1))
    assert read(path) == (
        [("a", "A", "one"), ("docs.json-1", "", "two")],
        {"documents read": 2, "unreadable": 1},
    )
    assert read(write_lines(tmp_path / "lines.json", [{"text": "one"}, {"text": "two"}]))[1] == {"documents read": 2}
    with gzip.open(tmp_path / "packed.json.gz", "wt") as stream:
        stream.write(path.read_text())
    assert read(tmp_path / "packed.json.gz")[1] == {"documents read": 2, "unreadable": 1}
    path.write_text('[{"text": "one"}, {"te')
    with pytest.raises(InputError, match=r"docs.json is not a list of JSON, or was cut off"):
        read(path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("Words.")
    (tmp_path / "folder" / "settings.json").write_text("[]")
    assert read(tmp_path / "folder")[1] == {"documents read": 1, "skipped .json": 1}


def test_a_folder_of_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("Plain text.\n\nSecond paragraph.")
    (tmp_path / "b.md").write_text("---\ntitle: x\n---\n# Head\n\nSome *emphasis* and\n`code`.\n\n| a |\n|---|\n")
    (tmp_path / "sub" / "c.html").write_text("<html><title>The title</title><p>One.<p>Two.<script>no</script></html>")
    (tmp_path / "d.pdf").write_bytes(write_pdf([["Words of a page"]], "Of a PDF"))
    (tmp_path / "e.bin").write_bytes(b"not read")
    rows, counts = read(tmp_path)
    assert rows[0] == ("a.txt", "a", "Plain text.\n\nSecond paragraph.")
    assert rows[1] == ("b.md", "x", "Head.\n\nSome emphasis and code.")
    assert rows[2] == ("d.pdf", "Of a PDF", "Words of a page")
    assert rows[3] == ("sub/c.html", "The title", "One.\n\nTwo.")
    assert counts == {"documents read": 4, "skipped .bin": 1}


def test_broken_files_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "broken.txt").write_bytes(b"caf\xff latin-1")
    (tmp_path / "empty.txt").write_text(" \n ")
    (tmp_path / "binary.txt").write_bytes(b"a\0b")
    (tmp_path / "half.pdf").write_bytes(write_pdf([["Words"]], "T")[:60])
    (tmp_path / "page.html").write_text("no markup at all")
    (tmp_path / "large.txt").write_bytes(b"a" * (MAX_BYTES + 1))
    (tmp_path / "good.txt").write_text("Good.")
    rows, counts = read(tmp_path)
    assert [row[0] for row in rows] == ["good.txt"]
    assert counts == {"broken UTF-8": 1, "empty": 1, "unreadable": 3, "too long": 1, "documents read": 1}


def test_lines_of_json_in_their_usual_names(tmp_path: Path) -> None:
    rows = [
        {"_id": "1", "title": "T", "text": "one"},
        {"_id": 2, "title": None, "text": "two"},
        {"_id": "1", "title": "", "text": "again"},
        {"_id": "3", "title": "", "text": ""},
        ["no", "document"],
    ]
    path = write_lines(tmp_path / "docs.jsonl", rows)
    with path.open("ab") as stream:
        stream.write(b'{"_id": "4", "text": "cut off\n\n{"_id": "5", "text": "\xff"}\n{"_id": "6", "text": "six"}')
    found, counts = read(path)
    assert found == [("1", "T", "one"), ("2", "", "two"), ("6", "", "six")]
    assert counts == {"documents read": 3, "duplicate id": 1, "empty": 1, "unreadable": 2, "broken UTF-8": 1}
    assert read(write_lines(tmp_path / "lists.jsonl", [{"paragraphs": ["a", "b"]}]))[0] == [
        ("lists.jsonl-0", "", "a\n\nb")
    ]


def test_one_line_of_fifty_megabytes_is_left_out_without_being_held(tmp_path: Path) -> None:
    path = tmp_path / "docs.jsonl"
    with path.open("w") as stream:
        stream.write('{"id": "1", "text": "one"}\n{"id": "2", "text": "')
        for _ in range(50):
            stream.write("a" * 1_000_000)
        stream.write('"}\n{"id": "3", "text": "three"}\n')
    found, counts = read(path)
    assert [row[0] for row in found] == ["1", "3"]
    assert counts == {"documents read": 2, "too long": 1}


def test_tables_of_other_kinds_say_the_same(tmp_path: Path) -> None:
    rows = [{"id": "1", "title": "T", "text": 'one, "quoted"\nline'}, {"id": "2", "title": "", "text": "two"}]
    expected = [("1", "T", 'one, "quoted"\nline'), ("2", "", "two")]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "docs.parquet")
    (tmp_path / "docs.csv").write_text('id,title,text\n1,T,"one, ""quoted""\nline"\n2,,two\n')
    with gzip.open(tmp_path / "docs.jsonl.gz", "wt") as stream:
        stream.write("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("docs.parquet", "docs.csv", "docs.jsonl.gz"):
        assert read(tmp_path / name)[0] == expected, name


def test_a_csv_with_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "docs.csv"
    path.write_bytes(b"id,text\n1,one\n2,caf\xff\n3," + b"a" * (MAX_BYTES + 1) + b"\n4,four\n")
    found, counts = read(path)
    assert [row[0] for row in found] == ["1", "4"]
    assert counts == {"documents read": 2, "broken UTF-8": 1, "too long": 1}


def test_published_tab_separated_forms(tmp_path: Path) -> None:
    (tmp_path / "docs.tsv").write_text("D1\thttp://a\tTitle\tThe body.\nD2\tbroken line\n")
    (tmp_path / "collection.tsv").write_text("0\tA passage.\n1\tAnother.\n")
    (tmp_path / "psgs_w100.tsv").write_text('id\ttext\ttitle\n1\t"He said ""so""."\tSaying\n')
    assert read(tmp_path / "docs.tsv") == (
        [("D1", "Title", "The body.")],
        {"documents read": 1, "unreadable": 1},
    )
    assert read(tmp_path / "collection.tsv")[0] == [("0", "", "A passage."), ("1", "", "Another.")]
    assert read(tmp_path / "psgs_w100.tsv")[0] == [("1", "Saying", 'He said "so".')]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('0\t"To be, or not to be"\n1\t""\n', [("0", "", '"To be, or not to be"'), ("1", "", '""')]),  # as written
        ("id\ttext\n1\tone\n", [("1", "", "one")]),
        ("docid\ttext\n1\tone\n", [("1", "", "one")]),
        ("pid\tpassage\n1\tone\n", [("1", "", "one")]),
        ("docid\turl\ttitle\tbody\n1\thttp://a\tT\tone\n", [("1", "T", "one")]),
        ("id\ttitle\ttext\n1\tT\tone\n", [("1", "T", "one")]),
        ('"id"\t"text"\n"1"\t"He said ""so""."\n', [("1", "", 'He said "so".')]),
        ('id\ttext\ttitle\n1\t"Yes", she said, "no"\t"A ""T"""\n', [("1", 'A "T"', '"Yes", she said, "no"')]),
    ],
)
def test_headers_and_quotes_of_tab_separated_files(
    tmp_path: Path, content: str, expected: list[tuple[str, str, str]]
) -> None:
    (tmp_path / "a.tsv").write_text(content)
    assert read(tmp_path / "a.tsv")[0] == expected


def test_a_header_whose_texts_have_another_name_is_no_document(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("id\twords\n1\tone\n")
    with pytest.raises(InputError, match=r"a.tsv has no column of texts .*; it has: id, words"):
        read(tmp_path / "a.tsv")
    assert read(tmp_path / "a.tsv", text="words")[0] == [("1", "", "one")]


def test_a_collection_is_read_by_its_corpus(tmp_path: Path) -> None:
    write_lines(tmp_path / "corpus.jsonl", [{"_id": "1", "title": "T", "text": "one"}])
    write_lines(tmp_path / "queries.jsonl", [{"_id": "q", "text": "not a document"}])
    assert read(tmp_path)[0] == [("1", "T", "one")]


def test_several_sources_are_read_one_after_the_other(tmp_path: Path) -> None:
    first = write_lines(tmp_path / "a.jsonl", [{"id": "1", "text": "one"}, {"id": "2", "text": "two"}])
    second = write_lines(tmp_path / "b.jsonl", [{"id": "2", "text": "again"}, {"id": "3", "text": "three"}])
    reader = DocumentReader(str(first), str(second))
    assert [document.id for document in reader] == ["1", "2", "b.jsonl-2", "3"]
    assert reader.counts == {"documents read": 4, "ids of several tables, told apart": 1}


def test_tables_that_count_their_rows_alike_lose_none_of_them(tmp_path: Path) -> None:
    for name in "ab":
        write_lines(tmp_path / f"{name}.jsonl", [{"id": 1, "text": f"one of {name}"}, {"id": 1, "text": "again"}])
    found, counts = read(tmp_path)
    assert found == [("1", "", "one of a"), ("b.jsonl-1", "", "one of b")]
    assert counts == {"documents read": 2, "duplicate id": 2, "ids of several tables, told apart": 2}


def test_a_table_that_was_cut_off_is_no_table_without_documents(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("A text.")
    rows = b"".join(b'{"id": %d, "text": "t %d"}\n' % (number, number**9) for number in range(9999))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(rows)[:50_000])
    found, counts = read(tmp_path)
    assert 100 < len(found) < 9999
    assert counts == {"documents read": len(found), "tables that are broken, read to there": 1}


def test_rows_that_are_left_out_are_named_by_their_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "text": "one"}\nno row\nnor this\n{"id": 1, "text": "again"}\n')
    assert read(tmp_path)[1] == {"documents read": 1, "unreadable": 2, "duplicate id": 1}
    assert caplog.messages == ["Left out, duplicate id: 'a.jsonl: 1'", "Left out, unreadable: 'a.jsonl' (2)"]


def test_files_of_the_same_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    folders = [tmp_path / name / "docs" for name in "abc"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "README.txt").write_text(f"This is {folder.parent.name}.")
    reader = DocumentReader(*map(str, folders))
    assert [document.id for document in reader] == ["README.txt", "docs/README.txt", "c/docs/README.txt"]


def test_what_is_not_for_readers_is_skipped_by_name(tmp_path: Path) -> None:
    for name in (
        *("a.md", "UPPER.MD", "docs/b.md", "c.doc", "LICENSE", ".hidden.md", ".git/x.md", "node_modules/m/README.md"),
        *("env/pyvenv.cfg", "env/x.md", "build/x.md", "x.log.md", "docs/build/kept.md", "docs/_site/x.md", "list.csv"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("name,number\n1,2\n")
    (tmp_path / ".gitignore").write_text("!\n/build\n*.log.md\n_site/\nno rule\\\n")
    (tmp_path / "docs" / ".gitignore").write_text("!build/\n")
    for name, target in {"loop": tmp_path, "gone.md": "nothing.md", "itself": "itself"}.items():
        (tmp_path / name).symlink_to(target)
    rows, counts = read(tmp_path)
    assert [row[0] for row in rows] == ["UPPER.MD", "a.md", "docs/b.md", "docs/build/kept.md"]
    assert counts == {
        **{"documents read": 4, "skipped .doc": 1, "skipped files of no known kind": 1, "skipped hidden": 3},
        **{"skipped .git": 1, "skipped node_modules": 1, "skipped virtual environments": 1},
        **{"skipped ignored by .gitignore": 3, "skipped tables that hold no documents": 1},
        **{"skipped links to folders": 1, "skipped broken links": 2},
    }
    (tmp_path / "docs" / ".gitignore").write_text("*\n")
    with pytest.raises(InputError, match=r"holds no documents .*; 1 skipped hidden; 3 skipped ignored by .gitignore"):
        read(tmp_path / "docs")


def test_copies_and_lists_of_the_pages_of_a_site_are_skipped(tmp_path: Path) -> None:
    sphinx = ("index.html", "genindex.html", "genindex-A.html", "py-modindex.html", "search.html")
    book = ("book-1a2b.js", "index.html", "print.html", "toc.html")
    java = (
        "overview-tree.html",
        "index-all.html",
        "allclasses-index.html",
        "a/package-tree.html",
        "a/class-use/B.html",
    )
    doxygen = ("doxygen.css", "b_8h_source.html", "class_b-members.html", "functions_func.html", "dir_1a.html")
    nobodys = ("objects.inv", "search.html", "print.html", "_sources/page.txt")
    sites = {"sphinx": (*sphinx, "_sources/index.rst.txt", "api/search.html"), "book": book, "other": nobodys}
    sites |= {"java": (*java, "index.html", "a/B.html"), "doxygen": (*doxygen, "index.html", "class_b.html")}
    for site, names in sites.items():
        for name in names:
            (tmp_path / site / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / site / name).write_text(f"<p>Words of {site} {name}.</p>")
    reader = DocumentReader(str(tmp_path))
    read = ["book/index.html", *(f"other/{name}" for name in nobodys[1:])]
    read += ["sphinx/api/search.html", "sphinx/index.html", "java/index.html", "java/a/B.html", "doxygen/index.html"]
    assert sorted(document.id for document in reader) == sorted([*read, "doxygen/class_b.html"])
    assert reader.counts["skipped Sphinx's copies and lists of its pages"] == 5
    assert reader.counts["skipped mdBook's copies and lists of its pages"] == 2
    assert reader.counts["skipped Javadoc's copies and lists of its pages"] == 5
    assert reader.counts["skipped Doxygen's copies and lists of its pages"] == 4


def test_a_kind_whose_library_is_not_installed_is_skipped_in_a_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "find_spec", lambda module: None if module == "docutils" else module)
    monkeypatch.setattr(kinds, "pandoc_formats", frozenset)
    for name in ("a.txt", "b.rst", "c.adoc"):
        (tmp_path / name).write_text("Words.")
    rows, counts = read(tmp_path)
    needs = "docutils: pip install 'hf_dense[documents]'"
    assert [row[0] for row in rows] == ["a.txt"]
    assert counts[f"skipped .rst (needs {needs})"] == counts["skipped .adoc (needs a pandoc that reads asciidoc)"] == 1
    before = made_from(tmp_path)
    monkeypatch.undo()
    assert made_from(tmp_path) != before, "what is read is another folder's"
    monkeypatch.setattr(kinds, "find_spec", lambda module: None)
    with pytest.raises(InputError, match=re.escape(f"Reading .rst files needs {needs}.")):
        read(tmp_path / "b.rst")


def test_columns_of_other_names_can_be_given(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "docs.jsonl", [{"key": "1", "heading": "T", "words": "one"}])
    assert read(path, id="key", title="heading", text="words")[0] == [("1", "T", "one")]
    with pytest.raises(InputError, match=r"has no column of texts \(text, contents.*; it has: key, heading, words"):
        read(path)
    with pytest.raises(InputError, match="has no column 'bodies'"):
        read(path, text="bodies")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.doc", b"x", "is of no known kind; give one of: .txt, .text, .md"),
        ("a.parquet", b"no table", "is not a Parquet file that can be read"),
        ("a.tsv", b"a\tb\tc\n", "has 3 columns; a .tsv file is MS MARCO's documents"),
    ],
)
def test_sources_that_are_no_source(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read(tmp_path / name)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no documents"):
        read(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        read(tmp_path / "missing")
    with pytest.raises(InputError, match="neither a path nor a dataset of the Hub"):
        read("nobody/nothing")


def test_a_reader_of_files_is_no_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.jsonl").write_text('{"text": "abc"}\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="'json' is neither a path nor a dataset of the Hub"):
        read("json")


def made_from(*sources: Path, out: str = "out") -> dict[str, str]:
    read = DocumentReader(*map(str, sources)).made_from(Path(out))
    return {name: source.fingerprint for name, source in read.items()}


def test_a_source_is_the_files_that_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("one")
    before = made_from(folder)
    (folder / "notes.bin").write_bytes(b"not read")
    assert made_from(folder) == before
    assert made_from(folder.rename(tmp_path / "moved")) == before
    (tmp_path / "moved" / "a.txt").rename(tmp_path / "moved" / "b.txt")
    assert made_from(tmp_path / "moved") != before, "documents are called after their files"
    collection = tmp_path / "collection"
    collection.mkdir()
    lines = write_lines(collection / "corpus.jsonl", [{"_id": "1", "text": "one"}])
    before = made_from(collection)
    write_lines(collection / "queries.jsonl", [{"_id": "q", "text": "not a document"}])
    assert made_from(collection) == before
    write_lines(lines, [{"_id": "1", "text": "two"}])
    assert made_from(collection) != before
    assert list(made_from(collection, lines)) == ["documents", "documents 2"]


def test_an_output_inside_what_is_read_whole_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("one")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"docs/new/out lies inside docs, all of which is read"):
        made_from(Path("docs"), out="docs/new/out")
    monkeypatch.chdir(tmp_path / "docs")
    with pytest.raises(InputError, match=r"out lies inside \., all of which is read"):
        made_from(Path("."))
    made_from(Path("a.txt"))


PUBLISHED = """
import json, sys
from pathlib import Path
from datasets import Dataset
from huggingface_hub import create_repo, upload_folder
from hf_dense.data.documents import DocumentReader
folder = Path("data")
folder.mkdir()
card = "---\\n" + json.dumps({"configs": [{"config_name": "default", "data_files": "*.parquet"}]}) + "\\n---\\n"
found = []
for text, remark, files in [("one", "", 1), ("one", "A remark.", 1), ("two", "", 1), ("one", "", 1), ("one", "", 2)]:
    for number in range(files):
        Dataset.from_list([{"id": "1", "text": text}]).to_parquet(folder / f"train-{number}.parquet")
    (folder / "README.md").write_text(card + remark)
    create_repo("someone/changing", repo_type="dataset", exist_ok=True)
    upload_folder(repo_id="someone/changing", folder_path=folder, repo_type="dataset")
    found.append(DocumentReader("someone/changing").made_from(Path("out"))["documents"].fingerprint)
print(json.dumps({"found": found}))
"""


@pytest.mark.slow
def test_a_dataset_of_the_hub_is_the_content_of_its_files(hub_client: Callable[..., dict[str, list[str]]]) -> None:
    first, remarked, other, again, more = hub_client(PUBLISHED)["found"]
    assert first == remarked == again
    assert len({first, other, more}) == 3


def test_lines_of_json_name_their_columns_each_for_itself(tmp_path: Path) -> None:
    rows: list[object] = [
        {"text": "first"},
        {"id": "b", "title": "Second", "contents": "second"},
        {"id": None, "_id": "c", "text": "", "content": "third"},
        {"id": "d", "other": "nothing"},
    ]
    found, counts = read(write_lines(tmp_path / "a.jsonl", rows))
    assert found == [("a.jsonl-0", "", "first"), ("b", "Second", "second"), ("c", "", "third")]
    assert counts == {"documents read": 3, "empty": 1}


@pytest.mark.parametrize("rows", [3, 1500])
def test_columns_that_no_row_has_are_named(tmp_path: Path, rows: int) -> None:
    with pytest.raises(InputError, match=r"a.jsonl has no column of texts .*; it has: words"):
        read(write_lines(tmp_path / "a.jsonl", [{"words": "a"}] * rows))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.tsv"])
def test_the_mark_before_a_files_first_line_is_no_part_of_it(tmp_path: Path, name: str) -> None:
    content = {"a.csv": "id,text\nA1,one\n", "a.jsonl": '{"id": "A1", "text": "one"}\n', "a.tsv": "A1\tone\n"}[name]
    (tmp_path / name).write_text(content, encoding="utf-8-sig")
    assert read(tmp_path / name) == ([("A1", "", "one")], {"documents read": 1})


def test_a_row_with_more_cells_than_columns_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,Hello, world\n2,whole,\n")
    assert read(tmp_path / "a.csv") == ([("2", "", "whole")], {"documents read": 1, "unreadable": 1})


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_names_of_columns_may_have_capitals_and_spaces(tmp_path: Path, name: str) -> None:
    between = "," if name == "a.csv" else "\t"
    (tmp_path / name).write_text(between.join(["ID", "Title ", "Text"]) + "\n" + between.join("1ab") + "\n")
    assert read(tmp_path / name)[0] == [("1", "a", "b")]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text,text\n1,a,b\n")
    with pytest.raises(InputError, match="has two columns called 'text'"):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize("divider", [",", ";", "\t"])
@pytest.mark.parametrize("above", ["", "sep={}\r\n"])
def test_a_csv_as_excel_writes_it_in_other_countries(tmp_path: Path, divider: str, above: str) -> None:
    rows = [["ID", '"Title; of, it"', "Text"], ["1", '"a"', '"x; y, z\t\n1,5;2"'], ["2", "", "b"]]
    lines = [divider.join(row) for row in rows]
    (tmp_path / "a.csv").write_text(above.format(divider) + "\r\n".join(lines), newline="")
    assert read(tmp_path / "a.csv")[0] == [("1", "", "x; y, z\t\n1,5;2"), ("2", "", "b")]


def test_queries_beside_passages_are_no_documents(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    for name, text in (
        ("collection.tsv", "1\ta passage\n"),
        ("queries.dev.tsv", "1\ta query\n"),
        ("qrels.dev.tsv", "1\t0\t1\t1\n"),
        ("queries.jsonl", '{"_id": "1", "text": "a query"}\n'),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\t1\t1\n"),
    ):
        (tmp_path / name).write_text(text)
    assert read(tmp_path) == ([("1", "", "a passage")], {"documents read": 1, "skipped queries and judgements": 4})


def test_semicolons_in_a_csv_with_commas_are_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text,more;or;less\n1,a; b; c,d\n")
    assert read(tmp_path / "a.csv")[0] == [("1", "", "a; b; c")]


def test_no_number_is_no_title(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "title": NaN, "text": "a"}\n')
    assert read(tmp_path / "a.jsonl")[0] == [("1", "", "a")]


def test_the_first_ones_that_are_left_out_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in "abcde":
        (tmp_path / f"{name}.md").write_bytes(b"\xff broken")
    (tmp_path / "f.md").write_text("A text.")
    (tmp_path / "g.md").write_text("")
    assert read(tmp_path)[1] == {"documents read": 1, "broken UTF-8": 5, "empty": 1}
    assert caplog.messages == ["Left out, broken UTF-8: 'a.md', 'b.md', 'c.md' and 2 more", "Left out, empty: 'g.md'"]


def test_a_second_reading_counts_and_says_no_more_than_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.md").write_text("A text.")
    (tmp_path / "b.md").write_text("")
    (tmp_path / "c.bin").write_text("no text")
    reader = DocumentReader(str(tmp_path))
    for _ in range(2):
        assert len(list(reader)) == 1
        assert reader.counts == {"documents read": 1, "empty": 1, "skipped .bin": 1}
    assert caplog.messages == ["Left out, empty: 'b.md'"]
