"""The page: a question, what two arms find, thumbs up or down. It needs nothing of the internet."""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gradio as gr

from hf_dense.errors import InputError, sentence_of
from hf_dense.search.cross_encoder import load_reranker
from hf_dense.search.index import Hit
from hf_dense.search.reranking import RERANK_DEPTH, check_depth
from hf_dense.serving.answers import Answers, ServedArm, served_arms, show_hits, with_reranked
from hf_dense.serving.judgements import Judgements, judgements_of, next_commands

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

TITLE: Final = "Which passages answer?"
_LONGEST: Final = 100_000  # letters of a question; questions wait for one another, and more take seconds and minutes
_CLICKS: Final = """
element.addEventListener('click', event => {
  const button = event.target.closest('button[data-place]');
  if (button) {
    const {side, place, good} = button.dataset;
    trigger('click', {side: Number(side), place: Number(place), good: good === '1'});
  }
});
"""
_STYLE: Final = """
article { border: 1px solid var(--border-color-primary); border-left-width: 4px; border-radius: 6px; padding: 10px 14px;
  margin-bottom: 10px; }
article.alone { border-left-color: var(--color-accent); }
article p { margin: 6px 0; max-height: 13em; overflow-y: auto; white-space: pre-line; overflow-wrap: anywhere;
  scrollbar-color: var(--border-color-primary) transparent; }
article header { display: flow-root; }
article header small { float: right; }
article small { opacity: 0.75; }
article mark { background: #ffe08a; color: #222; border-radius: 2px; padding: 0 1px; }
button { padding: 3px 8px; border: 1px solid transparent; border-radius: 6px; cursor: pointer; opacity: 0.5;
  vertical-align: middle; }
button:hover, button:focus-visible { opacity: 1; border-color: var(--border-color-primary); }
button[aria-pressed=true] { opacity: 1; color: var(--color-accent); border-color: var(--color-accent); }
"""


def build_page(
    directory: str | Path,
    against: str | Path | None = None,
    judgements: str | Path | None = None,
    reranker: str | Path | CrossEncoder | None = None,
    rerank_depth: int = RERANK_DEPTH,
) -> gr.Blocks:
    """Make the page of an adaptation or of a retriever with an index; `launch` serves it.

    Args:
        directory: see `hf_dense.serving.answers.served_arms`.
        against: another one, whose arm to use is shown on the right.
        judgements: .jsonl file that receives them; by default beside the directory, `<directory>-judgements.jsonl`.
        reranker: a cross-encoder (directory, Hub id or loaded) that orders anew what an arm finds: the one on the left,
            and with `against` the one on the right, which else is the same arm as it finds.
        rerank_depth: passages that it orders.

    Returns:
        The page. A question may come with its address, as `?question=...`.

    Raises:
        InputError: nothing to show there, an index that is of another model, a file that cannot be written, a
            cross-encoder that cannot be loaded, or a depth below 1.
    """
    place = Path(directory)
    arms = served_arms(place) if against is None else _held_against(place, Path(against))
    file = judgements_of(place) if judgements is None else Path(judgements)
    judged, ranker = Judgements(file), None
    if reranker is not None:
        check_depth(rerank_depth)
        ranker, arms = load_reranker(reranker), with_reranked(arms, 1 if against is None else 2)
    desk = Desk(Answers(arms, ranker, rerank_depth), judged, next_commands(place, file))
    shown = [arm.name for arm in (arms[0], arms[min(1, len(arms) - 1)])]
    for name in shown:
        desk.answers.open(name)
    return _lay_out(desk, shown)


def _held_against(directory: Path, against: Path) -> list[ServedArm]:
    """The arms of a directory, with that of another one in the second place."""
    first, *others = served_arms(directory)
    other = served_arms(against)[0]
    of_its_directory = other.name.startswith(str(against)) and against != directory  # as a retriever's are
    name = other.name if of_its_directory else f"{against}: {other.name}"
    return [first, ServedArm(name, other.index, other.model, other.weight), *others]


@dataclass(frozen=True)
class Asked:
    """What a visitor sees: a question, and what was found for it on the left and on the right."""

    question: str
    hits: tuple[list[Hit], list[Hit]]


