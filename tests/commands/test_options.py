"""Options from YAML files, from recipes and from flags."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path

import pytest
from transformers import TrainingArguments

from hf_dense.commands.options import (
    add_config,
    add_options,
    build_options,
    given_flags,
    parse_options,
    read_number,
    read_values,
)
from hf_dense.errors import InputError
from hf_dense.experiments.sweep_options import SweepOptions
from hf_dense.pretraining.options import PretrainingOptions, given_mapping


@dataclass
class What:
    method: str = field(metadata={"help": "a method"})
    rate: float = 0.3
    steps: int = 10
    fast: bool = False
    sizes: dict | str | None = None  # type: ignore[type-arg]
    names: list[str] = field(default_factory=list)
    level: int | None = None


def parse(*argv: str) -> What:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_options(parser, What)
    add_config(parser)
    arguments = parser.parse_args(argv)
    return build_options(What, read_values(arguments, What), given_flags(arguments, What))


def test_help_says_a_default_of_zero() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, make_dataclass("Seeded", [("seed", int, 0), ("fast", bool, False)]))
    assert parser.format_help().count("(default: 0)") == 1


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_flags_alone() -> None:
    what = parse("--method", "a", "--rate", "0.5", "--fast", "true", "--names", "x", "y", "--level", "3")
    assert what == What("a", rate=0.5, fast=True, names=["x", "y"], level=3)
    assert parse("--method", "a", "--fast").fast


def test_a_file_gives_what_flags_would(tmp_path: Path) -> None:
    text = "method: a\nrate: 1e-3\nsteps: 7\nfast: true\nsizes: {hidden: 8, eps: 1e-5}\nnames: [x, y]\n"
    what = parse("--config", write(tmp_path / "c.yaml", text))
    assert (what.method, what.rate, what.steps, what.fast, what.names) == ("a", 1e-3, 7, True, ["x", "y"])
    assert what.sizes == '{"hidden": 8, "eps": 1e-05}', "a number, not a text"


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    config = write(tmp_path / "c.yaml", "method: a\nrate: 0.1\nfast: true\nnames: [x, y]\n")
    for argv in (["--config", config, "--rate", "0.9"], ["--rate", "0.9", f"--config={config}"]):
        what = parse(*argv, "--fast", "false", "--names", "z")
        assert (what.rate, what.fast, what.names, what.method) == (0.9, False, ["z"], "a")


def test_later_files_win(tmp_path: Path) -> None:
    first = write(tmp_path / "a.yaml", "method: a\nrate: 0.1\nsizes: {hidden: 8, layers: 2}\nlevel: 5\n")
    second = write(tmp_path / "b.yaml", "rate: 0.2\nsizes: {hidden: 9}\nlevel:\n")
    what = parse("--config", first, "--config", second)
    assert (what.method, what.rate, what.sizes, what.level) == ("a", 0.2, '{"hidden": 9}', None)


def test_an_empty_value_leaves_the_default(tmp_path: Path) -> None:
    assert parse("--config", write(tmp_path / "c.yaml", "method: a\nrate:\n")).rate == 0.3


def test_negative_numbers_and_words_with_spaces_survive(tmp_path: Path) -> None:
    what = parse("--config", write(tmp_path / "c.yaml", 'method: "a b"\nsteps: -1\nrate: -0.5\n'))
    assert (what.method, what.steps, what.rate) == ("a b", -1, -0.5)


def test_the_trainers_options_stand_beside_ours(tmp_path: Path) -> None:
    config = write(tmp_path / "c.yaml", f"method: a\nseed: 4\nout: {tmp_path / 'out'}\nlearning_rate: 2e-4\n")
    argv = ["--config", config, "--use_cpu", "true", "--rate", "0.5", "--max_steps", "-1"]
    what, training = parse_options(What, TrainingArguments, argv)
    assert (what.method, what.rate, training.seed, training.learning_rate) == ("a", 0.5, 4, 2e-4)
    assert (training.output_dir, training.max_steps) == (str(tmp_path / "out"), -1)


@pytest.mark.parametrize("flag", ["--out", "--output_dir"])
def test_the_directory_has_two_names(tmp_path: Path, flag: str) -> None:
    config = write(tmp_path / "c.yaml", "method: a\noutput_dir: elsewhere\n")
    _, training = parse_options(What, TrainingArguments, ["--config", config, flag, "here", "--use_cpu", "true"])
    assert training.output_dir == "here"
    with pytest.raises(InputError, match="Name the directory to write with --out"):
        parse_options(What, TrainingArguments, ["--method", "a"])


def test_what_does_not_go_together_is_one_sentence() -> None:
    given = ["--method", "a", "--out", "here", "--use_cpu", "true", "--load_best_model_at_end", "true"]
    with pytest.raises(InputError, match="load_best_model_at_end requires") as caught:
        parse_options(What, TrainingArguments, given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("word", ["nan", "-inf", "1e999", "a half"])
def test_a_number_is_finite(word: str) -> None:
    assert read_number("1e-3") == 0.001
    with pytest.raises(argparse.ArgumentTypeError, match="is no number"):
        read_number(word)


def test_what_an_option_cannot_be_made_of_is_one_sentence() -> None:
    given = ["--method", "a", "--out", "here", "--use_cpu", "true", "--accelerator_config", '{"nothing": 1}']
    with pytest.raises(InputError, match="unexpected keyword argument 'nothing'"):
        parse_options(What, TrainingArguments, given)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--max_step", "3"], "'--max_step' is no option of this command; did you mean --max_steps"),
        (["--rat", "3"], "'--rat' is no option of this command; did you mean --rate"),
        (["--zzz"], "'--zzz' is no option of this command; --help_all lists them."),
    ],
)
def test_a_flag_that_is_no_option_is_refused(words: list[str], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_options(What, TrainingArguments, ["--method", "a", "--out", "here", *words])
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("method: a\nrates: 0.1\n", r"c\.yaml has the key 'rates', which is no option here; did you mean rate\?"),
        ("rate: 0.1\n", "Name the method with --method, or in a file"),
        ("a: [1", "is not valid YAML"),
        ("- a\n- b\n", "holds a list"),
        ("", "holds a NoneType"),
        ("just words", "holds a str"),
        ("method: a\nextends: nothing", "There is no recipe or file nothing; hf-dense recipes lists them"),
        ("method: a\nextends: {path}", "extends itself"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "c.yaml"
    with pytest.raises(InputError, match=sentence) as caught:
        parse("--config", write(path, text.replace("{path}", str(path))))
    assert "\n" not in str(caught.value)


def test_of_several_files_the_one_with_the_wrong_key_is_named(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good.yaml", "method: a\n"), write(tmp_path / "bad.yaml", "rates: 0.1\n")
    within = write(tmp_path / "within.yaml", "by_method: {retromae: {rates: 0.1}}\n")
    extending = write(tmp_path / "extending.yaml", "extends: bad.yaml\n")
    for file in (bad, within, extending):
        for files in ((good, file), (file, good)):
            with pytest.raises(InputError) as caught:
                parse(*(word for file in files for word in ("--config", file)), "--method", "retromae")
            assert str(caught.value).startswith(f"{file} has the key 'rates'")
    with pytest.raises(InputError) as caught:
        parse("--config", good, "--config", bad, "--config", within, "--method", "retromae")
    assert str(caught.value).startswith(f"{bad} and {within} has the key 'rates'")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(InputError, match="is not valid YAML"):
        parse("--config", str(tmp_path / "c.yaml"))


def test_a_file_or_recipe_that_is_not_there_is_refused_with_what_is_like_it(tmp_path: Path) -> None:
    write(tmp_path / "mine.yaml", "method: a\n")
    with pytest.raises(InputError, match=r"file .*mien\.yaml does not exist; did you mean .*mine\.yaml\?"):
        parse("--config", str(tmp_path / "mien.yaml"))
    with pytest.raises(InputError, match="There is no recipe or file retromea; did you mean retromae"):
        parse("--config", "retromea")


@pytest.mark.parametrize(
    ("text", "flag"), [("steps: many", "--steps"), ("fast: maybe", "--fast"), ("rate: .nan", "--rate")]
)
def test_a_value_of_the_wrong_type_is_named(tmp_path: Path, text: str, flag: str) -> None:
    with pytest.raises(InputError, match=f"Argument {flag}"):
        parse("--config", write(tmp_path / "c.yaml", f"method: a\n{text}\n"))


@pytest.mark.parametrize("kind", [PretrainingOptions, SweepOptions])
def test_examples_in_the_help_are_read(kind: type[PretrainingOptions] | type[SweepOptions]) -> None:
    said = {one.name: re.findall(r"such as '(\{.*\})'", one.metadata.get("help", "")) for one in fields(kind)}
    examples = {name: found[0] for name, found in said.items() if found}
    assert len(examples) >= 3
    for name, example in examples.items():
        assert given_mapping(example, name)
