from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from datasets import load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_dense.data.collections import content_hash, load_corpus, load_qrels, query_texts
from hf_dense.data.passages import pretoken_counter, token_counter
from hf_dense.data.python_docs.collection import Collection, build_python_docs, collect, query_of, split_of
from hf_dense.data.python_docs.docstrings import Document, Reading
from hf_dense.data.python_docs.prose import Prose
from hf_dense.errors import InputError
from hf_dense.storage.manifest import MANIFEST
from hf_dense.storage.output import Output

SCRIPT = Path(__file__).parents[3] / "dataset_scripts" / "python_docs.py"
BODY = "The body of number {n} says something of its own."


def document(name: str, summary: str, *paragraphs: str, module: str = "train.module") -> Document:
    return Document(name, module, Prose(summary, paragraphs))


def gather(*documents: Document, length: int = 32) -> Collection:
    return collect(Reading(documents, files=1, unreadable_files=0), length, pretoken_counter())


def modules_of(split: str, number: int) -> list[str]:
    return [name for name in (f"pack.m{n}" for n in range(1000)) if split_of(name) == split][:number]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two installed packages of 30 modules each, one of which does not parse."""
    root = tmp_path / "site"
    for package in ("alpha", "beta"):
        info = root / f"{package}-2.5.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.5\n")
        names = [f"{package}/m{n}.py" for n in range(30)]
        (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))
        (root / package).mkdir()
        for n, name in enumerate(names):
            code = (
                f'"""Module {package} number n{n}x explained.\n\n{BODY.format(n=f"{package}{n}")}\n"""\n'
                f'def work():\n    """Carry out job j{n}x of {package}.\n\n'
                + "\n\n".join(
                    f"Paragraph {'abc'[k]} of job j{n}x in {package} has a long text to read." for k in range(3)
                )
                + '\n    """\n'
            )
            (root / name).write_text("def (" if n == 29 and package == "beta" else code)
    monkeypatch.setattr(sys, "path", [str(root), *sys.path])
    return ["alpha", "beta"]


def test_the_collection_loads_as_published(packages: list[str], tmp_path: Path) -> None:
    out = build_python_docs(tmp_path / "out", packages, length=16, progress=False)
    corpus = load_dataset(str(out), "corpus", split="corpus", cache_dir=str(tmp_path / "cache"))
    queries = load_dataset(str(out), "queries", split="queries", cache_dir=str(tmp_path / "cache"))
    qrels = load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert corpus.column_names == ["id", "title", "text", "document", "position", "split"]
    assert queries.column_names == ["id", "text"]
    assert sorted(qrels) == ["dev", "test", "train"]
    assert qrels["train"].column_names == ["query-id", "corpus-id", "score"]
    assert len(queries) == 118
    assert list(corpus["id"]) == [f"{d}#{p}" for d, p in zip(corpus["document"], corpus["position"], strict=True)]
    assert max(pretoken_counter()(list(corpus["text"]))) <= 16
    card = (out / "README.md").read_text()
    for line in ("| alpha | 2.5 |", "| unreadable files | 1 |", "| queries | 118 |", f"| passages | {len(corpus)} |"):
        assert line in card


def test_two_builds_are_equal_byte_for_byte(packages: list[str], tmp_path: Path) -> None:
    first = build_python_docs(tmp_path / "first", packages, progress=False)
    second = build_python_docs(tmp_path / "else" / "second", list(reversed(packages)), progress=False)
    files = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file() and path.name != MANIFEST)
    assert len(files) == 6
    for file in files:
        assert (first / file).read_bytes() == (second / file).read_bytes()
    assert content_hash(first) == content_hash(second)
    with pytest.raises(InputError, match="was made from other packages"):
        build_python_docs(second, packages[:1], progress=False)
    other = build_python_docs(Output(second, overwrite=True), packages[:1], progress=False)
    assert content_hash(first) != content_hash(other)