class Desk:
    """What happens when somebody asks or judges.

    Args:
        answers: finds passages.
        judgements: receives what is said of them.
        commands: that use the judgements.
    """

    def __init__(self, answers: Answers, judgements: Judgements, commands: str) -> None:
        self.answers = answers
        self.judgements = judgements
        self.commands = commands

    def opened(self, left: str, right: str, request: gr.Request) -> tuple[str, Asked | None, str, str, str]:
        """Answer the question in the address, if there is one."""
        question = str(dict(request.query_params).get("question", ""))
        return (question, *self.ask(question, left, right), self.status())

    def ask(self, question: str | None, left: str, right: str) -> tuple[Asked | None, str, str]:
        """Find passages with both arms; an empty question, or none, shows none."""
        if question is None or not question.strip():
            return None, "", ""
        with _said():
            if len(question) > _LONGEST:
                raise InputError(f"The question has {len(question):,} letters; ask in {_LONGEST:,} at most.")
            asked = Asked(question, (self.answers.find(question, left), self.answers.find(question, right)))
        return (asked, *self._shown(asked))

    def judge(self, asked: Asked | None, event: gr.EventData) -> tuple[str, str, str]:
        """Write down what a thumb says."""
        with _said():
            if asked is None:
                raise InputError("Ask again: the server was started anew since.")
            self.judgements.add(asked.question, _judged(asked, event), event.good is True)
        return (*self._shown(asked), self.status())

    def status(self) -> str:
        """How many questions have an answer, and where judgements go, as HTML."""
        number, file = self.judgements.answered, html.escape(str(self.judgements.path))
        return f"{number:,} question{'s' * (number != 1)} with a passage that answers, in <code>{file}</code>"

    def _shown(self, asked: Asked) -> tuple[str, str]:
        left, right = asked.hits
        verdicts = [[self.judgements.verdict(asked.question, hit) for hit in hits] for hits in asked.hits]
        return (
            show_hits(asked.question, left, right, verdicts[0], side=0),
            show_hits(asked.question, right, left, verdicts[1], side=1),
        )


def _judged(asked: Asked, event: gr.EventData) -> Hit:
    """The passage that a thumb is about."""
    place = getattr(event, "side", None), getattr(event, "place", None)
    shown = [((side, at), hit) for side, hits in enumerate(asked.hits) for at, hit in enumerate(hits)]
    for at, hit in shown:
        if at == place:
            return hit
    raise InputError("There is no such passage; ask again.")


@contextmanager
def _said() -> Iterator[None]:
    """Show on the page what a command would say of an error."""
    try:
        yield
    except Exception as error:
        if (said := sentence_of(error)) is None:
            raise
        raise gr.Error(html.escape(said), print_exception=False) from error


def _lay_out(desk: Desk, shown: list[str]) -> gr.Blocks:
    """Two columns below a question, and what to do with the judgements below these."""
    page: gr.Blocks = gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True)
    with page:
        gr.Markdown(f"# {TITLE}")
        asked = gr.State(None)
        with gr.Row(equal_height=True):
            question = gr.Textbox(label="Question", placeholder="Ask in plain words", scale=8, autofocus=True)
            button = gr.Button("Ask", variant="primary", scale=1)
        with gr.Row():
            columns = [_column(desk, name, label) for name, label in zip(shown, ("Left", "Right"), strict=True)]
        status = gr.HTML(desk.status)
        gr.Code(desk.commands, language="shell", label="Next, in a shell", lines=1, show_line_numbers=False)
        arms, found = map(list, zip(*columns, strict=True))
        gr.on([question.submit, button.click], desk.ask, [question, *arms], [asked, *found], api_visibility="private")
        gr.on([arm.input for arm in arms], desk.ask, [question, *arms], [asked, *found], api_visibility="private")
        gr.on([hits.click for hits in found], desk.judge, asked, [*found, status], api_visibility="private")
        page.load(desk.opened, arms, [question, asked, *found, status], api_visibility="private")
    return page


def _column(desk: Desk, name: str, label: str) -> tuple[gr.Dropdown, gr.HTML]:
    with gr.Column():
        arm = gr.Dropdown(list(desk.answers.arms), value=name, label=label)
        return arm, gr.HTML(js_on_load=_CLICKS, css_template=_STYLE)
