"""Find the source files of the standard library and of installed packages, and read their docstrings.

Files are parsed with `ast`, never imported. Left out, because their text is not documentation of the package:

- tests (`test`, `tests`, `test_*.py`, `*_test.py`, `conftest.py`),
- vendored copies of other projects (`_vendor`, `externals`, ...): their text belongs to that other package,
- in the standard library also its applications and installers (`idlelib`, `ensurepip`, ...),
- private classes and functions (`_name`) and what is inside them, and functions inside functions: no user calls
  them. Private *modules* are read, since many packages define their public names there (`numpy.linalg._linalg`).
"""

from __future__ import annotations

import ast
import gc
import hashlib
import os
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path, PurePosixPath
from typing import Final

from tqdm.auto import tqdm

from hf_dense.data.python_docs.prose import Prose, read_prose
from hf_dense.errors import InputError

STANDARD_LIBRARY: Final = "python"
DEFAULT_PACKAGES: Final = (
    STANDARD_LIBRARY,
    "accelerate",
    "bm25s",
    "datasets",
    "fsspec",
    "huggingface-hub",
    "jinja2",
    "joblib",
    "matplotlib",
    "mteb",
    "networkx",
    "numpy",
    "packaging",
    "pandas",
    "pillow",
    "polars",
    "pyarrow",
    "pydantic",
    "requests",
    "rich",
    "safetensors",
    "scikit-learn",
    "scipy",
    "sentence-transformers",
    "sympy",
    "tokenizers",
    "torch",
    "tqdm",
    "transformers",
)

_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "_external", "_testing", "_vendor", "extern", "externals", "test", "tests", "third_party"}
    | {"vendor", "vendored"}
)
_SKIPPED_STANDARD = frozenset(
    {"dist-packages", "ensurepip", "idlelib", "lib-dynload", "lib2to3", "pydoc_data", "site-packages", "turtledemo"}
)
_TEST_FILE = re.compile(r"(?:test_.*|.*_test|conftest)\.py$")
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourceFile:
    """One source file: dotted `module` name and where it lies on this machine."""

    module: str
    path: Path


@dataclass(frozen=True)
class Document:
    """One docstring: dotted qualified `name`, the `module` that defines it, and its prose."""

    name: str
    module: str
    prose: Prose


@dataclass(frozen=True)
class Reading:
    """What was read: documents in order of module and definition, and how many files did not parse."""

    documents: tuple[Document, ...]
    files: int
    unreadable_files: int


def find_sources(packages: Iterable[str] | None = None) -> tuple[list[SourceFile], dict[str, str]]:
    """List the source files of `packages` (distribution names; "python" is the standard library).

    Args:
        packages: None takes those of `DEFAULT_PACKAGES` that are installed.

    Returns:
        The sources sorted by module name, and the version of each package read.

    Raises:
        InputError: a package that was asked for is not installed.
    """
    sources: dict[str, SourceFile] = {}
    versions: dict[str, str] = {}
    for package in sorted(set(DEFAULT_PACKAGES if packages is None else packages)):
        if package == STANDARD_LIBRARY:
            found, versions[package] = _standard_library(), platform.python_version()
        else:
            try:
                distribution = metadata.distribution(package)
            except metadata.PackageNotFoundError:
                if packages is None:
                    continue
                raise InputError(
                    f"package {package!r} is not installed; install it or leave it out of the packages"
                ) from None
            found, versions[package] = _distribution(distribution), distribution.version
        for source in found:
            sources.setdefault(source.module, source)
    return sorted(sources.values(), key=lambda source: source.module), versions


def fingerprint_sources(sources: Iterable[SourceFile]) -> str:
    """Of the modules' names and the bytes of their files; of one that cannot be read of its name alone."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"\0{source.module}\0".encode())
        with suppress(OSError):
            digest.update(hashlib.sha256(source.path.read_bytes()).digest())
    return digest.hexdigest()


def read_documents(sources: Iterable[SourceFile], processes: int = 1, progress: bool = False) -> Reading:
    """Read every docstring of `sources`; files that do not decode or parse are skipped and counted.

    With more than one of `processes` the calling script needs the usual `if __name__ == "__main__"`; the result
    is the same.
    """
    listed = list(sources)
    documents: list[Document] = []
    unreadable = 0
    with ExitStack() as stack:
        found: Iterable[list[Document] | None] = map(_read_source, listed)
        if processes > 1:
            pool = stack.enter_context(ProcessPoolExecutor(processes, mp_context=get_context("spawn")))
            found = pool.map(_read_source, listed, chunksize=16)
        for some in tqdm(found, total=len(listed), desc="Reading docstrings", unit="file", disable=not progress):
            unreadable += some is None
            documents += some or []
    return Reading(tuple(documents), len(listed), unreadable)


def _read_source(source: SourceFile) -> list[Document] | None:
    """Documents of one file, None if it cannot be read."""
    try:
        return read_module(source.path.read_bytes(), source.module)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def read_module(code: bytes, module: str) -> list[Document]:
    """Docstrings of the module and of its public classes, functions and methods, in order of definition.

    Raises:
        SyntaxError, ValueError: `code` does not decode or parse.
    """
    return [Document(name, module, read_prose(docstring)) for name, docstring in read_docstrings(code, module)]


def read_docstrings(code: bytes, module: str) -> list[tuple[str, str]]:
    """What `read_module` makes documents of: dotted names, and docstrings as they stand in the code.

    Raises:
        SyntaxError, ValueError: `code` does not decode or parse.
    """
    tree = _parse(code)
    found = []
    for name, node in [(module, tree), *_public_definitions(tree.body, module)]:
        docstring = ast.get_docstring(node, clean=False)
        if docstring and docstring.strip():
            found.append((name, docstring))
    return found


def _parse(code: bytes) -> ast.Module:
    collecting = gc.isenabled()
    gc.disable()  # a syntax tree is a burst of objects without garbage: collecting meanwhile doubles the time
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the code of others: invalid escapes and the like
            return ast.parse(code)
    finally:
        if collecting:
            gc.enable()


def _public_definitions(body: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[str, _Definition]]:
    for node in body:
        if isinstance(node, _Definition):
            if node.name.startswith("_") and not node.name.endswith("__"):
                continue
            name = f"{prefix}.{node.name}"
            yield name, node
            if isinstance(node, ast.ClassDef):
                yield from _public_definitions(node.body, name)
        elif isinstance(node, ast.If | ast.Try):
            alternatives = [handler.body for handler in node.handlers] if isinstance(node, ast.Try) else []
            for block in [node.body, *alternatives, node.orelse]:
                yield from _public_definitions(block, prefix)


def _standard_library() -> Iterator[SourceFile]:
    root = Path(sysconfig.get_path("stdlib"))
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in _SKIPPED_STANDARD | _SKIPPED_FOLDERS]
        yield from _sources(((Path(folder, name).relative_to(root).as_posix()), Path(folder, name)) for name in files)


def _distribution(distribution: metadata.Distribution) -> Iterator[SourceFile]:
    files = distribution.files or []
    return _sources((file.as_posix(), Path(str(distribution.locate_file(file)))) for file in files)


def _sources(files: Iterable[tuple[str, Path]]) -> Iterator[SourceFile]:
    """Those of the (path relative to the import root, path) pairs that are modules worth reading."""
    for relative, path in files:
        pure = PurePosixPath(relative)
        if pure.suffix != ".py" or _TEST_FILE.match(pure.name) or not _SKIPPED_FOLDERS.isdisjoint(pure.parts):
            continue
        parts = pure.with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts and all(part.isidentifier() for part in parts):
            yield SourceFile(".".join(parts), path)
