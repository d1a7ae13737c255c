"""What importing the package loads, and that its models are registered whatever is imported first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_backbones import BACKBONES
from without_packages import BLOCK, MISSING

import hf_dense

HEAVY = ("torch", "transformers", "datasets", "numpy", "sentence_transformers")
LOAD = """
from transformers import AutoConfig
config = AutoConfig.from_pretrained(sys.argv[1])
from transformers import AutoModel
done = [type(config).__name__, type(AutoModel.from_pretrained(sys.argv[1])).__name__]
"""


def run(script: str, *arguments: object) -> Any:
    """What a fresh process leaves in its variable `done`."""
    code = f"import json, sys\n{script}\nprint(json.dumps(done))"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint")
    hf_dense.RetroMAEForPreTraining(hf_dense.RetroMAEConfig(backbone_config=BACKBONES["bert"](0.1))).save_pretrained(
        path
    )
    return path


def test_importing_loads_nothing_heavy() -> None:
    script = (
        "import hf_dense, hf_dense.methods\nhf_dense.__version__, hf_dense.InputError, hf_dense.METHODS, dir(hf_dense)"
    )
    assert run(f"{script}\ndone = [name for name in {HEAVY} if name in sys.modules]") == []


def test_every_public_name_can_be_used() -> None:
    assert (
        run("from hf_dense import *\nimport hf_dense\ndone = [n for n in hf_dense.__all__ if n not in globals()]") == []
    )
    assert set(hf_dense.__all__) <= set(dir(hf_dense))
    assert hf_dense.__all__ == sorted(hf_dense.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'hf_dense' has no attribute 'RetroMEA'"):
        _ = hf_dense.RetroMEA


@pytest.mark.parametrize(
    "first",
    [
        "import hf_dense",
        pytest.param("from transformers import AutoModel; import hf_dense", marks=pytest.mark.slow),
        pytest.param("import hf_dense; from transformers import AutoModel", marks=pytest.mark.slow),
        pytest.param(
            "import hf_dense; import transformers.modeling_layers", marks=pytest.mark.slow
        ),  # imports the Auto classes half way through itself
        pytest.param("import hf_dense; from transformers import AutoTokenizer", marks=pytest.mark.slow),
        pytest.param("import hf_dense; import sentence_transformers", marks=pytest.mark.slow),
        pytest.param("from hf_dense import RetroMAEConfig", marks=pytest.mark.slow),
        pytest.param("from hf_dense.modeling.bottleneck_attention import near", marks=pytest.mark.slow),
    ],
)
def test_checkpoints_load_without_remote_code(first: str, checkpoint: Path) -> None:
    assert run(f"{first}\n{LOAD}", checkpoint) == ["RetroMAEConfig", "RetroMAEModel"]


@pytest.mark.slow
def test_the_import_hook_removes_itself() -> None:
    hooks = "[hook for hook in sys.meta_path if type(hook).__module__ == 'hf_dense.methods']"
    before = f"import hf_dense\nassert len({hooks}) == 1\nimport transformers\nassert len({hooks}) == 1\n"
    after = "from transformers import AutoConfig\nimport transformers.modeling_layers as m\n"
    kept = "('exec_module' in vars(m.__loader__), m.__loader__.get_filename())"
    hooked, path = run(f"{before}{after}assert not {hooks}\ndone = {kept}")
    assert not hooked
    assert path.endswith("modeling_layers.py")


def test_models_and_what_collates_for_them_need_no_package_of_data_or_evaluation() -> None:
    folder = Path(hf_dense.__file__).parent
    names = [f"modeling.{path.stem}" for path in sorted((folder / "modeling").glob("[!_]*.py"))]
    names += [f"pretraining.{name}" for name in ("collator", "keywords", "masking", "sampler", "vocabulary")]
    names += ["data.tokenizers", "data.python_docs.docstrings", "hub.convert", "storage.provenance"]
    imports = "\n".join(f"import hf_dense.{name}" for name in names)
    assert run(f"{BLOCK}\n{imports}\ndone = [name for name in {MISSING} if name in sys.modules]") == []
