"""Every verb that writes, in every place that it must not take: what is foreign is there afterwards."""

from __future__ import annotations

import json
import random
import runpy
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from json_lines import write_lines
from manifests import manifest_of
from tiny_retriever import (
    random_words,
    write_cross_encoder,
    write_dataset,
    write_encoder,
    write_hybrid,
    write_retriever,
    write_writer,
)

from hf_dense.commands.main import main
from hf_dense.experiments.adaptation import run
from hf_dense.experiments.adaptation.learning import Learning
from hf_dense.experiments.adaptation.plan import Plan
from hf_dense.storage.manifest import MANIFEST, Manifest

ROOT = Path(__file__).parents[2]
FEW = ("--max_steps", "2", "--per_device_train_batch_size", "4", "--use_cpu", "true", "--report_to", "none")


@dataclass(frozen=True)
class Verb:
    """A command that writes.

    Args:
        words: before `--out`, with {name} for an input (`write_inputs`).
        read: the input that it reads.
        script: of the repository, in place of `hf-dense`.
        folder: whether its directory is worked in again, so that it may hold other things beside what is ours.
        out: the option that names the directory.
    """

    words: str
    read: str
    script: str = ""
    folder: bool = False
    out: str = "--out"

    def run(self, inputs: Path, out: str | Path, *more: str) -> int:
        """Its exit code, or 1 for a stack trace."""
        names = {path.name: str(path) for path in inputs.iterdir()}
        words = [word.format(**names) for word in self.words.split()] + [self.out, str(out), *more]
        try:
            if self.script:
                run_script(ROOT / self.script, words)
            else:
                main(words)
        except SystemExit as end:
            return int(end.code or 0)
        return 0


def run_script(script: Path, words: list[str]) -> None:
    before = sys.argv
    sys.argv = [str(script), *words]
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = before


TRAINING = " ".join(FEW)
SLOW = ("adapt", "sweep", "export onnx", "finetune by stages", "merge by measuring")
VERBS = {
    "passages": Verb("data passages {documents} --length 20", "documents"),
    "contexts": Verb("data contexts {corpus} --processes 1", "corpus"),
    "keywords": Verb("data keywords {corpus} --tokenizer {encoder}", "corpus"),
    "negatives by BM25": Verb("data negatives {collection} --depth 4", "collection"),
    "negatives by a model": Verb("data negatives {collection} --depth 4 --model {retriever}", "collection"),
    "scores": Verb("data scores {collection} --lists {lists} --model {classifier} --depth 2", "lists"),
    "filter": Verb("data filter {collection} --within 60 --by bm25 {retriever}", "collection"),
    "generate": Verb("data generate {corpus} --model {writer} --candidates 1 --output_length 4", "corpus"),
    "queries": Verb(
        "data queries {corpus} --from sentences neighbours generated --model {writer} --template {{text}} "
        "--output_length 4",
        "corpus",
    ),
    "train-generator": Verb("data train-generator {collection} --base {writer} --max_steps 2", "collection"),
    "labels": Verb("data labels {pairs}/pairs.jsonl", "pairs"),
    "export": Verb("export {encoder} --max_length 32", "encoder"),
    "export encoder": Verb("export {encoder} --kind encoder", "encoder"),
    "export cross-encoder": Verb("export {classifier} --kind cross-encoder", "classifier"),
    "export hybrid": Verb("export {dupmae} --kind hybrid --max_length 22 --dense 4 --sparse 8", "dupmae"),
    "export onnx": Verb("export {retriever} --kind onnx", "retriever"),
    "pretrain": Verb(
        f"pretrain --method retromae --corpus {{collection}} --backbone {{encoder}} --max_length 16 {TRAINING}",
        "collection",
    ),
    "finetune": Verb(f"finetune --model {{retriever}} --collection {{collection}} {TRAINING}", "retriever"),
    "finetune by stages": Verb(
        "finetune --config {stages}/stages.yaml --model {retriever} --collection {collection} --measure_on test",
        "retriever",
        folder=True,
    ),
    "merge": Verb("merge {retriever} {tuned} --weight 0.5", "tuned"),
    "merge by measuring": Verb(
        "merge {retriever} {tuned} --collection {collection} --keep {kept}:test --weights 0.5", "retriever"
    ),
    "train_reranker": Verb(
        f"--base {{classifier}} --collection {{collection}} --lists {{lists}} --max_length 32 --passages 2 {TRAINING}",
        "classifier",
        script="examples/train_reranker.py",
    ),
    "evaluate": Verb("evaluate bm25 mine={retriever} --tasks {collection}", "retriever", folder=True),
    "glue": Verb("glue {encoder} --tasks cola --data_dir {glue} --max_length 16", "encoder", folder=True),
    "report": Verb("report mine={evaluation}/mine/collection-test --collection {collection}", "evaluation"),
    "analyse": Verb("analyse lengths {retriever} {collection} --lengths 16 32 --pairs 5", "retriever"),
    "search": Verb("search {retriever} question --corpus {collection}", "retriever", out="--index"),
    "sweep": Verb(
        "sweep --config {stages}/sweep.yaml --model {encoder} --collection {collection}", "encoder", folder=True
    ),
    "adapt": Verb("adapt {collection} --base {retriever} --keep none --length 16", "retriever"),
    "python_docs": Verb("--packages filelock --length 20 --processes 1", "", script="dataset_scripts/python_docs.py"),
}  # fmt: skip


