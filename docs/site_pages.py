"""Hooks of mkdocs: what the site has beside the pages of docs/.

The README and the changelog are pages, what `hf_dense` exports has a reference, and links to other files of the
repository lead to copies of them. A link to what is not there stays as it is, and mkdocs refuses it.
"""

from __future__ import annotations

import inspect
import os
import re
from functools import partial
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import hf_dense
from hf_dense.methods import KINDS, METHODS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {"index.md": ROOT / "README.md", "changelog.md": ROOT / "CHANGELOG.md"}  # pages of the site that are files
REFERENCE = "reference.md"
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?!https?:|#)(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_SHOWN = {".html", ".json", ".png"}  # by browsers, as they are


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are no files of docs/."""
    for name, file in PAGES.items():
        files.append(File.generated(config, name, abs_src_path=str(file)))
    files.append(File.generated(config, REFERENCE, content=reference()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to pages of the site, or to copies of the repository's files."""
    place = PAGES.get(page.file.src_uri, DOCS / page.file.src_uri)
    return _LINK.sub(partial(_lead, place.parent, page.file.src_uri, config, files), markdown)


def _lead(folder: Path, page: str, config: MkDocsConfig, files: Files, link: re.Match[str]) -> str:
    """A link on a page, which was written in a folder, as the site needs it."""
    text, target, anchor = link["text"], Path(os.path.normpath(folder / link["target"])), link["anchor"] or ""
    if target.is_dir():
        return text
    if target in PAGES.values():
        name = next(name for name, file in PAGES.items() if file == target)
    elif target.is_relative_to(DOCS) and target.suffix != ".py":
        name = target.relative_to(DOCS).as_posix()
    elif target.is_file():
        name = f"repository/{target.relative_to(ROOT).as_posix()}"
        name += "" if target.suffix in _SHOWN else ".txt"
        if name not in files.src_uris:
            copy = File(name, None, config.site_dir, True)
            copy.abs_src_path = str(target)
            files.append(copy)
    else:
        return link[0]
    return f"[{text}]({os.path.relpath(name, Path(page).parent)}{anchor})"


def reference() -> str:
    """A page with all that `hf_dense` exports, by its docstring; of the classes of the methods, which are made from
    their declarations, the names."""
    of_methods = {method.prefix + kind for method in METHODS.values() for kind in KINDS}
    values = [getattr(hf_dense, name) for name in hf_dense.__all__ if name not in of_methods]
    parts = {"Functions": filter(inspect.isfunction, values), "Classes": filter(inspect.isclass, values)}
    shown = [
        f"## {title}\n\n" + "\n\n".join(f"::: {value.__module__}.{value.__name__}" for value in found)
        for title, found in parts.items()
    ]
    rows = [
        " | ".join(f"`{cell}`" for cell in (name, *(method.prefix + kind for kind in KINDS)))
        for name, method in METHODS.items()
    ]
    table = "\n".join(["method | configuration | encoder | with decoders and losses", "---|---|---|---", *rows])
    return "\n\n".join(["# Reference", "What `from hf_dense import ...` gives.", *shown, "## Methods", table])
