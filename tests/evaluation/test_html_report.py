"""The report on a hand-made collection: what it says, that it is right, escaped, and opens in a browser."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from json_lines import write_lines
from matplotlib.image import imread

from hf_dense.commands.report import add_arguments, run
from hf_dense.errors import InputError
from hf_dense.evaluation.html_report import write_html_report
from hf_dense.evaluation.measures import mean_metrics, score_queries
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.runner import collection_source
from hf_dense.storage.manifest import MANIFEST
from hf_dense.storage.output import Output

COLLECTION = "hand made"
EVIL = "<script>alert('q1')</script> a | b"


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """Nine queries; passage pN is relevant to query qN."""
    folder = tmp_path / COLLECTION
    (folder / "qrels").mkdir(parents=True)
    texts = {f"q{at}": EVIL if at == 1 else f"question {at}" for at in range(9)}
    corpus = [{"_id": f"p{at}", "title": f"title {at}", "text": f"<b>passage</b> {at}"} for at in range(12)]
    queries = [{"_id": name, "text": text} for name, text in texts.items()]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        write_lines(folder / f"{name}.jsonl", rows)
    judged = "".join(f"q{at}\tp{at}\t1\n" for at in range(9))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return folder


def write_evaluation(directory: Path, result: RetrievalResult, rankings: dict[str, dict[str, float]]) -> Path:
    """An evaluation of what the collection beside it holds now."""
    with Output(directory).stage("evaluation", {}, collection_source(directory.with_name(COLLECTION))) as work:
        result.save(work.result, rankings)
    return directory


def write_run(directory: Path, ranks: list[int | None], origin: dict[str, object] | None = None) -> Path:
    """An evaluation where passage pN is at the given rank for query qN, among passages relevant to none."""
    rankings = {}
    for at, rank in enumerate(ranks):
        order = ["p9", "p10", "p11"]
        if rank is not None:
            order.insert(rank - 1, f"p{at}")
        rankings[f"q{at}"] = {passage: float(-place) for place, passage in enumerate(order)}
    per_query = score_queries({f"q{at}": {f"p{at}": 1} for at in range(len(ranks))}, rankings)
    result = RetrievalResult(directory.name, "test", mean_metrics(per_query), per_query, 12.34, origin or {})
    return write_evaluation(directory, result, rankings)


@pytest.fixture
def runs(collection: Path, tmp_path: Path) -> dict[str, Path]:
    """q0 is lost altogether, q2 in part; q1 is won most, then q3; the others stay."""
    return {
        "before": write_run(tmp_path / "before", [1, None, 1, 3, 2, 2, 2, 2, 2]),
        "after $x_{": write_run(tmp_path / "after", [None, 1, 2, 2, 2, 2, 2, 2, 2]),
    }


def write_graded(directory: Path, order: list[str]) -> Path:
    """An evaluation of two queries: of q0 passages are relevant by grades, and found in an order; q1 finds nothing."""
    rankings = {"q0": {passage: float(-place) for place, passage in enumerate(order)}}
    per_query = score_queries({"q0": {"p0": 3, "p5": 1, "p6": 3}, "q1": {"p1": 1}}, rankings)
    return write_evaluation(directory, RetrievalResult("x", "test", mean_metrics(per_query), per_query, 1.0), rankings)


class Page(HTMLParser):
    """Tags, and tables as lists of rows of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attributes if name in ("src", "href", "srcset")]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self.in_cell = self.in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.in_cell:
            self.tables[-1][-1][-1] += data


def test_the_passage_that_is_shown_is_the_one_that_makes_the_difference(collection: Path, tmp_path: Path) -> None:
    """Not that of the best grade, which neither has among the ten that count, nor one that both find first."""
    with (collection / "qrels" / "test.tsv").open("w") as file:
        file.write("query-id\tcorpus-id\tscore\nq0\tp0\t3\nq0\tp5\t1\nq0\tp6\t3\nq1\tp1\t1\n")
    others = ["p1", "p2", "p3", "p4", "p7", "p8", "p9", "p10", "p11"]
    named = {
        "before": write_graded(tmp_path / "before", ["p6", *others, "p5"]),
        "after": write_graded(tmp_path / "after", ["p6", "p5", *others, "p0"]),
    }
    write_html_report(named, collection, tmp_path / "report")
    report = (tmp_path / "report" / "report.md").read_text()
    assert "| relevant | p5: title 5 " in report
    assert " (before rank 11, after rank 2) |" in report


