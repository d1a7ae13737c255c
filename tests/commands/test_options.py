"""Options from a YAML file and from flags."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from transformers import TrainingArguments

from hf_dense.commands.options import parse_options, read_yaml
from hf_dense.errors import InputError


@dataclass
class What:
    method: str = field(metadata={"help": "a method"})
    rate: float = 0.3
    steps: int = 10
    fast: bool = False
    sizes: dict | str | None = None  # type: ignore[type-arg]
    names: list[str] = field(default_factory=list)


@dataclass
class How:
    seed: int = 0


def parse(*argv: str) -> What:
    (what,) = parse_options(What, argv=list(argv))
    return what


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_flags_alone() -> None:
    what = parse("--method", "a", "--rate", "0.5", "--fast", "true", "--names", "x", "y")
    assert what == What("a", rate=0.5, fast=True, names=["x", "y"])


def test_a_file_gives_what_flags_would(tmp_path: Path) -> None:
    text = "method: a\nrate: 1e-3\nsteps: 7\nfast: true\nsizes: {hidden: 8}\nnames: [x, y]\n"
    what = parse("--config", write(tmp_path / "c.yaml", text))
    assert (what.method, what.rate, what.steps, what.fast, what.names) == ("a", 1e-3, 7, True, ["x", "y"])
    assert what.sizes == '{"hidden": 8}'


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    config = write(tmp_path / "c.yaml", "method: a\nrate: 0.1\nfast: true\nnames: [x, y]\n")
    for argv in (["--config", config, "--rate", "0.9"], ["--rate", "0.9", "--config", config]):
        what = parse(*argv, "--fast", "false", "--names", "z")
        assert (what.rate, what.fast, what.names, what.method) == (0.9, False, ["z"], "a")


def test_an_empty_value_leaves_the_default(tmp_path: Path) -> None:
    assert parse("--config", write(tmp_path / "c.yaml", "method: a\nrate:\n")).rate == 0.3


def test_negative_numbers_and_words_with_spaces_survive(tmp_path: Path) -> None:
    what = parse("--config", write(tmp_path / "c.yaml", 'method: "a b"\nsteps: -1\nrate: -0.5\n'))
    assert (what.method, what.steps, what.rate) == ("a b", -1, -0.5)


def test_several_dataclasses_come_back_in_order(tmp_path: Path) -> None:
    config = write(tmp_path / "c.yaml", f"method: a\nseed: 4\noutput_dir: {tmp_path / 'out'}\nlearning_rate: 2e-4\n")
    what, training = parse_options(What, TrainingArguments, argv=["--config", config, "--use_cpu", "true"])
    assert (what.method, training.seed, training.learning_rate, training.use_cpu) == ("a", 4, 2e-4, True)
    first, second = parse_options(What, How, argv=["--method", "a", "--seed", "3"])
    assert (first, second) == (What("a"), How(3))


@pytest.mark.parametrize("spelling", ["--config={path}", "--conf {path}"])
def test_other_spellings_of_the_flag_are_read_or_refused_but_never_passed_over(tmp_path: Path, spelling: str) -> None:
    path = write(tmp_path / "c.yaml", "rate: 0.9\n")
    try:
        what = parse("--method", "a", *spelling.format(path=path).split())
    except (InputError, SystemExit):
        return
    assert what.rate == 0.9


def test_a_key_that_is_no_option_is_refused(tmp_path: Path) -> None:
    config = write(tmp_path / "c.yaml", "method: a\nratio: 0.1\n")
    with pytest.raises(InputError, match="has the key 'ratio', which is no option"):
        parse("--config", config)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"The configuration file .*missing\.yaml does not exist\."):
        parse("--config", str(tmp_path / "missing.yaml"))
    with pytest.raises(InputError, match="needs the path of a YAML file"):
        parse("--config")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [1", "is not valid YAML"),
        ("- a\n- b\n", "holds a list"),
        ("", "holds a NoneType"),
        ("just words", "holds a str"),
    ],
)
def test_a_file_that_holds_no_options_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        read_yaml(Path(write(tmp_path / "c.yaml", text)))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(InputError, match="is not valid YAML"):
        read_yaml(tmp_path / "c.yaml")


def test_a_value_of_the_wrong_type_ends_with_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("--config", write(tmp_path / "c.yaml", "method: a\nsteps: many\n"))
    assert caught.value.code == 2
    assert "--steps" in capsys.readouterr().err
