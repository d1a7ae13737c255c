"""Cards of published datasets."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from huggingface_hub import DatasetCard, DatasetCardData

from hf_dense.storage.files import write_text
from hf_dense.storage.staged import Staged

Configurations = Mapping[str, str | Mapping[str, str]]  # the files of each, or of each of its splits

_SIZES: Final = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")

_CARD: Final = """---
{data}
---

# {title}

{about}

Built from {sources} by

```
{command}
```

## Columns

{columns}

## Counts

| | |
|---|---|
{counts}

## Licence

{licence}
"""


def size_category(rows: int) -> str:
    """The Hub's name for a number of rows.

    >>> size_category(999), size_category(25_000)
    ('n<1K', '10K<n<100K')
    """
    power = max(len(str(rows)) - 3, 0)
    return f"{_SIZES[power - 1]}<n<{_SIZES[power]}" if power else f"n<{_SIZES[0]}"


def configuration(folder: Path, name: str, splits: Mapping[str, str]) -> dict[str, Any]:
    """A configuration of a dataset as its card names it; `splits` are the patterns of their files.

    `datasets` caches a local directory by name and version alone, so other content is another version.
    """
    files = [{"split": split, "path": path} for split, path in splits.items()]
    return {"config_name": name, "data_files": files, "version": f"1.0.{_content(folder, splits.values())}"}


def _content(folder: Path, patterns: Iterable[str]) -> int:
    """A number that changes with the files of some patterns."""
    value = 0
    for file in (file for pattern in patterns for file in sorted(folder.glob(pattern))):
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                value = zlib.crc32(block, value)
    return value


def write_card(
    work: Staged, *, title: str, about: str, columns: Mapping[str, str], rows: int, configs: Configurations
) -> None:
    """Write a dataset's `README.md`; sources, command and licence are those of its manifest.

    Args:
        work: the dataset, complete but for its card; its facts have `counts` of what was read, kept and left out.
        about: what a row is and how it came to be, in a few sentences.
        columns: what each holds.
        rows: number of rows, for the Hub's size category.
        configs: the files of each configuration, which is its one split too, or of each of its splits.
    """
    manifest = work.manifest
    data = DatasetCardData(
        license=manifest.licence,
        pretty_name=title,
        size_categories=size_category(rows),
        task_categories=["text-retrieval"],
        tags=["hf_dense", "dense-retrieval"],
        configs=[
            configuration(work.result, name, {name: files} if isinstance(files, str) else files)
            for name, files in configs.items()
        ],
    )
    content = _CARD.format(
        data=data.to_yaml(),
        title=title,
        about=about,
        sources=", ".join(f"`{name}` ({what})" for what, name in manifest.sources.items()),
        command=manifest.command or "hf_dense",
        columns="\n".join(f"- `{name}`: {what}" for name, what in columns.items()),
        counts="\n".join(f"| {name} | {number:,} |" for name, number in work.facts["counts"].items()),
        licence="That of the source." if manifest.licence == "other" else manifest.licence,
    )
    write_text(work.result / "README.md", str(DatasetCard(content)))
