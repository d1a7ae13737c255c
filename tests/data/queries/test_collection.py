"""A corpus becomes a collection that everything else reads; a run that is killed pays for nothing twice."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from json_lines import write_lines
from tiny_chat_server import ChatServer, Failure, chat_server, completion
from tiny_retriever import random_words, tiny_tokenizer, write_writer
from tqdm.auto import tqdm

from hf_dense.data.collections import load_corpus, load_qrels, query_texts, training_pairs
from hf_dense.data.passage_texts import passage_text
from hf_dense.data.queries import asking, endpoint
from hf_dense.data.queries.collection import build_queries
from hf_dense.data.queries.endpoint import Endpoint
from hf_dense.data.queries.generating import Generating
from hf_dense.data.queries.prompts import prompts
from hf_dense.errors import InputError
from hf_dense.finetuning.lists import load_lists

SPLITS = ("train", "dev", "test")
KEY = "sk-secret"


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    """Twelve documents with titles and sections, whose texts repeat the title now and then."""
    draw, words, rows = random.Random(0), random_words(300), []
    for number in range(12):
        title = " ".join(draw.sample(words, 3)).capitalize()
        for at in range(6):
            sentences = [" ".join(draw.sample(words, 9)).capitalize() + "." for _ in range(8)]
            sentences[2] = f"Of all things {title.upper()} is one." if at == 1 else sentences[2]
            section = " ".join(["Section", *draw.sample(words, 3)]) if at > 2 else "Overview" if at else ""
            rows.append({"id": f"d{number}#{at}", "title": title, "text": " ".join(sentences), "section": section})
            rows[-1] |= {"document": f"d{number}", "position": at}
    return str(write_lines(tmp_path / "corpus.jsonl", rows))


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A random model that continues prompts, and one that takes instructions."""
    root, tokenizer = tmp_path_factory.mktemp("models"), tiny_tokenizer()
    found = {name: str(write_writer(root / name)) for name in ("plain", "instructed")}
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    tokenizer.save_pretrained(found["instructed"])
    return found


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(endpoint, "_PAUSE", 0.001)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with chat_server() as running:
        yield running


def judgements(out: Path) -> dict[str, dict[str, int]]:
    found = {}
    for split in SPLITS:
        if (out / "qrels" / f"{split}.parquet").exists():
            found |= load_qrels(out, split)
    return found


def passages(out: Path) -> dict[str, str]:
    rows = load_corpus(out)
    return {name: passage_text(*both) for name, *both in zip(rows["id"], rows["title"], rows["text"], strict=True)}


def test_no_passage_gives_its_query_away(corpus: str, tmp_path: Path) -> None:
    out = build_queries(corpus, tmp_path / "out", ["sentences", "headings", "neighbours"])
    known, texts, graded = query_texts(out), passages(out), judgements(out)
    kinds = {name.split(":")[0] for name in known}
    assert kinds == {"headings", "sentences", "neighbours"}
    assert graded.keys() == known.keys()
    for name, judged in graded.items():
        assert judged
        assert judged.keys() <= texts.keys()
        assert not any(known[name].casefold() in texts[passage].casefold() for passage in judged), name
        if name.startswith("neighbours"):
            assert name.split(":")[1] not in texts
    assert len(texts) == 72 - sum(name.startswith("neighbours") for name in known)
    titles = {name for name in known if name.startswith("headings") and 2 in graded[name].values()}
    assert len(titles) > 12, "titles and sections, their first passages judged higher"
    card = (out / "README.md").read_text()
    assert "Made queries are no users' queries" in card
    assert f"| queries from sentences | {sum(name.startswith('sentences') for name in known)} |" in card
    assert {"", "Overview"} < {*load_corpus(out)["section"]}
    assert f"- `corpus`: {', '.join(load_corpus(out).column_names)}\n- `queries`: id, text\n" in card


def test_all_queries_of_a_document_are_in_one_split_and_everything_reads_them(corpus: str, tmp_path: Path) -> None:
    out = build_queries(corpus, tmp_path / "out", ["sentences", "headings"], split="50/25/25")
    owners = {
        split: {passage.split("#")[0] for judged in load_qrels(out, split).values() for passage in judged}
        for split in SPLITS
    }
    assert all(owners.values())
    assert sum(map(len, owners.values())) == len(set.union(*owners.values())) == 12
    assert len(training_pairs(out)) == sum(map(len, load_qrels(out, "train").values()))
    assert len(load_lists(out, out, 2, 0)) == len(load_qrels(out, "train"))


