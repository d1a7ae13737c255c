"""The page: what asking and judging do, and that it works in a browser that finds nothing but this machine."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import httpx
import pytest
from browser import CHROMIUM, Browser
from tiny_retriever import write_cross_encoder

from hf_dense.commands import serve
from hf_dense.errors import InputError
from hf_dense.serving.answers import Answers, served_arms
from hf_dense.serving.judgements import Judgements, judgements_of
from hf_dense.serving.page import Desk, build_page


@pytest.fixture
def desk(adapted: Path) -> Desk:
    return Desk(Answers(served_arms(adapted)), Judgements(judgements_of(adapted)), "hf-dense adapt")


def click(side: int, place: int, good: Any) -> Any:
    return SimpleNamespace(side=side, place=place, good=good)


def test_two_columns_for_a_question(desk: Desk) -> None:
    asked, left, right = desk.ask("locks", "fine-tuned", "BM25")
    assert asked is not None
    assert (left.count("<article"), right.count("<article")) == (5, 2)
    assert [hit.id for hit in asked.hits[1]] == ["p2", "p0"]
    for nothing in ("  ", None):
        assert desk.ask(nothing, "fine-tuned", "BM25") == (None, "", "")


def test_a_thumb_is_written_down_and_seen_in_both_columns(desk: Desk) -> None:
    asked, left, right = desk.ask("locks", "fine-tuned", "BM25")
    assert asked is not None
    assert 'aria-pressed="true"' not in left + right
    left, right, status = desk.judge(asked, click(1, 0, True))
    assert (left.count('aria-pressed="true"'), right.count('aria-pressed="true"')) == (1, 1)
    assert "1 question with" in status
    (row,) = map(json.loads, desk.judgements.path.read_text().splitlines())
    assert row == {"query": "locks", "positive": "A lock keeps others out.", "id": "p2"}
    assert "0 questions with" in desk.judge(asked, click(1, 0, False))[2], "changed one's mind"


@pytest.mark.parametrize(("side", "place"), [(2, 0), (0, -1), (0, []), ("left", None)])
def test_a_thumb_about_nothing_is_not_written_down(desk: Desk, side: Any, place: Any) -> None:
    asked, *_ = desk.ask("locks", "fine-tuned", "BM25")
    with pytest.raises(gr.Error, match="no such passage"):
        desk.judge(asked, click(side, place, True))
    with pytest.raises(gr.Error, match="Ask again"):
        desk.judge(None, click(0, 0, True))
    assert not desk.judgements.path.exists()


def test_a_question_may_come_with_the_address(desk: Desk) -> None:
    request: Any = SimpleNamespace(query_params={"question": "locks"})
    question, asked, left, *_ = desk.opened("base", "BM25", request)
    assert (question, asked, left) == ("locks", *desk.ask("locks", "base", "BM25")[:2])
    assert desk.opened("base", "BM25", SimpleNamespace(query_params={}))[:2] == ("", None)  # type: ignore[arg-type]


def test_a_mistake_is_shown_on_the_page(desk: Desk, adapted: Path) -> None:
    desk.ask("locks", "base", "base")
    (adapted / "arms" / "base" / "index" / "hf_dense.json").unlink()
    with pytest.raises(gr.Error, match="There is no search index in"):
        desk.ask("locks", "base", "base")


def test_a_file_that_is_gone_is_said_on_the_page(desk: Desk) -> None:
    asked, *_ = desk.ask("locks", "base", "BM25")
    desk.judgements.path = desk.judgements.path.parent / "gone" / "judged.jsonl"
    with pytest.raises(gr.Error, match="No such file or directory; see to it"):
        desk.judge(asked, click(0, 0, True))


def test_a_question_of_a_book_does_not_keep_all_others_waiting(desk: Desk) -> None:
    with pytest.raises(gr.Error, match="The question has 4,000,000 letters; ask in 100,000 at most"):
        desk.ask("x " * 2_000_000, "base", "BM25")


def choices(page: gr.Blocks) -> list[tuple[list[str], str]]:
    found = [block for block in page.blocks.values() if isinstance(block, gr.Dropdown)]
    return [([name for name, _ in block.choices], str(block.value)) for block in found]


def test_what_is_shown_first(adapted: Path, retriever: Path) -> None:
    names = ["fine-tuned + BM25", "base", "BM25", "fine-tuned"]
    assert choices(build_page(adapted)) == [(names, names[0]), (names, names[1])]
    mine = str(retriever)
    assert choices(build_page(str(retriever))) == [([mine, "BM25"], mine), ([mine, "BM25"], "BM25")]
    names.insert(1, mine)
    assert choices(build_page(adapted, against=retriever)) == [(names, names[0]), (names, names[1])]
    names[1] = f"{adapted}: fine-tuned + BM25"
    assert choices(build_page(adapted, against=adapted)) == [(names, names[0]), (names, names[1])]
    twice = [mine, f"{mine}: {mine}", "BM25"]
    assert choices(build_page(retriever, against=retriever)) == [(twice, twice[0]), (twice, twice[1])]


def test_what_is_shown_first_with_a_reranker(adapted: Path, retriever: Path, tmp_path: Path) -> None:
    reranker, mine = write_cross_encoder(tmp_path / "reranker"), str(retriever)
    names = [f"{mine}, re-ranked", mine, "BM25", "BM25, re-ranked"]
    assert choices(build_page(retriever, reranker=reranker)) == [(names, names[0]), (names, names[1])]
    shown = [value for _, value in choices(build_page(adapted, retriever, reranker=str(reranker)))]
    assert shown == ["fine-tuned + BM25, re-ranked", f"{mine}, re-ranked"]
    with pytest.raises(InputError, match="The depth is 0"):
        build_page(retriever, reranker=reranker, rerank_depth=0)
    with pytest.raises(InputError, match="has no head that scores pairs"):
        build_page(retriever, reranker=retriever)


def test_a_depth_without_a_reranker(retriever: Path) -> None:
    with pytest.raises(InputError, match="name it with --rerank MODEL"):
        run(retriever, "--rerank_depth", 5)


def test_it_tells_nobody(adapted: Path) -> None:
    assert build_page(adapted).analytics_enabled is False


def test_an_index_of_another_model(adapted: Path, retriever: Path) -> None:
    (adapted / "base").rename(adapted / "other")
    retriever.rename(adapted / "base")
    with pytest.raises(InputError, match="made by another model"):
        build_page(adapted)


def run(*words: Any) -> None:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    serve.run(parser.parse_args(list(map(str, words))))


def test_a_port_that_is_taken(retriever: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="name another --port"):
        run(retriever, "--port", taken.getsockname()[1])
    with pytest.raises(InputError, match="name another --port"):
        serve.free_port("127.0.0.1", 70_000)


def test_a_port_that_is_taken_on_this_machine_alone() -> None:
    """Gradio looks for it there, whatever address it is to listen on."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="name another --port"):
        serve.free_port("127.0.0.2", taken.getsockname()[1])