def test_what_the_page_says(runs: dict[str, Path], collection: Path, tmp_path: Path) -> None:
    measured: dict[str, object] = {
        "commit": {"id": "0123456789abcdef", "dirty": False},
        "hardware": {"cuda": "GPU of a kind", "cores": 4, "cpu": "CPU", "memory_gib": 8.0},
        "date": "2020-01-02",
    }
    measured |= {"passages": 12, "bytes_per_passage": 3_072, "tokens": 3_456, "peak_memory": 2_340_000_000}
    measured |= {
        "query_seconds": 0.0105,
        "search_seconds": 0.0021,
        "settings": {"similarity": "dot", "prompts": "none"},
    }
    runs["before"] = write_run(tmp_path / "measured", [1, None, 1, 3, 2, 2, 2, 2, 2], measured)
    runs["after $x_{"] = write_run(tmp_path / "killed", [None, 1, 2, 2, 2, 2, 2, 2, 2], {"resumed": True})
    paths = write_html_report(runs, collection, tmp_path / "out")
    assert [path.name for path in paths] == ["report.html", "report.md"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [MANIFEST, "report.html", "report.md"]
    what, metrics, differences, *cases, cost, settings, origin = Page(paths[0].read_text()).tables
    assert dict(what)["queries"] == "9"  # type: ignore[call-overload]
    assert dict(what)["split"] == "test"  # type: ignore[call-overload]
    before, after = (RetrievalResult.load(path).metrics for path in runs.values())
    assert metrics[0] == ["", "nDCG@10", "MRR@10", "Recall@100", "Recall@50", "Recall@1000"]
    assert metrics[1][:3] == ["before", f"{before['ndcg@10']:.4f}", f"{before['mrr@10']:.4f}"]
    assert differences[2][:3] == ["after $x_{", "MRR@10", f"{after['mrr@10'] - before['mrr@10']:+.4f}"]
    assert cost[1:] == [
        ["before", "12.3 s", "2.34 GB", "12", "3,456", "3,072 bytes", "10.5 ms", "2.1 ms"],
        ["after $x_{", "at least 12.3 s", *["not measured"] * 6],
    ]
    assert settings == [["", "similarity", "prompts"], ["before", "dot", "none"], ["after $x_{", "-", "-"]]
    assert origin[1] == ["before", "0123456789", "4 cores of CPU, 8.0 GiB, GPU of a kind", "2020-01-02"]
    assert origin[2][1:] == ["not recorded"] * 3
    assert [case[0][0] for case in cases] == ["+1.0000", "+0.1309", "-1.0000", "-0.3691"]


def test_wins_and_losses(runs: dict[str, Path], collection: Path, tmp_path: Path) -> None:
    page, _ = write_html_report(runs, collection, tmp_path / "out")
    won, also, lost, _ = Page(page.read_text()).tables[3:-2]
    assert won == [
        ["+1.0000", f"q1: {EVIL}"],
        ["relevant", "p1: title 1 <b>passage</b> 1 (before not among its first 100, after $x_{ rank 1)"],
        ["first of before", "p9: title 9 <b>passage</b> 9"],
        ["first of after $x_{, relevant", "p1: title 1 <b>passage</b> 1"],
    ]
    assert also[1][1].endswith("(before rank 3, after $x_{ rank 2)")
    assert lost[0] == ["-1.0000", "q0: question 0"]
    assert lost[2][0] == "first of before, relevant"


def test_at_most_five_of_each(collection: Path, tmp_path: Path) -> None:
    runs = {
        "low": write_run(tmp_path / "low", [2, 3, 4, 2, 3, 4, 2, 1, 1]),
        "high": write_run(tmp_path / "high", [1] * 9),
    }
    page = write_html_report(runs, collection, tmp_path / "out")[0].read_text()
    cases = Page(page).tables[3:-2]
    assert [case[0][1][:2] for case in cases] == ["q2", "q5", "q1", "q4", "q0"]
    assert "No query lost." in page


def test_another_baseline_and_a_single_run(runs: dict[str, Path], collection: Path, tmp_path: Path) -> None:
    page = write_html_report(runs, collection, tmp_path / "out", baseline="after $x_{")[0].read_text()
    assert Page(page).tables[2][1][0] == "before"
    alone = write_html_report({"before": runs["before"]}, collection, tmp_path / "one")[0].read_text()
    assert "There is no other run to compare." in alone


def test_one_query_is_compared_without_a_test(collection: Path, tmp_path: Path) -> None:
    runs = {name: write_run(tmp_path / name, [rank]) for name, rank in (("before", 2), ("after", 1))}
    page = write_html_report(runs, collection, tmp_path / "out")[0].read_text()
    assert Page(page).tables[2][1] == ["after", "nDCG@10", "+0.3691", "-1.0000 to +1.0000", "1.0000"]
    assert "One query tells nothing of others: no test can be made." in page


def test_texts_are_escaped_and_nothing_is_fetched(runs: dict[str, Path], collection: Path, tmp_path: Path) -> None:
    page, markdown = (
        path.read_text()
        for path in write_html_report({"<i>": runs["before"], "b": runs["after $x_{"]}, collection, tmp_path / "out")
    )
    parsed = Page(page)
    assert not {"script", "b", "i", "link", "iframe"} & set(parsed.tags)
    assert parsed.sources
    assert all(source.startswith("data:image/png;base64,") for source in parsed.sources)
    assert not re.search(r"https?://", page)
    assert "<script>" not in markdown
    assert r"&lt;script&gt;alert('q1')&lt;/script&gt; a \| b" in markdown


def test_markdown_has_the_same_tables(runs: dict[str, Path], collection: Path, tmp_path: Path) -> None:
    page, markdown = write_html_report(runs, collection, tmp_path / "out")
    tables = re.findall(r"(?:^\|.*\n)+", markdown.read_text(), flags=re.MULTILINE)
    assert [len(table.splitlines()) for table in tables[1:]] == [
        len(rows) + 1 for rows in Page(page.read_text()).tables[1:]
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"baseline": "other"}, "no run 'other'"),
        ({"runs": {}}, "at least one evaluation"),
    ],
)
def test_what_is_refused(
    runs: dict[str, Path], collection: Path, tmp_path: Path, change: dict[str, object], sentence: str
) -> None:
    given: dict[str, object] = {"runs": runs, "collection": collection, "out": tmp_path / "out", **change}
    with pytest.raises(InputError, match=sentence):
        write_html_report(**given)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def write_other(directory: Path, values: dict[str, list[float]]) -> Path:
    """An evaluation by another protocol of q0 and q1, which finds p3 and then p4."""
    per_query = {metric: {f"q{at}": value for at, value in enumerate(found)} for metric, found in values.items()}
    result = RetrievalResult(directory.name, "test", mean_metrics(per_query), per_query, 1.0)
    return write_evaluation(directory, result, {f"q{at}": {"p3": 2.0, "p4": 1.0} for at in range(2)})


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        (("mrr@100", "recall@100", "ndcg@10"), ["MRR@100", "Recall@100", "nDCG@10"]),
        (("auc", "mrr", "ndcg@5", "ndcg@10"), ["AUC", "MRR", "nDCG@5", "nDCG@10"]),
        (("answer_recall@20", "answer_recall@100"), ["Answer recall@20", "Answer recall@100"]),
    ],
)
def test_every_protocol_can_be_reported(
    collection: Path, tmp_path: Path, metrics: tuple[str, ...], names: list[str]
) -> None:
    queries = collection / "queries.jsonl"
    rows = [json.loads(line) | {"answers": ["Passage 3", "title"]} for line in queries.read_text().splitlines()]
    write_lines(queries, rows)
    runs = {
        "one": write_other(tmp_path / "one", {metric: [0.0, 1.0] for metric in metrics}),
        "two": write_other(tmp_path / "two", {metric: [1.0, 1.0] for metric in metrics}),
    }
    page = write_html_report(runs, collection, tmp_path / "out")[0].read_text()
    _, shown, differences, case, *_ = Page(page).tables
    assert shown[0] == ["", *names]
    assert [row[1:3] for row in differences[1:]] == [[name, "+0.5000"] for name in names[:3]]
    if metrics[0].startswith("answer"):
        assert case[1:] == [
            ["answer", "Passage 3 or title"],
            ["first of one", "p3: title 3 <b>passage</b> 3"],  # tags part the words of the answer
            ["first of two", "p3: title 3 <b>passage</b> 3"],
        ]
    else:
        assert case[1] == [
            "relevant",
            "p0: title 0 <b>passage</b> 0 (one not among its first 100, two not among its first 100)",
        ]
    with pytest.raises(InputError, match="have different metrics; evaluate both by the same protocol"):
        write_html_report({**runs, "three": write_run(tmp_path / "three", [1, 1])}, collection, tmp_path / "out")


