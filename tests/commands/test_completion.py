"""`hf-dense completion`: scripts that shells accept, and what bash completes with its one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hf_dense.commands.data import DATA_VERBS
from hf_dense.commands.main import VERBS, main
from hf_dense.commands.recipes import FOLDER

HEAVY = ("torch", "transformers", "datasets", "sentence_transformers", "numpy", "accelerate")
LIGHT = f"""
import sys
from hf_dense.commands.main import main
main(["completion", "bash"])
print("LOADED", *[name for name in {HEAVY} if name in sys.modules])
"""
ASKED = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
compopt() { :; }
_shtab_hf_dense
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    main(["completion", shell])
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_it_names_all_verbs_and_the_shell_accepts_it(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = script(shell, capsys)
    assert [name for name in (*VERBS, *DATA_VERBS, "--max_length", "cotmae_msmarco") if name not in written] == []
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    (tmp_path / "script").write_text(written)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fine"], {"finetune"}),
        (["data", "pas"], {"passages"}),
        (["data", "passages", "x", "--repeats", "ne"], {"near"}),
        (["pretrain", "--config", "cot"], {path.stem for path in FOLDER.glob("cot*.yaml")} | {"cot.yaml"}),
        (["search", "mod"], {"model"}),
        (["export", "model", "--out", "mod"], {"model"}),
        (["finetune", "--coll"], {"--collection"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes(
    words: list[str],
    expected: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script").write_text(script("bash", capsys))
    (tmp_path / "cot.yaml").touch()
    (tmp_path / "model").mkdir()
    asked = ["bash", "-c", ASKED, "bash", "./script", "hf-dense", *words]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected


def test_a_shell_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "cmd"])
    assert "invalid choice: 'cmd'" in capsys.readouterr().err


def test_nothing_heavy_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED"
