"""Cards of outputs that are neither models nor data sets: evaluations, reports, sweeps, indexes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final

from huggingface_hub import DatasetCard, DatasetCardData

from hf_dense.hub.cards import settings_as_yaml
from hf_dense.storage.manifest import MANIFEST, Manifest
from hf_dense.storage.markdown import markdown_table

WITH_PARTS: Final = "evaluations"  # the kind of output whose parts, outputs too, are published with it
_TABLES: Final = ("results.md", "report.md", "sweep.md")  # that an output may hold, for people
_RESULT: Final = "result.json"  # of one evaluation
_ANALYSIS: Final = "analysis of "  # the kind of output begins so, and its file of figures is called as the rest

_CARD: Final = """---
{metadata}
---

# {name}

What hf_dense wrote ({kind}), made from {sources} by

```bash
{commands}
```

{table}
{use}
{whose} says what it was made from, by content, with which settings, and when.
"""

_INDEX: Final = "index"  # the kind of output that is searched
_INDEX_USE: Final = """
It holds the texts of {passages:,} passages beside their vectors, and is searched with the model that made it (MODEL:
`{model}`, or where that is published):

```bash
hf download {name} --repo-type dataset{revision} --local-dir index
hf-dense search MODEL "your question" --index index
```
"""


def render_output_card(name: str, manifest: Manifest, place: Path, revision: str | None = None) -> str:
    """The text of a card.

    Args:
        name: on the Hub.
        manifest: of the output.
        place: its directory; a table in it is shown, else its settings, below the figures of an evaluation or analysis.
        revision: a branch of the Hub.
    """
    table = next((place / file for file in _TABLES if file in manifest.files), None)
    settings = [*_figures(manifest, place), f"```yaml\n{settings_as_yaml(manifest)}\n```"]
    data = DatasetCardData(
        license=manifest.licence,
        pretty_name=PurePath(name).name,
        tags=["hf_dense", "dense-retrieval"],
        viewer=False,  # its files are no rows
    )
    parts = [Manifest.load(file.parent) for file in sorted(place.glob(f"*/*/{MANIFEST}"))]
    made = [part for part in parts if part is not None and manifest.kind == WITH_PARTS]
    sources = dict.fromkeys(
        f"`{source}` ({what})" for each in made or [manifest] for what, source in each.sources.items()
    )
    commands = dict.fromkeys(each.command for each in made or [manifest] if each.command)
    content = _CARD.format(
        metadata=data.to_yaml(),
        name=PurePath(name).name,
        kind=manifest.kind,
        sources=", ".join(sources) or "what the command names",
        commands="\n".join(commands) or "# not recorded",
        use=_use(name, manifest, revision),
        whose=f"Each part's `{MANIFEST}`" if made else f"`{MANIFEST}`",
        table=table.read_text(encoding="utf-8").strip() if table else "\n\n".join(settings),
    )
    return str(DatasetCard(content))


def _use(name: str, manifest: Manifest, revision: str | None) -> str:
    """How an index is searched; what else there is is read, or used as its verbs say."""
    if manifest.kind != _INDEX:
        return ""
    branch = f" --revision {revision}" if revision else ""
    return _INDEX_USE.format(
        name=name, passages=manifest.facts["passages"], model=manifest.sources["model"], revision=branch
    )


def _figures(manifest: Manifest, place: Path) -> list[str]:
    """The table of what one evaluation or analysis found; of anything else there is none."""
    if _RESULT in manifest.files:
        found = json.loads((place / _RESULT).read_text(encoding="utf-8"))
        cells = [[metric, f"{value:.4f}"] for metric, value in found["metrics"].items()]
        return [markdown_table(["", found["name"]], cells, numbers={1})]
    if manifest.kind.startswith(_ANALYSIS):
        file = place / f"{manifest.kind.removeprefix(_ANALYSIS)}.json"
        return [_table(json.loads(file.read_text(encoding="utf-8"))["rows"])]
    return []


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of the same columns; what is no text is a number."""
    head = list(rows[0]) if rows else []
    numbers = {column for column, name in enumerate(head) if not isinstance(rows[0][name], str)}
    cells = [[value if isinstance(value, str) else _number(value) for value in row.values()] for row in rows]
    return markdown_table([name.replace("_", " ") for name in head], cells, numbers)


def _number(value: float) -> str:
    """With four digits behind the point, where it is not whole.

    >>> _number(10000.0), _number(0.25)
    ('10,000', '0.2500')
    """
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4f}"