def test_runs_that_do_not_belong_together(runs: dict[str, Path], collection: Path, tmp_path: Path) -> None:
    short = write_run(tmp_path / "short", [1, 1])
    with pytest.raises(InputError, match="cover different queries"):
        write_html_report({**runs, "short": short}, collection, tmp_path / "out")
    (runs["before"] / "rankings.parquet").unlink()
    with pytest.raises(InputError, match="is no whole evaluation; evaluate before again"):
        write_html_report(runs, collection, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("change", ["copy", "corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_runs_on_another_collection_are_told_by_what_it_holds(
    runs: dict[str, Path], collection: Path, tmp_path: Path, change: str
) -> None:
    """The ids are the same, one word is not."""
    other = tmp_path / "other" / "place"
    shutil.copytree(collection, other)
    if change == "copy":
        write_html_report(runs, other, tmp_path / "out")
        return
    text = (other / change).read_text()
    (other / change).write_text(text.replace("q8\tp8\t1", "q8\tp8\t2").replace("8", "8 8", 1))
    with pytest.raises(InputError, match=r"is not the collection of the evaluation before.* measured on .*hand made"):
        write_html_report(runs, other, tmp_path / "out")
    (runs["after $x_{"] / MANIFEST).unlink()
    with pytest.raises(InputError, match="is no whole evaluation"):
        write_html_report({"after": runs["after $x_{"]}, collection, tmp_path / "out")


def test_no_report_is_replaced_by_another(runs: dict[str, Path], collection: Path, tmp_path: Path) -> None:
    page, _ = write_html_report(runs, collection, tmp_path / "out")
    before = page.read_bytes()
    write_html_report(runs, collection, tmp_path / "out")
    with pytest.raises(InputError, match="another baseline"):
        write_html_report(runs, collection, tmp_path / "out", baseline="after $x_{")
    assert page.read_bytes() == before
    write_html_report(runs, collection, Output(tmp_path / "out", overwrite=True), baseline="after $x_{")
    assert page.read_bytes() != before
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "report.html").write_text("a thesis")
    with pytest.raises(InputError, match="was not written by hf_dense"):
        write_html_report(runs, collection, Output(tmp_path / "theirs", overwrite=True))
    assert (tmp_path / "theirs" / "report.html").read_text() == "a thesis"


def test_from_the_command_line(
    runs: dict[str, Path], collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = [f"{name}={path}" for name, path in runs.items()]
    options = ["--collection", str(collection), "--out", str(tmp_path / "out"), "--baseline", "before"]
    run(parser.parse_args([*given, *options]))
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "out" / f"report.{end}") for end in ("html", "md")]
    for wrong, sentence in (([given[0], given[0]], "Two runs are called 'before'"), (["x"], "'x' is not NAME=DIR")):
        with pytest.raises(InputError, match=sentence):
            run(parser.parse_args([*wrong, *options]))


