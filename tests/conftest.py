"""Tests never reach the network, use one thread, and keep their caches to themselves."""

from __future__ import annotations

import fcntl
import functools
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="hf-")
# Of commands, some of which leave logs; one for all workers, and short, as browsers and Ray put sockets below.
os.environ.setdefault("TMPDIR", tempfile.mkdtemp(prefix="", dir=os.environ["HF_HOME"]))
os.environ["HF_DATASETS_CACHE"] = os.path.join(os.environ["HF_HOME"], "datasets")

import huggingface_hub
import transformers.utils.hub
from huggingface_hub import HfApi

from hf_dense.storage import provenance

provenance._own_commit = functools.cache(provenance._own_commit)  # 24 ms of every output, some thousand times

Client = Callable[..., dict[str, Any]]
_SCRATCH = os.environ["HF_HOME"]  # which tests may change


def pytest_unconfigure() -> None:
    """Leave nothing in the directory for temporary files."""
    shutil.rmtree(_SCRATCH, ignore_errors=True)


@pytest.fixture(scope="session")
def hub_url() -> Iterator[str]:
    """Address of a Hub that runs for the session."""
    server = Path(__file__).parent / "hub" / "hub_server.py"
    process = subprocess.Popen([sys.executable, str(server)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def hub_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], HfApi]:
    """Let this process talk to the Hub at an address, as far as it makes an `HfApi` for it; gives one."""

    def point(url: str) -> HfApi:
        template = url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
        monkeypatch.setattr(transformers.utils.hub.hf_api(), "endpoint", url)  # made by what asked first
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "hf_anything")
        return HfApi()

    return point


@pytest.fixture
def hub_here(hub_url: str, hub_at: Callable[[str], HfApi]) -> HfApi:
    """Let this process talk to the Hub of the session; gives an `HfApi` for it."""
    return hub_at(hub_url)


@pytest.fixture
def hub_client(hub_url: str, tmp_path: Path) -> Client:
    """Run a script as a user of that Hub and give back the JSON it prints last.

    Which Hub to talk to is read when `huggingface_hub` is imported, so every client is a process of its own; each has
    an empty cache.
    """

    def run(script: str, *arguments: str) -> dict[str, Any]:
        home = tmp_path / f"home{len(list(tmp_path.iterdir()))}"
        home.mkdir()
        settings = {
            "HF_ENDPOINT": hub_url,
            "HF_TOKEN": "hf_anything",
            "HF_HOME": str(home),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        command = [sys.executable, "-c", script, *arguments]
        done = subprocess.run(
            command, env={**os.environ, **settings}, cwd=home, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    return run


@pytest.fixture(scope="module", autouse=True)
def _what_is_loaded_is_no_garbage() -> None:
    """Trainers collect garbage at every start: with all modules and tests in sight a third of a small training."""
    gc.collect()
    gc.freeze()


_ENDED: list[Any] = []


@pytest.fixture
def alone() -> Iterator[None]:
    """No two workers are here at once: they would see each other's clusters."""
    with open(Path(os.environ["TMPDIR"]) / "alone", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def cluster(alone: None) -> Iterator[Any]:
    """Two nodes of one core each on this machine.

    What stood for them is kept: from Python 3.13 on a forked process clears what `atexit` holds, and Ray's connection,
    if nothing else held it, would be closed there, which ends the process by a segmentation fault.
    """
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    memory = 100_000_000
    nodes = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": memory},
    )
    nodes.second = nodes.add_node(num_cpus=1, object_store_memory=memory)
    _ENDED.extend((nodes.head_node, nodes.second))
    yield nodes
    import ray

    ray.shutdown()
    nodes.shutdown()
