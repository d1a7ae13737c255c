"""Cards of outputs that are neither models nor data sets: evaluations, reports, sweeps, indexes."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Final

from huggingface_hub import DatasetCard, DatasetCardData

from hf_dense.hub.cards import settings_as_yaml
from hf_dense.storage.manifest import MANIFEST, Manifest

WITH_PARTS: Final = "evaluations"  # the kind of output whose parts, outputs too, are published with it
_TABLES: Final = ("results.md", "report.md", "sweep.md")  # that an output may hold, for people

_CARD: Final = """---
{metadata}
---

# {name}

What hf_dense wrote ({kind}), made from {sources} by

```bash
{commands}
```

{table}

{whose} says what it was made from, by content, with which settings, and when.
"""


def render_output_card(name: str, manifest: Manifest, place: Path) -> str:
    """The text of a card.

    Args:
        name: on the Hub.
        manifest: of the output.
        place: its directory; a table in it is shown.
    """
    table = next((place / file for file in _TABLES if file in manifest.files), None)
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
        whose=f"Each part's `{MANIFEST}`" if made else f"`{MANIFEST}`",
        table=table.read_text(encoding="utf-8").strip() if table else f"```yaml\n{settings_as_yaml(manifest)}\n```",
    )
    return str(DatasetCard(content))