def test_a_changed_docstring_is_another_source(packages: list[str], tmp_path: Path) -> None:
    out = build_python_docs(tmp_path / "out", packages, progress=False)
    before = content_hash(out)
    assert content_hash(build_python_docs(out, packages, progress=False)) == before
    file = tmp_path / "site" / "alpha" / "m3.py"
    file.write_text(file.read_text().replace("Carry out", "Never carry out"))
    with pytest.raises(InputError, match="was made from other packages"):
        build_python_docs(out, packages, progress=False)
    assert content_hash(build_python_docs(Output(out, overwrite=True), packages, progress=False)) != before


def test_a_directory_of_others_is_not_replaced(packages: list[str], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README.md").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(InputError, match="was not written by hf_dense"):
            build_python_docs(Output(tmp_path / "out", overwrite), packages, progress=False)
    assert (tmp_path / "out" / "README.md").read_text() == "years of work"


def test_splits_are_by_module_and_share_nothing(packages: list[str], tmp_path: Path) -> None:
    out = build_python_docs(tmp_path / "out", packages, length=16, progress=False)
    corpus = load_corpus(out)
    split_of_passage = dict(zip(corpus["id"], corpus["split"], strict=True))
    for name, split in zip(corpus["document"], corpus["split"], strict=True):
        assert split == split_of(name.removesuffix(".work"))
    queries = query_texts(out)
    texts: dict[str, set[str]] = {}
    for split in ("train", "dev", "test"):
        qrels = load_qrels(out, split)
        assert qrels
        texts[split] = {queries[query].casefold() for query in qrels}
        assert {split_of_passage[passage] for graded in qrels.values() for passage in graded} == {split}
    assert sum(map(len, texts.values())) == len(set.union(*texts.values())) == len(queries)


def test_splits_have_their_shares() -> None:
    splits = [split_of(f"package.module{n}") for n in range(4000)]
    assert abs(splits.count("train") / 4000 - 0.8) < 0.03
    assert abs(splits.count("dev") / 4000 - 0.1) < 0.02


def test_the_query_leaves_the_passages_and_all_of_them_are_relevant() -> None:
    body = "First part says this much. It will sum the two numbers. Second part says that much."
    found = gather(document("m.f", "Sum the two numbers.", body), length=8)
    assert [row["text"] for row in found.queries] == ["Sum the two numbers"]
    assert [row["text"] for row in found.corpus] == ["First part says this much.", "Second part says that much."]
    assert [row["corpus-id"] for row in found.qrels[split_of("train.module")]] == ["m.f#0", "m.f#1"]


@pytest.mark.parametrize(
    ("summary", "query"),
    [
        ("Pin the memory.", "Pin the memory"),
        ("Two words.", ""),
        ("For example you write:", ""),
        ("Was f\u00fcr ein Text ist das.", ""),
        ("A [0, 1] b {2, 3} cc (4, 5) dd 66.77 ee", ""),
        ("word " * 33, ""),
        ("", ""),
    ],
)
def test_which_summaries_make_queries(summary: str, query: str) -> None:
    assert query_of(document("m.f", summary, "A body of text.")) == query
    assert query_of(document("m.f", summary)) == ""


def test_without_a_query_the_summary_stays_in_the_passages() -> None:
    found = gather(
        document("m.f", "Short one.", "But the body speaks for itself."), document("m.g", "Only one summary here.")
    )
    assert [row["text"] for row in found.corpus] == [
        "Short one. But the body speaks for itself.",
        "Only one summary here.",
    ]
    assert found.queries == ()


def test_a_document_left_without_passage_keeps_its_summary() -> None:
    found = gather(
        document("m.f", "Do the first thing.", "The very same body text."),
        document("m.g", "Do the second thing.", "The very same body text."),
    )
    assert [(row["id"], row["text"]) for row in found.corpus] == [
        ("m.f#0", "The very same body text."),
        ("m.g#0", "Do the second thing. The very same body text."),
    ]
    assert [row["text"] for row in found.queries] == ["Do the first thing"]
    assert (found.counts["repeated_passages"], found.counts["queries_without_passage"]) == (1, 1)


def test_equal_docstrings_stay_once_under_the_shortest_name() -> None:
    same = ("Compute the mean value.", "Over all of the rows given.")
    found = gather(document("long.module.f", *same), document("b.f", *same), document("a.f", *same))
    assert {row["document"] for row in found.corpus} == {"a.f"}
    assert found.counts["repeated_docstrings"] == 2


def test_a_name_defined_twice_stays_once() -> None:
    found = gather(
        document("m.f", "Read the first one.", "The first body of text."),
        document("m.f", "Read the second one.", "The second body of text."),
    )
    assert [row["text"] for row in found.queries] == ["Read the first one"]
    assert found.counts["repeated_names"] == 1


def test_equal_queries_are_merged_and_common_ones_dropped() -> None:
    def some(number: int, text: str) -> list[Document]:
        return [document(f"{text[0]}.f{n}", text, BODY.format(n=f"{text[0]}{n}")) for n in range(number)]

    found = gather(*some(3, "Transform the data."), *some(4, "Initialize the object."))
    assert [(row["id"], row["text"]) for row in found.queries] == [("T.f0", "Transform the data")]
    assert {row["corpus-id"] for row in found.qrels[split_of("train.module")]} == {"T.f0#0", "T.f1#0", "T.f2#0"}
    assert found.counts["generic_queries"] == 1
    assert [row["text"] for row in found.corpus if row["title"] == "I.f0"] == [
        f"Initialize the object. {BODY.format(n='I0')}"
    ]


def test_a_query_of_two_splits_is_dropped() -> None:
    (train,), (test,) = modules_of("train", 1), modules_of("test", 1)
    found = gather(
        document(f"{train}.f", "Sort the long list.", "A body in the first module.", module=train),
        document(f"{test}.f", "sort the long list", "A body in the second module.", module=test),
    )
    assert found.queries == ()
    assert found.counts["queries_across_splits"] == 1


def test_no_passage_is_a_query_word_for_word() -> None:
    found = gather(
        document("m.f", "Sort the long list.", "A body of some length."), document("m.g", "Sort the long list.")
    )
    assert [row["id"] for row in found.corpus] == ["m.f#0"]


def test_positions_are_consecutive_when_a_passage_is_dropped() -> None:
    text = "Alpha beta gamma delta. x y z. Epsilon zeta eta theta."
    found = gather(document("m.f", "", *text.split(". ")), length=5)
    assert [row["position"] for row in found.corpus] == [0, 1]
    assert found.counts["short_passages"] == 1


def test_nothing_is_left_behind_when_there_is_nothing_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "site" / "empty-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: empty\nVersion: 1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    with pytest.raises(InputError, match="no docstring was found in empty 1"):
        build_python_docs(tmp_path / "out", ["empty"], progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_bad_length_leaves_the_old_collection_alone(packages: list[str], tmp_path: Path) -> None:
    out = build_python_docs(tmp_path / "out", packages[:1], progress=False)
    before = content_hash(out)
    with pytest.raises(InputError, match="passage length of 1 token"):
        build_python_docs(out, packages[:1], length=1, progress=False)
    assert content_hash(out) == before


def run_script(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *options])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_the_script_builds(
    packages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run_script(monkeypatch, "--out", str(out), "--packages", *packages, "--length", "20", "--processes", "1")
    assert content_hash(out)[:12] in capsys.readouterr().out
    card = (out / "README.md").read_text()
    assert "python dataset_scripts/python_docs.py --out OUT --length 20 --packages alpha beta" in card


def test_the_script_reports_a_missing_package_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run_script(monkeypatch, "--out", str(tmp_path / "out"), "--packages", "no-such-package")
    assert stopped.value.code == 2
    assert capsys.readouterr().err == (
        "error: package 'no-such-package' is not installed; install it or leave it out of the packages\n"
    )
    assert not (tmp_path / "out").exists()


def test_the_script_counts_the_tokens_of_a_tokenizer(
    packages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "of": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path / "words")
    options = ["--out", str(tmp_path / "out"), "--packages", packages[0], "--length", "9", "--processes", "1"]
    run_script(monkeypatch, *options, "--tokenizer", str(tmp_path / "words"))
    sizes = [len(text.split()) for text in load_corpus(tmp_path / "out")["text"]]
    assert max(sizes) == 9
    assert f"at most 9 tokens of {tmp_path / 'words'}" in (tmp_path / "out" / "README.md").read_text()


def test_an_absent_tokenizer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No tokenizer can be loaded from"):
        token_counter(str(tmp_path / "nowhere"))