def test_the_seed_decides(corpus: str, tmp_path: Path) -> None:
    made = {
        name: query_texts(build_queries(corpus, tmp_path / name, ["sentences", "neighbours"], limit=20, seed=seed))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    }
    assert made["a"] == made["b"] != made["c"]
    assert len({name.split(":")[1].split("#")[0] for name in made["a"]}) == 12, "of all documents"


def test_neighbours_of_few_passages_leave_some_to_each_kind(server: ChatServer, corpus: str, tmp_path: Path) -> None:
    kinds = ["neighbours", "headings", "sentences", "generated"]
    made = query_texts(build_queries(corpus, tmp_path / "out", kinds, limit=12, generating=asked(server)))
    assert {name.split(":")[0] for name in made} == {*kinds}
    alone = tmp_path / "alone.jsonl"
    alone.write_text("".join(Path(corpus).read_text().splitlines(keepends=True)[:6]))
    with pytest.raises(InputError, match="all passages that were chosen, and none is left to a model; raise limit"):
        build_queries(str(alone), tmp_path / "one", kinds, limit=1, seed=0, generating=asked(server))


def test_a_corpus_without_documents_and_titles(tmp_path: Path) -> None:
    rows = [
        {"_id": at, "text": f"Zebras number {at} drink water in the evening. {'And so it goes on here. ' * at}"}
        for at in range(3)
    ]
    write_lines(tmp_path / "corpus.jsonl", rows)
    with pytest.raises(InputError, match=r"No query can be made of corpus.jsonl from headings or neighbours\."):
        build_queries(str(tmp_path / "corpus.jsonl"), tmp_path / "none", ["headings", "neighbours"])
    assert not (tmp_path / "none").exists()
    out = build_queries(str(tmp_path / "corpus.jsonl"), tmp_path / "out", ["headings", "sentences"], split="100/0/0")
    assert query_texts(out) == {f"sentences:{at}": f"Zebras number {at} drink water in the evening" for at in (1, 2)}
    assert load_corpus(out)["id"][:] == ["0", "1", "2"]
    assert [path.name for path in (out / "qrels").iterdir()] == ["train.parquet"]
    assert "| queries from headings | 0 |" in (out / "README.md").read_text()


def test_the_order_of_styles_decides_nothing() -> None:
    assert [*prompts(("title", "question"), None)] == [*prompts(("question", "title"), None)]


def test_a_model_writes_in_several_styles(corpus: str, writers: dict[str, str], tmp_path: Path) -> None:
    generating = Generating(
        writers["instructed"], styles=("question", "title"), candidates=2, temperature=3.0, output_length=8
    )
    out = build_queries(corpus, tmp_path / "out", ["headings", "generated"], limit=9, generating=generating)
    known = query_texts(out)
    kinds = {":".join(name.split(":")[:2]) for name in known if name.startswith("generated")}
    assert kinds == {"generated:question", "generated:title"}
    again = build_queries(corpus, tmp_path / "again", ["headings", "generated"], limit=9, generating=generating)
    assert query_texts(again) == known
    template = Generating(writers["plain"], template="ask: {text}", output_length=6)
    plain = build_queries(corpus, tmp_path / "plain", ["generated"], limit=9, generating=template)
    assert all(name.count(":") == 1 for name in query_texts(plain))
    with pytest.raises(InputError, match="is no instruction model, for which the styles are written; give the prompt"):
        build_queries(corpus, tmp_path / "no", ["generated"], generating=Generating(writers["plain"]))


def asked(server: ChatServer, **changes: Any) -> Generating:
    given = {"styles": ("question", "keywords"), "candidates": 2, **changes}
    return Generating("small", Endpoint(server.url, "small", parallel=4, price_in=1.0, price_out=2.0), **given)


