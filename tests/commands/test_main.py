"""The command line as a whole: its verbs, their help, mistakes, and how fast it is there."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
from tiny_retriever import write_dataset, write_retriever

from hf_dense import __version__
from hf_dense.commands import search
from hf_dense.commands.main import VERBS, build_parser, load_verb, main
from hf_dense.commands.output import command_line

HEAVY = ("torch", "transformers", "datasets", "sentence_transformers", "numpy", "accelerate")
HEAVY += ("pyarrow", "pandas", "matplotlib", "mteb")
HELP = """
import sys
from hf_dense.commands.main import main
try:
    main(sys.argv[1:])
except SystemExit as stopped:
    assert stopped.code == 0
print("LOADED", *[name for name in {heavy} if name in sys.modules])
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_retriever(tmp_path / "model")


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "dataset", passages=50, queries=10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{model}", "abc"], "--corpus"),
        (["{model}/nowhere", "abc", "--corpus", "{dataset}"], "is not a directory"),
        (["{model}", " ", "--corpus", "{dataset}"], "question is empty"),
        (["{model}", "abc", "--corpus", "{dataset}/nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: list[str], message: str, model: Path, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["search", *(argument.format(model=model, dataset=dataset) for argument in arguments)])
    assert stopped.value.code == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]


@pytest.mark.parametrize("lines", [1, 100_000])
def test_nobody_who_reads_ends_a_command_in_silence(lines: int) -> None:
    printing = f"from hf_dense.errors import run_main; run_main(lambda: [print('a') for _ in range({lines})])"
    with subprocess.Popen([sys.executable, "-c", printing], stdout=PIPE, stderr=PIPE, text=True) as command:
        assert command.stdout is not None
        command.stdout.close()
        assert command.stderr is not None
        assert command.stderr.read() == ""
    assert command.returncode == 141


@pytest.mark.parametrize(
    ("words", "streams", "code"),
    [
        ("recipes", "<&- >&-", 0),
        ("recipes", "<&- >&- 2>&-", 0),
        ("recipes nowhere", "2>&-", 2),
        ("recipes nowhere", "2>/dev/full", 2),
        ("recipes", ">/dev/full 2>/dev/full", 2),
    ],
)
def test_exit_codes_are_right_where_nobody_reads_what_is_said(words: str, streams: str, code: int) -> None:
    command = f"exec {sys.executable} -m hf_dense {words} {streams}"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == code


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "Stopped. The same command goes on"),
        (
            RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598"),
            2,
            "error: There is no room",
        ),
    ],
)
def test_what_ends_a_command_from_outside_is_no_trace(
    raised: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C, and a disk that is full under something else than the output, as torch says it."""

    def run(_: argparse.Namespace) -> None:
        raise raised

    monkeypatch.setattr(search, "run", run)
    with pytest.raises(SystemExit) as stopped:
        main(["search", "model", "abc", "--corpus", "corpus"])
    assert stopped.value.code == code
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith(said)


def test_every_verb_has_a_line_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in ((["--version"], __version__), (["--help"], "Dense retrieval")):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 0
        shown = capsys.readouterr().out
        assert expected in shown
    assert len(shown.splitlines()) < 40
    for verb in VERBS:
        assert load_verb(verb).SUMMARY.split()[0] in shown


def test_the_package_is_run_as_the_command_is() -> None:
    words = [sys.executable, "-m", "hf_dense", "recipes", "--help"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.startswith(
        "usage: hf-dense recipes"
    )


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_loads_nothing_heavy(verb: str) -> None:
    words = [sys.executable, "-c", HELP.format(heavy=HEAVY), *filter(None, [verb]), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED"


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_written_goes_to_out(verb: str) -> None:
    """The same names everywhere: none of the older ones is left."""
    shown = build_parser([verb]).format_help() + _help_of(verb)
    for old in ("--output_dir", "--output ", "--dataset", "--encoder ", "--licence"):
        assert old not in shown


def _help_of(verb: str) -> str:
    """The help of a verb and of its own verbs."""
    import argparse

    parser = argparse.ArgumentParser()
    load_verb(verb).add_arguments(parser)
    inner = [
        choice.format_help()
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for choice in action.choices.values()
    ]
    return "".join([parser.format_help(), *inner])


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_help_begins_with_an_introduction_and_help_all_ends_with_the_trainer(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for flag in ("--help", "--help_all"):
        with pytest.raises(SystemExit) as stopped:
            main([verb, flag])
        assert stopped.value.code == 0
        shown.append(capsys.readouterr().out)
    assert len(shown[0].splitlines()) < 90
    assert f"  hf-dense {verb} --" in shown[0].partition("options:")[0]
    assert "--weight_decay" not in shown[0]
    assert shown[1].startswith(shown[0])
    assert "--weight_decay" in shown[1]


def test_a_verb_is_needed_and_flags_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (([], "VERB"), (["serch"], "invalid choice: 'serch'"), (["recipes", "--x"], "--x")):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "end"),
    [
        ("adatp docs", "did you mean adapt?"),
        ("data pasages docs", "did you mean passages?"),
        ("export model --kind onxx --out x", "did you mean onnx?"),
        ("zebra", "'completion')"),
    ],
)
def test_a_mistyped_verb_or_choice_is_answered_by_what_is_like_it(
    words: str, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words.split())
    assert stopped.value.code == 2
    assert capsys.readouterr().err.strip().endswith(end)


def test_adapt_asks_for_out_as_it_does_for_docs(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["adapt"], ["adapt", "docs"]):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 2
        said = capsys.readouterr().err
        assert "required: " in said, "it has no --config that could name it"
        assert said.strip().endswith("--out")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("data passages docs --lenght 64 --out x", "--lenght 64; did you mean --length?"),
        ("data passages docs --colour red --out x", "--colour red; hf-dense data passages --help lists what there is"),
        ("search --corpsu=x model", "--corpsu=x; did you mean --corpus?"),
        ("recipes a stray", "stray; hf-dense recipes --help lists what there is"),
    ],
)
def test_an_unknown_option_is_answered_by_what_is_like_it(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words.split())
    assert stopped.value.code == 2
    assert capsys.readouterr().err.endswith(f"{message}\n")


def test_the_command_of_a_manifest_holds_no_token() -> None:
    words = ["pretrain", "--hub_token", "hf_secret", "--hub_token=hf_secret", "--out", "a b"]
    shown = command_line(argparse.Namespace(words=words))
    assert shown == "hf-dense pretrain --hub_token ... --hub_token=... --out 'a b'"


def test_a_question_may_stand_after_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(search, "run", lambda arguments: asked.append(arguments.question))
    for words in (["m", "why", "--corpus", "c"], ["m", "--corpus", "c", "why"], ["m", "--corpus", "c"]):
        main(["search", *words])
    assert asked == ["why", "why", None]
    with pytest.raises(SystemExit):
        main(["search", "m", "--corpus", "c", "why", "not"])
    with pytest.raises(SystemExit):
        main(["search", "m", "--corpus", "c", "--why"])


def test_what_is_one_process_is_not_started_several_times(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit):
        main(["evaluate", "bm25", "--tasks", "data", "--out", "out"])
    assert "hf-dense evaluate is one process; start it without accelerate launch" in capsys.readouterr().err


def test_a_progress_bar_in_a_file_has_few_states() -> None:
    lines = ["from hf_dense.commands.main import main; main(['recipes'])", "from tqdm.auto import tqdm"]
    script = "\n".join([*lines, "print(tqdm().mininterval)"])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TQDM_")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert float(done.stdout.splitlines()[-1]) == 10


def test_a_working_directory_that_is_gone_is_said(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(SystemExit) as stopped:
        main(["data", "passages", str(dataset / "corpus.jsonl"), "--out", "out"])
    assert stopped.value.code == 2
    assert "error: The working directory was removed; change to one that is there" in capsys.readouterr().err