def write_inputs(root: Path, seed: int) -> Path:
    """All that the verbs read; those of another seed are others."""
    generator, words = random.Random(seed), random_words(200, seed)
    (root / "documents").mkdir(parents=True)
    for name in "abcd":
        sentences = [" ".join(generator.choices(words, k=9)).capitalize() + "." for _ in range(20)]
        (root / "documents" / f"{name}.md").write_text(f"# {name}\n\n{' '.join(sentences)}\n")
    write_dataset(root / "collection", passages=60 + seed)
    (root / "collection" / "qrels" / "dev.tsv").write_bytes((root / "collection" / "qrels" / "test.tsv").read_bytes())
    write_dataset(root / "kept", passages=50 + seed)
    write_retriever(root / "retriever", seed)
    write_retriever(root / "tuned", seed + 2)
    write_encoder(root / "encoder", seed)
    write_hybrid(root / "hybrid", 4, 8, seed)
    shutil.move(root / "hybrid" / "dupmae", root / "dupmae")
    write_cross_encoder(root / "classifier", seed)
    write_writer(root / "writer", seed)
    (root / "pairs").mkdir()
    rows = [{"query": words[at], "positive": " ".join(words[at : at + 8])} for at in range(10)]
    write_lines(root / "pairs" / "pairs.jsonl", rows)
    (root / "glue" / "cola").mkdir(parents=True)
    for split in ("train", "validation"):
        rows = [{"sentence": words[at], "label": at % 2, "idx": at} for at in range(8)]
        write_lines(root / "glue" / "cola" / f"{split}.jsonl", rows)
    few = {"max_steps": 2, "per_device_train_batch_size": 4, "use_cpu": True, "report_to": "none"}
    (root / "stages").mkdir()
    stages = {"max_length": 32, "bm25": {"depth": 4}, "retriever1": {**few, "passages": 2}}
    (root / "stages" / "stages.yaml").write_text(json.dumps(stages))
    sweep = {"sweep": "fraction", "values": [0.5, 1], "max_length": 16, "finetuning": few, "split": "test"}
    (root / "stages" / "sweep.yaml").write_text(json.dumps(sweep))
    for name, made in (("corpus", "passages"), ("lists", "negatives by BM25"), ("evaluation", "evaluate")):
        assert VERBS[made].run(root, root / name) == 0
    return root


@pytest.fixture(scope="module", autouse=True)
def short_plans() -> Iterator[None]:
    """An adaptation takes two steps of each training, whatever its budget."""
    plan = Plan(60, False, True, 2, {"retromae": 2}, 1.0, 0, {"encoding": 0.1}, 0, 0)
    learning = Learning(queries=4, negatives=1, texts=4, finetuning_rate=1e-3, pretraining_rate=1e-3, length=16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_make_plan", lambda *_: (plan, learning))
        yield


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("inputs") / "in", 0)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("others") / "in", 1)


