"""What a release holds, and that the main job runs where nothing but its wheel is installed.

Beside the wheel stands what this environment has, or, where `DEPENDENCIES` is `lowest` or `newest`, what the package
index has: of each package that the wheel names its lowest version or the newest, and torch as constraints.txt has it.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import site
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from packaging.requirements import Requirement
from safetensors import safe_open
from tiny_retriever import BACKBONE, random_words

from hf_dense import __version__

ROOT = Path(__file__).parents[2]
NAME = f"hf_dense-{__version__}"
BESIDE = {  # what a source distribution holds beside the package
    *("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"),
    *("MANIFEST.in", "PKG-INFO", "pyproject.toml", "setup.cfg"),
}
SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
FEW = ["--max_steps", "4", "--per_device_train_batch_size", "8", "--use_cpu", "true", "--disable_tqdm", "true"]
PRETRAINING = [
    "--backbone_config",
    json.dumps(BACKBONE),
    "--vocab_size",
    "300",
    "--max_length",
    "32",
    "--held_out",
    "0.1",
]

DEPENDENCIES = os.environ.get("DEPENDENCIES")

Installed = Callable[..., str]


def tracked(*folder: str) -> set[str]:
    """Paths of the files that git knows, of all or of a folder, as far as they are there."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--", *folder]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


def checked(command: list[str], directory: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout[-2000:] + done.stderr[-4000:])
    return done.stdout


