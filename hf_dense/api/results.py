"""What a call came to: where it is, and its figures; shown as a table in notebooks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from hf_dense.errors import InputError
from hf_dense.storage.files import as_typed
from hf_dense.storage.manifest import Manifest


@dataclass(frozen=True, repr=False)
class Result:
    """What a call wrote; it may be given wherever a path may, also from another working directory.

    Args:
        path: of it, made absolute; of a fine-tuning, that of the model.
        kind: what it is.
        figures: by their names.
    """

    path: Path
    kind: str
    figures: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.path.absolute())

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Result:
        """What is in a directory that hf_dense wrote.

        Raises:
            InputError: nothing of the kind is there.
        """
        manifest = Manifest.load(path)
        if manifest is None:
            raise InputError(f"{os.fspath(path)} was not written by hf_dense.")
        counts = manifest.facts.get("counts", manifest.facts)
        figures = {name: value for name, value in counts.items() if isinstance(value, int | float)}
        return cls(Path(path), manifest.kind, figures)

    def __fspath__(self) -> str:
        return as_typed(self.path)

    def __str__(self) -> str:
        return as_typed(self.path)

    def __repr__(self) -> str:
        figures = ", ".join(f"{name}: {_shown(value)}" for name, value in self.figures.items())
        return f"<{self.kind} in {self}{'; ' if figures else ''}{figures}>"

    def _repr_html_(self) -> str:
        rows = [(name, _shown(value)) for name, value in self.figures.items()]
        return f"{caption(self.kind, self)}{html_table((), rows)}"


@dataclass(frozen=True, repr=False)
class Training(Result):
    """A training that is complete.

    Args:
        history: what was logged, an entry for each time.
        models: directories, where there are several stages, by the stages' names.
        measured: tables of what was measured, as Markdown.
    """

    history: Sequence[Mapping[str, Any]] = ()
    models: Mapping[str, Path] | None = None
    measured: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.models is not None:
            object.__setattr__(self, "models", {name: path.absolute() for name, path in self.models.items()})

    def _repr_html_(self) -> str:
        return super()._repr_html_() + (f"<pre>{escape(self.measured)}</pre>" if self.measured else "")


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """What was measured in a directory.

    Args:
        figures: by the names of model, task and metric.
        table: the same, with the differences and their intervals, as Markdown.
    """

    table: str = ""

    def __repr__(self) -> str:
        return f"<{self.kind} in {self}>\n{self.table}"

    def _repr_html_(self) -> str:
        return f"{caption(self.kind, self)}<pre>{escape(self.table)}</pre>"


def caption(kind: str, path: object) -> str:
    """A line that says what is where, as HTML."""
    return f"<p>{escape(kind)} in <code>{escape(str(path))}</code></p>"


def html_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as HTML, whatever is in its cells.

    >>> html_table(["a"], [["<b>"]])
    '<table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    lines = [_row("th", head)] if head else []
    return f"<table>{''.join([*lines, *(_row('td', row) for row in rows)])}</table>"


def _row(tag: str, cells: Sequence[Any]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