def test_a_directory_without_a_name() -> None:
    with pytest.raises(InputError, match="neither a complete adaptation nor a retriever"):
        run("/")


@pytest.mark.parametrize("host", ["\0", "\udcff", "a" * 5_000])
def test_a_host_that_is_none(host: str) -> None:
    with pytest.raises(InputError, match="name another --port or --host"):
        serve.free_port(host, 0)


def test_any_port_is_a_free_one() -> None:
    port = serve.free_port("127.0.0.1", 0)
    assert 0 < port == serve.free_port("127.0.0.1", port)


def test_without_gradio(retriever: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'hf_dense\[serve\]'"):
        run(retriever)


@contextmanager
def serving(directory: Path, working: Path, *options: str, **environment: str) -> Iterator[str]:
    """The address of the page of a directory, while it is served."""
    command = [sys.executable, "-m", "hf_dense.commands.main", "serve", str(directory), "--port", "0", *options]
    around = os.environ | environment
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=working, env=around) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[0]
        finally:
            server.terminate()


ASKED = "document.querySelectorAll('article').length"
THUMB = 'document.querySelector(\'button[data-side="1"][data-good="1"]\')'


@pytest.mark.slow
def test_files_that_are_sent_are_not_kept(retriever: Path, tmp_path: Path) -> None:
    with serving(retriever, tmp_path) as address:
        answer = httpx.post(f"{address}gradio_api/upload", files={"files": ("large.txt", b"x" * 1000)}, timeout=60)
    assert answer.status_code == 413


def listens(host: str) -> bool:
    try:
        with socket.create_server((host, 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(("host", "shown"), [("::1", "http://[::1]:"), ("::", "http://[::]:")])
def test_an_address_of_ipv6(host: str, shown: str, retriever: Path, tmp_path: Path) -> None:
    if not listens(host):
        pytest.skip("NOT TESTED WITH IPV6: this machine has none")
    with serving(retriever, tmp_path, "--host", host) as address:
        assert address.startswith(shown)
        assert httpx.get(address, timeout=60, trust_env=False).status_code == 200


@pytest.mark.slow
def test_where_a_proxy_is_set(retriever: Path, tmp_path: Path) -> None:
    """It does not come between the page and gradio, which asks it whether it is there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    with serving(retriever, tmp_path, http_proxy=nobody, all_proxy=nobody, no_proxy="") as address:
        assert httpx.get(address, timeout=60, trust_env=False).status_code == 200


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="NOT TESTED IN A BROWSER: no chromium here; apt-get install chromium")
def test_in_a_browser(retriever: Path, tmp_path: Path) -> None:
    with serving(retriever, tmp_path) as address:
        look(address, tmp_path)
    (row,) = map(json.loads, (tmp_path / "retriever-judgements.jsonl").read_text().splitlines())
    assert row["query"] == "threads"
    assert "<script>" in row["positive"] or "locks" in row["positive"]


def look(address: str, tmp_path: Path) -> None:
    """Ask by the address, judge the first passage on the right."""
    with Browser(tmp_path / "profile", f"{address}?question=threads") as browser:
        assert browser.wait(ASKED) == 7, "all five by the model, two by BM25"
        shown = browser.evaluate("document.body.innerText")
        assert "<img src=x onerror=alert(1)> {{value}} ${alert(2)} <script>alert(3)</script> threads" in shown
        assert "hf-dense adapt DOCS" in shown
        assert browser.evaluate("document.querySelectorAll('mark').length") > 0
        style = "getComputedStyle(document.querySelector('article {}')).{}"
        assert browser.evaluate(style.format("p", "scrollbarColor")) != "auto", "white on a dark page"
        assert browser.evaluate(style.format("header", "display")) == "flow-root", "the score stays above the text"
        browser.evaluate(f"{THUMB}.click()")
        browser.wait(f"{THUMB}.getAttribute('aria-pressed') === 'true'")
        browser.picture(tmp_path / "page.png")
        assert not browser.said, "no error, no alert"
        assert not [one for one in browser.requests if not one.startswith((address, "data:", "blob:"))]
