"""What two arms find: which arms there are, and HTML in which nothing of a passage runs."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from datasets import Dataset
from tiny_retriever import write_cross_encoder

from hf_dense.errors import InputError
from hf_dense.search.bm25 import words_of
from hf_dense.search.cross_encoder import load_reranker
from hf_dense.search.index import Hit, SearchIndex, build_index, update_index
from hf_dense.search.reranking import rerank_hits
from hf_dense.serving.answers import Answers, ServedArm, mark, served_arms, show_hits, with_reranked
from hf_dense.storage.output import Output


def test_the_arms_of_an_adaptation_that_was_moved(adapted: Path) -> None:
    arms = served_arms(adapted)
    assert [arm.name for arm in arms] == ["fine-tuned + BM25", "base", "BM25", "fine-tuned"]
    tuned = adapted / "arms" / "fine-tuned"
    assert arms[0] == ServedArm("fine-tuned + BM25", tuned / "index", tuned / "training" / "model", 0.5)
    assert arms[2] == ServedArm("BM25", adapted / "arms" / "base" / "index", adapted / "base", 0.0)


@pytest.mark.parametrize(
    ("weight", "shown"),
    [
        (1.0, [("{}", 1.0), ("BM25", 0.0)]),
        (0.0, [("BM25", 0.0), ("{}", 1.0)]),
        (0.3, [("{} + BM25", 0.3), ("BM25", 0.0), ("{}", 1.0)]),
    ],
)
def test_the_arms_of_a_retriever(
    weight: float, shown: list[tuple[str, float]], retriever: Path, corpus: Dataset
) -> None:
    build_index(retriever, corpus, Output(retriever / "index", overwrite=True), weight=weight)
    found = [(arm.name, arm.weight) for arm in served_arms(retriever)]
    assert found == [(name.format(retriever), own) for name, own in shown]


@pytest.mark.parametrize("name", ["", "retriever/index", "absent"])
def test_a_directory_without_an_index(name: str, retriever: Path) -> None:
    with pytest.raises(InputError, match="neither a complete adaptation nor a retriever with an index"):
        served_arms(retriever.parent / name)


def test_each_arm_asks_in_its_own_way(adapted: Path) -> None:
    answers = Answers(served_arms(adapted))
    tuned = SearchIndex.load(adapted / "arms" / "fine-tuned" / "index", adapted / "arms/fine-tuned/training/model")
    for name, weight in (("fine-tuned + BM25", 0.5), ("fine-tuned", 1.0)):
        assert answers.find("locks", name) == tuned.search("locks", 5, weight)
    assert [hit.id for hit in answers.find("locks", "BM25")] == ["p2", "p0"]
    assert answers.open("fine-tuned") is answers.open("fine-tuned + BM25"), "one index is opened once"


def test_a_reranked_arm_orders_what_it_finds_by_the_cross_encoder(retriever: Path, tmp_path: Path) -> None:
    plain, words = served_arms(retriever)
    arms = with_reranked([plain, words], 1)
    assert [(arm.name, arm.reranked) for arm in arms] == [
        (f"{retriever}, re-ranked", True),
        (str(retriever), False),
        ("BM25", False),
        ("BM25, re-ranked", True),
    ]
    reranker = load_reranker(write_cross_encoder(tmp_path / "reranker"))
    answers, index = Answers(arms, reranker, depth=6), SearchIndex.load(retriever / "index")
    [wanted] = rerank_hits(reranker, ["locks"], [index.search("locks", 6, 1.0)], 6)
    assert answers.find("locks", arms[0].name) == wanted[:5]
    assert answers.find("locks", str(retriever)) == index.search("locks", 5, 1.0)
    assert {hit.id for hit in answers.find("locks", "BM25, re-ranked")} == {"p2", "p0"}


def test_an_index_that_was_replaced_is_opened_again(retriever: Path, corpus: Dataset) -> None:
    answers = Answers(served_arms(retriever))
    assert {hit.id for hit in answers.find("locks", str(retriever))} == {f"p{row}" for row in range(5)}
    update_index(retriever, corpus.select([2, 4]), retriever / "index")
    assert {hit.id for hit in answers.find("locks", str(retriever))} == {"p2", "p4"}


def test_an_index_that_is_replaced_while_it_is_asked_is_asked_again(
    retriever: Path, corpus: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, nearest = Answers(served_arms(retriever)), SearchIndex._nearest

    def replaced_meanwhile(index: SearchIndex, *asked: Any) -> Any:
        monkeypatch.setattr(SearchIndex, "_nearest", nearest)
        update_index(retriever, corpus.select([2, 4]), retriever / "index")
        return nearest(index, *asked)

    monkeypatch.setattr(SearchIndex, "_nearest", replaced_meanwhile)
    assert {hit.id for hit in answers.find("locks", str(retriever))} == {"p2", "p4"}
    with pytest.raises(InputError, match="question"):
        answers.find(" ", str(retriever))


def test_words_of_the_question_are_marked_and_all_else_is_text() -> None:
    assert mark("Sorted, sorting; assorted <sort>", frozenset({"sort"})) == (
        "<mark>Sorted</mark>, <mark>sorting</mark>; assorted &lt;<mark>sort</mark>&gt;"
    )
    assert mark("a&b\"'", frozenset()) == "a&amp;b&quot;&#x27;"


@pytest.mark.parametrize(
    ("question", "text", "marked"),
    [
        ("退货政策", "看退货政策<b>，政府 iPhone手机", "看<mark>退货政策</mark>&lt;b&gt;，政府 iPhone手机"),  # noqa: RUF001
        ("รหัสผ่าน", "ขอรหัสผ่านได้", "ขอ<mark>รหัสผ่าน</mark>ได้"),
        ("iPhone手机", "新iPhone的手机", "新<mark>iPhone</mark>的<mark>手机</mark>"),
    ],
)
def test_what_was_asked_for_is_marked_where_no_spaces_are(question: str, text: str, marked: str) -> None:
    (words,) = words_of([question])
    assert mark(text, frozenset(words)) == marked


def test_words_are_marked_whose_accents_stand_apart_from_their_letters() -> None:
    hit = Hit(1.0, "p", "", normalize("NFD", "cafés"))
    for question in (normalize(form, "a café") for form in ("NFC", "NFD")):
        assert "<mark>cafés</mark>" in show_hits(question, [hit], [], [None], side=0)
    german = Hit(1.0, "p", "", "Die Häuser der Stadt sind verkauft, und das ist es, was die Leute dort nicht wollten.")
    assert "Die <mark>Häuser</mark> der Stadt" in show_hits("was kostet ein Haus", [german], [], [None], side=0)
    assert "एक <mark>साल</mark>" in show_hits("कितने साल", [Hit(1.0, "p", "", "एक साल")], [], [None], side=0)


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))


def test_cards(corpus: Dataset) -> None:
    both, alone = (Hit(0.5, row["id"], row["title"], row["text"]) for row in corpus.select(range(2)))
    page = show_hits("How do the threads wait?", [both, alone], [both], [None, False], side=0)
    tags = Tags(page).tags
    known = {"article", "header", "b", "strong", "small", "p", "footer", "button", "svg", "path", "mark"}
    assert {tag for tag, _ in tags} == known, "nothing of the passages became a tag"
    assert page.count("<mark>") == 4, "Waiting, threads, threads, and the title threading; not how, do, the"
    assert [values.get("class") for tag, values in tags if tag == "article"] == [None, "alone"]
    assert "1 on the right" in page
    assert "on the left only" in page
    thumbs = [
        (values["data-place"], values["data-good"], values["aria-pressed"]) for tag, values in tags if tag == "button"
    ]
    assert thumbs == [("0", "1", "false"), ("0", "0", "false"), ("1", "1", "false"), ("1", "0", "true")]


def test_nothing_found_is_said() -> None:
    assert "Nothing was found" in show_hits("x", [], [], [], side=1)