def test_the_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert re.search(rf"^## {re.escape(__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert "\nversion = " not in (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[tool.")[0]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of what git knows: a `build/` of somebody's is not part of it."""
    place = tmp_path_factory.mktemp("sources")
    for name in tracked():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    out = tmp_path_factory.mktemp("dist")
    checked([sys.executable, "-c", SDIST, str(out)], place)
    return out / f"{NAME}.tar.gz"


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """The wheel that is built of the source distribution, without any index."""
    flags = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(sdist.parent)]
    checked([sys.executable, "-m", "pip", "wheel", *flags, str(sdist)])
    return sdist.parent / f"{NAME}-py3-none-any.whl"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Run a program of an environment that has the wheel and what it depends on, but not this checkout.

    The environment lies in the repository of another project, as it does where people work, and programs run in the
    empty folder `work` of that.
    """
    project = tmp_path_factory.mktemp("project")
    (project / "work").mkdir()
    (project / "notes.txt").write_text("not about hf_dense\n")
    git = ["git", "-C", str(project), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "--quiet"], ["add", "notes.txt"], ["commit", "--quiet", "-m", "first"]):
        checked([*git, *command])
    place = project / ".venv"
    venv.create(place, symlinks=os.name != "nt", with_pip=False)
    programs = place / ("Scripts" if os.name == "nt" else "bin")
    python = str(programs / "python")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment["PYTHONNOUSERSITE"] = "1"
    packages = Path(checked([python, "-c", "import site; print(site.getsitepackages()[0])"], None, environment).strip())
    if DEPENDENCIES:
        (project / "constraints.txt").write_text(constraints(wheel))
        flags = ["--constraint", str(project / "constraints.txt")]
    else:
        (packages / "dependencies.pth").write_text("".join(f"{folder}\n" for folder in site.getsitepackages()))
        flags = ["--no-deps", "--no-index", "--ignore-installed"]
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *flags, f"{wheel}[documents]"]
    checked(command, None, environment)

    def run(program: str, *arguments: str) -> str:
        return checked([str(programs / program), *arguments], project / "work", environment)

    imported = run("python", "-c", "import hf_dense; print(hf_dense.__file__)").strip()
    assert Path(imported) == packages / "hf_dense" / "__init__.py", "not the checkout's, nor what is installed outside"
    return run


def constraints(wheel: Path) -> str:
    """What of the index is installed beside the wheel, as pip reads it."""
    needed = [Requirement(line) for line in metadata_of(wheel).get_all("Requires-Dist", [])]
    beside = [one for one in needed if one.marker is None or one.marker.evaluate({"extra": "documents"})]
    lowest = [f"{one.name}=={bound.version}" for one in beside for bound in one.specifier]
    [torch] = re.findall(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return "\n".join({"lowest": lowest, "newest": [torch]}[str(DEPENDENCIES)])


def metadata_of(wheel: Path) -> Message:
    """What a wheel says of itself."""
    with ZipFile(wheel) as archive:
        return HeaderParser().parsestr(archive.read(f"{NAME}.dist-info/METADATA").decode())


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, installed: Installed) -> Path:
    """The folder that programs run in."""
    return Path(installed("python", "-c", "import os; print(os.getcwd())").strip())


@pytest.mark.slow
def test_a_wheel_holds_the_package_whole_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = metadata_of(wheel)
    of_the_package = {name for name in names if not name.startswith(f"{NAME}.dist-info/")}
    assert of_the_package == tracked("hf_dense")
    assert {"hf_dense/py.typed", "hf_dense/recipes/demo.yaml", "hf_dense/evaluation/published.json"} <= of_the_package
    assert f"{NAME}.dist-info/licenses/LICENSE" in names
    assert (metadata["Version"], metadata["License-Expression"]) == (__version__, "Apache-2.0")


@pytest.mark.slow
def test_a_source_distribution_holds_what_a_wheel_is_made_of(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {file.name.removeprefix(f"{NAME}/") for file in archive if file.isfile()}
    assert {name for name in names if not name.startswith("hf_dense.egg-info/")} == tracked("hf_dense") | BESIDE


def write_documents(folder: Path) -> None:
    """Sixty pages with headings, of random words, which is what can be written anywhere."""
    folder.mkdir()
    words, draw = random_words(600), random.Random(0)

    def prose() -> str:
        return " ".join(" ".join(draw.choices(words, k=9)).capitalize() + "." for _ in range(5))

    for page in range(60):
        title, heading = (" ".join(draw.sample(words, 3)) for _ in range(2))
        (folder / f"{page}.md").write_text(f"# {title}\n\n{prose()}\n\n## {heading}\n\n{prose()}\n")


@pytest.mark.slow
def test_documents_become_a_measured_retriever_where_the_wheel_is_installed(installed: Installed, work: Path) -> None:
    assert installed("hf-dense", "--version").strip() == f"hf-dense {__version__}"
    assert "pretrain" in installed("hf-dense", "--help")
    listed = installed("hf-dense", "recipes")
    for recipe in (ROOT / "hf_dense" / "recipes").glob("*.yaml"):
        assert re.search(rf"^  {recipe.stem} ", listed, re.MULTILINE)
    write_documents(work / "my_documents")
    installed("hf-dense", "data", "passages", "my_documents/", "--out", "build/corpus", "--length", "48")
    installed("hf-dense", "data", "queries", "build/corpus", "--from", "headings", "--out", "build/queries")
    recipes = ["--config", "retromae", "--config", "demo"]
    places = ["--corpus", "build/queries", "--out", "build/pretrained"]
    installed("hf-dense", "pretrain", *recipes, *places, *PRETRAINING, *FEW)
    places = ["--collection", "build/queries", "--out", "build/tuned"]
    installed("hf-dense", "finetune", "--model", "build/pretrained", *places, *FEW)
    models = ["bm25", "tuned=build/tuned/model"]
    table = installed("hf-dense", "evaluate", *models, "--tasks", "build/queries:test", "--out", "build/evaluation")
    assert "| bm25 |" in table
    assert "| tuned |" in table
    question = (work / "my_documents" / "7.md").read_text().splitlines()[0].removeprefix("# ")
    found = installed("hf-dense", "search", "build/tuned/model", question, "--corpus", "build/corpus")
    assert len(re.findall(r"^ *\d\. -?\d+\.\d{3} ", found, re.MULTILINE)) == 5

    with safe_open(work / "build" / "pretrained" / "model.safetensors", "pt") as weights:
        assert any(name.startswith("decoders.") for name in weights.keys())  # noqa: SIM118 - it is no mapping
    there = {file.name for file in (work / "build" / "pretrained").iterdir()}
    assert {"README.md", "modeling_retromae.py", "modeling_bottleneck.py"} <= there, "card and code travel with it"
    run = json.loads((work / "build" / "tuned" / "model" / "hf_dense.json").read_text())["run"]
    assert run["commit"] is None, "the repository around an environment is not ours"