def test_an_endpoint_writes_side_by_side(
    server: ChatServer, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.pause = 0.02
    out = build_queries(corpus, tmp_path / "out", ["sentences", "generated"], limit=10, generating=asked(server))
    assert len(server.asked) == 40
    assert 1 < server.most <= 4
    assert {row["authorization"] for row in server.asked} == {f"Bearer {KEY}"}
    assert len({row["seed"] for row in server.asked}) == 40
    left, prompts = load_corpus(out)["text"][:], [row["messages"][0]["content"] for row in server.asked]
    assert all(any(text in " ".join(prompt.split()) for text in left) for prompt in prompts), "without its sentence"
    card = (out / "README.md").read_text()
    assert "| tokens that the model read | 1,200 |" in card
    assert "| tokens that the model wrote | 200 |" in card
    assert "1,400 tokens, cost 0.0016 of about 0.0016" in capsys.readouterr().err


def test_an_endpoint_that_reports_no_usage_is_said_to(
    server: ChatServer, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.good, server.then = 0, Failure(body=json.dumps(completion("What is it?", usage=False)))
    out = build_queries(corpus, tmp_path / "out", ["sentences", "generated"], limit=10, generating=asked(server))
    printed = capsys.readouterr().err
    assert "the endpoint reports no usage" in printed
    assert "0 tokens" not in printed
    assert "tokens that the model" not in (out / "README.md").read_text(), "unknown, not 0"


def test_an_endpoint_is_asked_without_a_progress_bar_too(
    server: ChatServer, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "tqdm", partial(tqdm, disable=True))  # TQDM_DISABLE, which tqdm reads once
    build_queries(corpus, tmp_path / "out", ["generated"], limit=3, generating=asked(server))
    assert len(server.asked) == 12


def test_a_run_that_failed_goes_on_and_asks_for_nothing_twice(server: ChatServer, corpus: str, tmp_path: Path) -> None:
    server.good, server.then = 17, Failure(400, "credit is used up")
    with pytest.raises(InputError, match=r"refuses what it is asked: 400 .*credit is used up"):
        build_queries(corpus, tmp_path / "out", ["generated"], limit=10, generating=asked(server))
    assert not (tmp_path / "out").exists()
    answered = (tmp_path / "out.partial" / "pieces" / "answers.jsonl").read_text().splitlines()
    assert len(answered) == 17
    server.good, server.asked = None, []
    with pytest.raises(InputError, match="holds unfinished work made from another temperature"):
        build_queries(corpus, tmp_path / "out", ["generated"], limit=10, generating=asked(server, temperature=0.1))
    assert server.asked == []
    out = build_queries(corpus, tmp_path / "out", ["generated"], limit=10, generating=asked(server))
    assert len(server.asked) == 40 - 17
    build_queries(corpus, tmp_path / "out", ["generated"], limit=10, generating=asked(server))
    assert len(server.asked) == 40 - 17, "it is there already"
    for file in out.rglob("*"):
        assert file.is_dir() or KEY.encode() not in file.read_bytes()


def test_another_endpoint_is_another_model(server: ChatServer, corpus: str, tmp_path: Path) -> None:
    build_queries(corpus, tmp_path / "out", ["generated"], limit=2, generating=asked(server))
    other = Generating("small", Endpoint("http://127.0.0.1:9/v1", "small"), ("question", "keywords"), candidates=2)
    with pytest.raises(InputError, match=r"was made from another model \(small at http.*, now small at http"):
        build_queries(corpus, tmp_path / "out", ["generated"], limit=2, generating=other)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kinds": ["titles"]}, "The kind is 'titles'; allowed: neighbours, headings, sentences, generated"),
        ({"limit": 0}, "limit is 0; make queries of one passage at least"),
        ({"split": "80/20"}, "not three percentages"),
        ({"kinds": ["generated"]}, "A model is named for generated queries, and for no others"),
        (
            {"generating": Generating("m", template="{text}")},
            "A model is named for generated queries, and for no others",
        ),
    ],
)
def test_bad_options(corpus: str, tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        build_queries(corpus, tmp_path / "out", **{"kinds": ["sentences"], **changes})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"styles": ("poem",)}, "The style is 'poem'; allowed: question, keywords, title"),
        ({"template": "write"}, "does not say where the passage goes"),
        ({"candidates": 0}, "candidates is 0"),
        ({"temperature": 0.0}, "temperature is 0.0; it is above 0"),
        ({"batch_size": -1}, "batch_size is -1; it is at least 1"),
    ],
)
def test_bad_settings_of_generating(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Generating("m", **changes)