@pytest.fixture(scope="module")
def made(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """What a verb writes, made once."""
    root = tmp_path_factory.mktemp("made")

    def make(name: str) -> Path:
        out = root / name.replace(" ", "-")
        if not out.exists():
            assert VERBS[name].run(inputs, out) == 0
        return out

    return make


def contents(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def write_thesis(directory: Path) -> Path:
    """A directory of somebody's, with files of the names by which outputs were known."""
    (directory / "chapters").mkdir(parents=True, exist_ok=True)
    for name in ("README.md", "config.json", "modules.json", "counts.json", "settings.json", "chapters/thesis.tex"):
        (directory / name).write_text("{}" if name.endswith("json") else "years of work")
    return directory


def check_refused(verb: Verb, inputs: Path, out: str | Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verb ends with one sentence, and nothing below `root` has changed, overwriting asked for or not."""
    before = contents(root)
    for more in ((), ("--overwrite",)):
        capsys.readouterr()
        words = more if not more or not verb.script or "reranker" not in verb.script else ("--overwrite", "true")
        assert verb.run(inputs, out, *words) == 2
        assert capsys.readouterr().err.strip().splitlines()[-1].startswith("error: ")
        assert contents(root) == before


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in VERBS])
def verb(request: pytest.FixtureRequest) -> Verb:
    return VERBS[request.param]


@pytest.fixture
def name(verb: Verb) -> str:
    return next(name for name, known in VERBS.items() if known is verb)


def test_a_foreign_folder(verb: Verb, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = write_thesis(tmp_path / "thesis")
    check_refused(verb, inputs, out, tmp_path, capsys)


def test_a_foreign_folder_that_is_called_like_unfinished_work(verb: Verb, inputs: Path, tmp_path: Path) -> None:
    write_thesis(tmp_path / "out.partial")
    before = contents(tmp_path / "out.partial")
    verb.run(inputs, tmp_path / "out")
    assert contents(tmp_path / "out.partial") == before


def test_its_own_input(verb: Verb, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not verb.read:
        pytest.skip("it reads no directory")
    copy = shutil.copytree(inputs, tmp_path / "in")
    check_refused(verb, copy, copy / verb.read, copy, capsys)


def test_what_holds_its_input(
    verb: Verb, name: str, inputs: Path, tmp_path: Path, made: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(inputs, tmp_path / "in")
    manifest = manifest_of(made(name))
    replace(manifest, state="running", made_from={}, files={}, claims=("*",)).save(
        copy
    )  # as if all that is there were ours
    if verb.read:
        check_refused(verb, copy, copy, copy, capsys)


def test_the_working_directory(
    verb: Verb,
    name: str,
    inputs: Path,
    tmp_path: Path,
    made: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(shutil.copytree(made(name), tmp_path / "out"))
    check_refused(verb, inputs, ".", tmp_path, capsys)
    check_refused(verb, inputs, tmp_path, tmp_path, capsys)


def test_another_kind_of_ours(verb: Verb, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "weights").write_text("days of training")
    Manifest("something else", "complete", files={"weights": 16}).save(tmp_path / "out")
    check_refused(verb, inputs, tmp_path / "out", tmp_path, capsys)


def test_a_symbolic_link(
    verb: Verb, name: str, inputs: Path, tmp_path: Path, made: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made(name), tmp_path / "elsewhere")
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    check_refused(verb, inputs, tmp_path / "out", tmp_path, capsys)


def test_a_place_that_cannot_be_written(verb: Verb, inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verb.run(inputs, "/sys/out") == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("error: ")


def test_the_same_again(verb: Verb, name: str, inputs: Path, tmp_path: Path, made: Callable[[str], Path]) -> None:
    out = shutil.copytree(made(name), tmp_path / "out")
    before = contents(out)
    assert verb.run(inputs, out) == 0
    changed = {path for path, found in contents(out).items() if before.get(path) != found}
    assert not changed or (verb.folder and {Path(path).parent for path in changed} == {Path(".")})
    assert before.keys() == contents(out).keys()


def test_the_same_kind_made_from_something_else(
    verb: Verb,
    name: str,
    others: Path,
    tmp_path: Path,
    made: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not verb.read:
        pytest.skip("it reads no directory")
    out = shutil.copytree(made(name), tmp_path / "out")
    before = contents(out)
    assert verb.run(others, out) == 2
    assert "--overwrite" in capsys.readouterr().err
    after = contents(out)
    assert {path: found for path, found in after.items() if "/" in path or not verb.folder} == {
        path: found for path, found in before.items() if "/" in path or not verb.folder
    }
    (out / "thesis.tex").write_text("years of work")
    words = ("--overwrite", "true") if "reranker" in verb.script else ("--overwrite",)
    code = verb.run(others, out, *words)
    assert (out / "thesis.tex").read_text() == "years of work"
    if code:
        assert "thesis.tex" in capsys.readouterr().err
        assert contents(out).keys() == {*before, "thesis.tex"}
        (out / "thesis.tex").unlink()
        assert verb.run(others, out, *words) == 0
    assert (out / MANIFEST).is_file()
