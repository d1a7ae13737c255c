"""What becomes a query, and what is taken out of its passages for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from json_lines import write_lines

from hf_dense.data.queries.collected import Collected
from hf_dense.data.queries.headings import HeadingQueries, clean_heading, without
from hf_dense.data.queries.neighbours import NeighbourQueries
from hf_dense.data.queries.passages import Document, Passages, Query
from hf_dense.data.queries.prompts import query_of
from hf_dense.data.queries.sentences import Counted, SentenceQueries, count_corpus
from hf_dense.errors import InputError

FILLER = "Nothing of what stands here says it again in the same words."


def document(texts: Sequence[str], sections: Sequence[str] = (), title: str = "", name: str = "d") -> Document:
    ids, rows = [f"{name}#{at}" for at in range(len(texts))], list(range(len(texts)))
    return Document(name, title, rows, ids, list(sections or [""] * len(texts)), list(texts), [True] * len(texts))


def passages(path: Path, documents: Sequence[Document]) -> Passages:
    rows = [
        {"id": name, "title": one.title, "section": section, "text": text, "document": one.name, "position": at}
        for one in documents
        for at, (name, section, text) in enumerate(zip(one.ids, one.sections, one.texts, strict=True))
    ]
    return Passages(str(write_lines(path, rows)))


def headings(tmp_path: Path, *documents: Document) -> list[list[Query]]:
    maker = HeadingQueries(passages(tmp_path / "corpus.jsonl", documents))
    return [maker.make(one) for one in documents]


def test_a_title_and_a_heading_ask_for_what_stands_under_them(tmp_path: Path) -> None:
    sections = ["", "Install", "Install > 1.1 On your own cluster", "Use > 2.1 Loops"]
    one = document([f"{number}. {FILLER}" for number in "abcd"], sections, "Parallel printing")
    (made,) = headings(tmp_path, one)
    assert [(query.text, query.relevant) for query in made] == [
        ("Parallel printing", {0: 2, 1: 1, 2: 1, 3: 1}),
        ("Parallel printing: Install", {1: 2, 2: 1}),
        ("On your own cluster", {2: 2}),
        ("Parallel printing: Loops", {3: 2}),
    ]
    assert one.untitled


@pytest.mark.parametrize("numbers", [("4.2. ", "A.3. "), ("Kapitel 4. ", "Anhang A. "), ("第 4 章 ", "第5章")])
def test_titles_that_are_numbered_ask_without_their_numbers(numbers: tuple[str, str], tmp_path: Path) -> None:
    titles = [f"{number}{title}" for number, title in zip(numbers, ("Printing in parallel", "Use of ink"), strict=True)]
    sections = [f"{number}Section {title.split()[-1]} of it" for number, title in zip(numbers, titles, strict=True)]
    texts = [f"a. {FILLER * 9}", f"b. {FILLER}"]
    documents = [document(texts, ["", section], title, title) for section, title in zip(sections, titles, strict=True)]
    found = [[query.text for query in made] for made in headings(tmp_path, *documents)]
    assert found == [["Printing in parallel", "Section parallel of it"], ["Use of ink", "Section ink of it"]]
    other = document([f"a. {FILLER}"], title="Printing", name="c")
    assert headings(tmp_path, documents[0], other)[0][0].text == titles[0].strip()


def test_headings_without_spaces_ask_for_what_stands_under_them(tmp_path: Path) -> None:
    filler = "这里没有任何一句话会重复标题。"
    one = document([f"{number}{filler}" for number in "甲乙丙"], ["", "如何申请退货", "运费"], "网上商店指南")
    (made,) = headings(tmp_path, one)
    assert [query.text for query in made] == ["网上商店指南", "如何申请退货", "网上商店指南: 运费"]


def test_headings_that_many_documents_have_make_no_queries(tmp_path: Path) -> None:
    documents = [
        document([FILLER, f"{FILLER} {at}"], ["Why we do it", f"Section of its own {at}x"], "Release notes", f"d{at}")
        for at in range(3)
    ]
    made = headings(tmp_path, *documents)
    assert [[query.text for query in queries] for queries in made] == [[f"Section of its own {at}x"] for at in range(3)]
    assert not documents[0].untitled, "its title is no part of the query"


def test_a_title_or_heading_of_two_documents_is_no_query_of_one(tmp_path: Path) -> None:
    two = [document([FILLER, f"{FILLER} More."], ["", f"Only in {name} here"], "Whooping cough", name) for name in "ab"]
    shared = [document([FILLER], ["What causes it"], f"Illness of {name}", name) for name in ("Graves", "Crohn")]
    made = headings(tmp_path, *two, *shared)
    assert [[query.text for query in queries] for queries in made] == [
        ["Only in a here"],
        ["Only in b here"],
        ["Illness of Graves", "Illness of Graves: What causes it"],
        ["Illness of Crohn", "Illness of Crohn: What causes it"],
    ]
    both = [document([FILLER], ["What causes it"], "Whooping cough", name) for name in "ab"]
    assert headings(tmp_path, *both) == [[], []]


def test_what_repeats_a_heading_is_taken_out(tmp_path: Path) -> None:
    one = document(
        [f"Parallel Printing We print. {FILLER * 3} It is PARALLEL printing. {FILLER}"], (), "Parallel printing"
    )
    (made,) = headings(tmp_path, one)
    assert [query.text for query in made] == ["Parallel printing"]
    assert one.texts == [f"We print. {FILLER * 3} {FILLER}"]
    much = document(["Parallel printing is good. Parallel printing is fast. We print on."], (), "Parallel printing")
    assert headings(tmp_path, much) == [[]]
    assert much.texts[0].startswith("Parallel printing is good."), "a heading that makes no query changes nothing"


def test_a_heading_is_taken_from_the_head_of_its_passages(tmp_path: Path) -> None:
    texts = [f"2. Install. {FILLER}", f"{FILLER} Install.", f"3. Use. {FILLER}"]
    one = document(texts, ["2. Install", "2. Install", "3. Use"], "Parallel printing")
    (made,) = headings(tmp_path, one)
    assert [query.text.removeprefix("Parallel printing") for query in made] == ["", ": Install", ": Use"]
    assert one.texts == [FILLER, f"{FILLER} Install.", FILLER]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Parallel printing. --print prints.", "--print prints."),
        ("Parallel printing - We print.", "We print."),
        ("Parallel printing We print.", "We print."),
        ("PARALLEL PRINTING: 3 pages.", "3 pages."),
        ("Parallel printing is fast. We print.", "We print."),
        ("Parallel printing (PP) is fast. We print.", "We print."),
        ("Parallel prints. We print.", "Parallel prints. We print."),
    ],
)
def test_a_heading_at_the_head_and_one_in_a_sentence(text: str, left: str) -> None:
    assert without(text, "Parallel printing") == left


def test_only_sections_with_a_chosen_passage_make_queries(tmp_path: Path) -> None:
    one = document([FILLER, FILLER], ["One thing of many", "Another thing of many"])
    one.chosen = [False, True]
    (made,) = headings(tmp_path, one)
    assert [query.text for query in made] == ["Another thing of many"]


@pytest.mark.parametrize(
    ("heading", "typed"),
    [
        ("3.1 The `map` function:", "The map function"),
        ("2) Loops", "Loops"),
        ("Chapter 4. Whales ¶", "Whales"),
        ("3 ways to fail", "3 ways to fail"),
        ("I think, therefore", "I think, therefore"),
        ("2.0 was late", "was late"),
        ("C programs", "C programs"),
        ("1984", "1984"),
        ("C. elegans genome", "C. elegans genome"),
    ],
)
def test_headings_are_cleaned(heading: str, typed: str) -> None:
    assert clean_heading(heading, numbered=True) == typed


@pytest.mark.parametrize(
    ("heading", "typed"),
    [
        ("Interop between F# and C#", "Interop between F# and C#"),
        ("A* search and D* Lite", "A* search and D* Lite"),
        ("The *args and **kwargs", "The *args and **kwargs"),
        ("## The **old** ``map`` and `filter` ##", "The old map and filter"),
        ("**The `*args` of C#**", "The *args of C#"),
        ("2.5 GHz radios", "2.5 GHz radios"),
    ],
)
def test_what_belongs_to_a_heading_stays(heading: str, typed: str) -> None:
    assert clean_heading(heading) == typed


def test_numbers_go_where_headings_beside_it_have_one(tmp_path: Path) -> None:
    sections = ["1. Reading of files", "2. Writing of files", "2. Writing of files > 2.5 GHz radios"]
    one = document([f"{section.split(' > ')[-1]}. {FILLER}" for section in sections], sections)
    (made,) = headings(tmp_path, one)
    assert [query.text for query in made] == ["Reading of files", "Writing of files", "2.5 GHz radios"]
    assert one.texts == [FILLER] * 3


def test_a_heading_is_taken_out_as_it_is_written_and_as_it_is_cleaned(tmp_path: Path) -> None:
    sections = ["Between `F#` and C#", "The C. elegans genome"]
    texts = [f"{FILLER * 3} It is between `F#` and C#.", f"{FILLER * 3} We read the C. elegans genome."]
    one = document(texts, sections)
    (made,) = headings(tmp_path, one)
    assert [query.text for query in made] == ["Between F# and C#", "The C. elegans genome"]
    assert one.texts == [FILLER * 3] * 2


def sentences(texts: Sequence[str], rare: Sequence[str] = ("zebras",)) -> tuple[list[Query], Document]:
    one = document(texts, title="On animals")
    frequency = dict.fromkeys(rare, 2) | {"common": 500, "quagga": 1}
    return SentenceQueries(Counted(1000, frequency, frozenset()), 0).make(one), one


def test_a_sentence_with_a_rare_word_leaves_its_passage() -> None:
    made, one = sentences([f"{FILLER} In the evening zebras come to the water. {FILLER}"])
    assert made == [Query("sentences", "In the evening zebras come to the water", 0, {0: 1})]
    assert one.texts == [f"{FILLER} {FILLER}"]


@pytest.mark.parametrize(
    ("asked", "rest", "rare"),
    [
        ("周末斑马会到河边喝水和休息", "这里没有别的话要说。所以再说一遍。", "斑马"),
        ("週末に縞馬は川へ来て水を飲みます", "ここには何もありません。何もないです。", "縞馬"),
        ("शाम को ज़ेब्रा नदी के पास पानी पीते हैं", "यहाँ कुछ और कहना ज़रूरी नहीं है।", "ज़ेब्रा"),
        ("Le soir les ze\u0300bres boivent au fleuve", "Ici rien de plus ne se dit.", "ze\u0300bres"),
    ],
)
def test_a_sentence_of_another_script_asks_too(asked: str, rest: str, rare: str) -> None:
    stop = {"周": "。", "週": "。", "श": "।"}.get(asked[0], ".")
    made, one = sentences([f"{asked}{stop} {rest}"], [rare])
    assert made == [Query("sentences", asked, 0, {0: 1})]
    assert one.texts == [rest]


def test_words_of_scripts_without_spaces_are_counted_in_pairs_of_letters(tmp_path: Path) -> None:
    documents = [document(["斑马在河边。"], name="a"), document(["斑马喝水 now。"], name="b")]
    counted = count_corpus(passages(tmp_path / "corpus.jsonl", documents).rows)
    assert (counted.words["斑马"], counted.words["喝水"], counted.words["now"]) == (2, 1, 1)


def test_which_sentences_ask_is_judged_in_the_language_of_the_corpus(tmp_path: Path) -> None:
    around = "Das ist für alle, die es noch nicht gehört haben, und auch für die, denen es bekannt ist."
    dependent, alone = "Hierzu zeigt das Museum ein Quagga.", "Das Museum in Berlin zeigt ein Quagga."
    documents = [document([f"{around} {text}", "Ein Quagga."], name=text) for text in (dependent, alone)]
    counted = count_corpus(passages(tmp_path / "corpus.jsonl", documents).rows)
    assert counted.language.name == "german"
    made = [SentenceQueries(counted, 0).make(one) for one in documents]
    assert [[query.text for query in queries] for queries in made] == [[], [alone.rstrip(".")]]


@pytest.mark.parametrize(
    "text",
    [
        "In the evening zebras come to the water.",  # nothing would be left
        f"{FILLER} All that is common is here and there. A quagga was seen here in the past.",  # no rare word
        f"{FILLER} They saw zebras come to the water. As shown above zebras drink much water.",  # of those before them
        f"{FILLER} Zebras drink water.",  # short
        f"{FILLER} In the evening zebras come to the water",  # no sentence
        f"{FILLER} Name: zebras; kind: animals that drink; where: in the evening.",  # a row of a table
        f"{FILLER} zebras(x=1); y[0] -> z{{1, 2}}; {{'a': 3, 4: [5, 6]}} + 7 * 8.",  # code
        f"{FILLER} The zebras come to the water. {FILLER} The zebras come to the water.",  # it would stand there still
    ],
)
def test_passages_without_a_sentence_that_asks(text: str) -> None:
    made, one = sentences([text])
    assert made == []
    assert one.texts == [text]


def test_a_sentence_that_overlapping_passages_share_makes_no_query() -> None:
    shared = "In the evening zebras come to the water."
    assert sentences([f"{FILLER} {shared}", f"{shared} {FILLER}"])[0] == []


def test_a_sentence_that_stands_in_another_document_makes_no_query(tmp_path: Path) -> None:
    shared, own = "In the evening zebras come to the water.", "In the morning zebras leave the water."
    texts = [f"{FILLER} {shared}", f"{own}\n{shared} {FILLER}"]
    documents = [document([text], name=name) for name, text in zip("ab", texts, strict=True)]
    counted = count_corpus(passages(tmp_path / "corpus.jsonl", documents).rows)
    assert counted.passages == counted.words["zebras"] == 2
    made = [SentenceQueries(counted, 0).make(one) for one in documents]
    assert [[query.text for query in queries] for queries in made] == [[], [own.rstrip(".")]]


def test_a_passage_asks_for_those_beside_it_and_leaves() -> None:
    one = document([f"Passage {at} {FILLER}" for at in range(13)])
    made = NeighbourQueries(0).make(one)
    assert len(made) == 3 == len(one.gone)
    for query in made:
        assert query.text == one.texts[query.origin]
        assert query.origin in one.gone
        assert {*query.relevant} == {query.origin - 1, query.origin + 1} & {*range(13)}
        assert not one.gone & {*query.relevant}
    assert NeighbourQueries(0).make(document([FILLER])) == []
    assert len(NeighbourQueries(0).make(document(["One of two.", "Two of two."]))) == 1
    assert NeighbourQueries(0).make(document([f"{FILLER} More.", FILLER])) == [], "they overlap"


def test_neighbours_leave_the_chosen_passages_of_most_documents_to_other_kinds() -> None:
    documents = [document([FILLER, f"{at} other words."], name=f"d{at}") for at in range(200)]
    for one in documents:
        one.chosen = [True, False]
    made = [NeighbourQueries(0, others=True).make(one) for one in documents]
    assert 30 < sum(map(len, made)) < 70
    assert all(NeighbourQueries(0).make(document([FILLER, f"{at} other words."])) for at in range(9))


def test_equal_queries_are_joined_in_a_document_and_dropped_between_documents() -> None:
    collected, one, two = Collected(), document(["a", "b", "c"]), document(["a"], name="e")
    for given, text, relevant in (
        (one, "Who  was it?", {0: 1}),
        (one, "who was it?", {0: 2, 1: 1}),
        (one, "Where was it?", {2: 1}),
        (two, "where was IT?", {0: 1}),
        (two, "", {0: 1}),
        (two, "it", {0: 1}),
        (two, "very " * 60, {0: 1}),
        (two, "When was it?", {0: 1}),
    ):
        collected.add(given, Query("generated:question", text, min(relevant), relevant))
    labels = collected.labels({"train": 1.0, "dev": 0.0, "test": 0.0}, 0)
    assert {*labels} == {"train"}
    assert labels["train"].queries == {
        "generated:question:d#0": "Who was it?",
        "generated:question:e#0": "When was it?",
    }
    assert labels["train"].grades["generated:question:d#0"] == {"d#0": 2, "d#1": 1}
    assert collected.counts == {
        "left out: repeated": 2,
        "left out: no query": 1,
        "left out: too short": 1,
        "left out: too long": 1,
        "left out: made of several documents": 1,
    }


def test_splits_are_by_document() -> None:
    collected = Collected()
    for name in "abcdefghijklmnopqrst":
        for text in ("one of", "two of"):
            collected.add(document(["a"], name=name), Query("headings", f"{text} {name}", 0, {0: 1}))
    labels = collected.labels({"train": 0.5, "dev": 0.25, "test": 0.25}, 3)
    owners = {split: {query.split(":")[1].split("#")[0] for query in found.queries} for split, found in labels.items()}
    assert {*owners} == {"train", "dev", "test"}
    assert sum(map(len, owners.values())) == 20
    assert sum(len(found.queries) for found in labels.values()) == 40


def test_passages_that_are_chosen_are_of_many_documents(tmp_path: Path) -> None:
    documents = [document(["t"] * length, name=name) for name, length in (("a", 30), ("b", 2), ("c", 1), ("d", 5))]
    read = passages(tmp_path / "corpus.jsonl", documents)
    for limit, counts in ((3, [1, 1, 1]), (4, [1, 1, 1, 1]), (8, [3, 2, 1, 2]), (100, [30, 2, 1, 5])):
        chosen = [sum(one.chosen) for one in read.read(read.choose(limit, 1))]
        assert sorted(chosen) == sorted(counts) or (limit == 8 and sum(chosen) == 8 and min(chosen) == 1)
        assert read.documents_of(read.choose(limit, 1)) == len(chosen)
    assert (read.choose(8, 1) == read.choose(8, 1)).all()
    assert (read.choose(8, 1) != read.choose(8, 2)).any()


def test_documents_in_pieces_are_put_in_order(tmp_path: Path) -> None:
    rows = [("b", 1), ("a", 2), ("b", 0), ("a", 0), ("a", 1)]
    lines = [
        {"_id": at, "text": f"{name}{place}", "document": name, "position": place}
        for at, (name, place) in enumerate(rows)
    ]
    write_lines(tmp_path / "corpus.jsonl", lines)
    read = Passages(str(tmp_path / "corpus.jsonl"))
    found = list(read.read(read.choose(None, 0)))
    assert [(one.name, one.texts, one.ids) for one in found] == [
        ("b", ["b0", "b1"], ["2", "0"]),
        ("a", ["a0", "a1", "a2"], ["3", "4", "1"]),
    ]
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n')
    with pytest.raises(InputError, match=r"Two passages of .* have the same id"):
        Passages(str(tmp_path / "corpus.jsonl"))


@pytest.mark.parametrize(
    ("answer", "query"),
    [
        ("What is it?", "What is it?"),
        ("Sure! Here is a question:\n\n1. **What is it?**\n2. Who?", "What is it?"),
        ("<think>Let me see.\nA question: x</think>\n\nQuery: whales at night.", "whales at night"),
        ("<think>It never ends", ""),
        ("- „Was ist es?“", "Was ist es?"),
        ("Here you are:", ""),
        ("What is this text about?", ""),
        ("What is its purpose in the context of the text?", ""),
        ("How do I select all the text?", "How do I select all the text?"),
        ("How is the text of a label set?", "How is the text of a label set?"),
        ("", ""),
    ],
)
def test_the_query_in_an_answer(answer: str, query: str) -> None:
    assert query_of(answer) == query
