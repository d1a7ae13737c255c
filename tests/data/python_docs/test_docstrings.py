from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from hf_dense.data.python_docs.docstrings import SourceFile, find_sources, read_documents, read_module
from hf_dense.errors import InputError

MODULE = b'''"""About the module."""

def f():
    """About f."""
    def inner():
        """Never read."""

def _private():
    """Never read."""

class C:
    """About C."""
    async def method(self):
        """About the method."""
    def __call__(self):
        """About calling."""
    def undocumented(self):
        pass

class _Private:
    """Never read."""
    def method(self):
        """Never read."""

try:
    import fast
except ImportError:
    def fallback():
        """About the fallback."""
if fast:
    def g():
        """About g, first."""
else:
    def g():
        """About g, second."""
'''


def install(root: Path, name: str, files: dict[str, bytes], version: str = "1.0") -> None:
    """Write a distribution as an installer would: its files, its metadata and its record."""
    info = root / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for path, code in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(code)
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))


def test_public_definitions_are_read_in_order() -> None:
    documents = read_module(MODULE, "pack.mod")
    assert [document.name for document in documents] == [
        "pack.mod",
        "pack.mod.f",
        "pack.mod.C",
        "pack.mod.C.method",
        "pack.mod.C.__call__",
        "pack.mod.fallback",
        "pack.mod.g",
        "pack.mod.g",
    ]
    assert {document.module for document in documents} == {"pack.mod"}
    assert documents[1].prose.summary == "About f."


def test_source_encoding_is_honoured() -> None:
    code = '# -*- coding: latin-1 -*-\n"""Caf\u00e9 au lait."""\n'.encode("latin-1")
    assert read_module(code, "m")[0].prose.summary == "Caf\u00e9 au lait."


def test_broken_files_are_skipped_and_counted(tmp_path: Path) -> None:
    broken = {
        "syntax.py": b"def f(:\n",
        "encoding.py": b'"""caf\xe9"""\n',
        "codec.py": b'# coding: no-such-codec\n"""x"""\n',
        "null.py": b'"""a\x00b"""\n',
        "good.py": b'"""Fine text."""\n',
    }
    for name, code in broken.items():
        (tmp_path / name).write_bytes(code)
    sources = [SourceFile(name[:-3], tmp_path / name) for name in [*broken, "absent.py"]]
    reading = read_documents(sources)
    assert [document.name for document in reading.documents] == ["good"]
    assert (reading.files, reading.unreadable_files) == (6, 5)


def test_processes_do_not_change_the_result(tmp_path: Path) -> None:
    sources = []
    for number in range(40):
        path = tmp_path / f"m{number}.py"
        path.write_bytes(b"(" if number == 7 else b'"""Module %d of many."""\n' % number)
        sources.append(SourceFile(f"m{number}", path))
    assert read_documents(sources, processes=2) == read_documents(sources)


def test_tests_vendored_copies_and_odd_names_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ["pack/__init__.py", "pack/_private.py", "pack/sub/mod.py", "single.py"]
    left_out = [
        "pack/tests/test_mod.py",
        "pack/test/helpers.py",
        "pack/test_mod.py",
        "pack/mod_test.py",
        "pack/conftest.py",
        "pack/_vendor/other.py",
        "pack/externals/other.py",
        "pack/bad-name.py",
        "pack/data.txt",
        "../../bin/tool.py",
    ]
    install(tmp_path / "a" / "b", "pack", dict.fromkeys([*kept, *left_out], b'"""Text."""\n'))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a" / "b"), *sys.path])
    sources, versions = find_sources(["pack"])
    assert [source.module for source in sources] == ["pack", "pack._private", "pack.sub.mod", "single"]
    assert versions == {"pack": "1.0"}


def test_standard_library_is_found_without_its_tests() -> None:
    sources, versions = find_sources(["python"])
    modules = [source.module for source in sources]
    assert modules == sorted(modules)
    assert {"json", "json.decoder", "asyncio.tasks", "textwrap"} <= set(modules)
    assert not [name for name in modules if name.split(".")[0] in ("test", "idlelib", "numpy")]
    assert versions == {"python": sys.version.split()[0]}


def test_default_packages_take_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", distribution)
    assert set(find_sources()[1]) == {"python"}


def test_asking_for_an_absent_package_is_an_error() -> None:
    with pytest.raises(InputError, match=r"package 'no-such-package' is not installed"):
        find_sources(["no-such-package"])