@pytest.mark.skipif(not CHROMIUM, reason="NOT TESTED IN A BROWSER: no chromium here; apt-get install chromium")
@pytest.mark.slow
def test_it_opens_in_a_browser(runs: dict[str, Path], collection: Path, tmp_path: Path) -> None:
    page, _ = write_html_report(runs, collection, tmp_path / "out")
    assert not look(page, tmp_path)
    image = imread(tmp_path / "shot.png")[..., :3]
    colours = np.unique((image[::4, ::4] * 255).astype(np.uint8).reshape(-1, 3), axis=0)
    assert len(colours) > 20, "the plots have colours, the text has shades"
    assert 0.01 < (image.mean(axis=-1) < 0.9).mean() < 0.5


@pytest.mark.skipif(not CHROMIUM, reason="NOT TESTED IN A BROWSER: no chromium here; apt-get install chromium")
@pytest.mark.slow
def test_the_browser_would_have_told(tmp_path: Path) -> None:
    policy = '<meta http-equiv="Content-Security-Policy" content="img-src \'none\'">'
    for page, wrong in (
        ("script.html", "<script>console.error('wrong')</script>"),
        ("image.html", f'{policy}<img src="data:image/png;base64,">'),
    ):
        (tmp_path / page).write_text(wrong)
        assert look(tmp_path / page, tmp_path)


def look(page: Path, tmp_path: Path) -> list[str]:
    """Take a picture, and give what the browser said."""
    with Browser(tmp_path / "profile", page.as_uri()) as browser:
        browser.wait("document.readyState === 'complete'")
        browser.picture(tmp_path / "shot.png")
        return browser.said
