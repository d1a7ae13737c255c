"""A cluster encodes what one machine does, also when it loses a machine on the way."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_retriever import random_words, write_dataset, write_embedder, write_hybrid, write_retriever

from hf_dense.commands.main import main
from hf_dense.errors import InputError
from hf_dense.hub.loading import load_retriever
from hf_dense.search import dense
from hf_dense.search.cluster import encoding_on, is_on_cluster
from hf_dense.search.dense import Vectors, encode_corpus
from hf_dense.search.index import build_index


def joined(vectors: Vectors) -> Any:
    return np.concatenate([*vectors])


@pytest.mark.slow
@pytest.mark.parametrize("loses", [False, True], ids=["two nodes", "a node is lost"])
def test_a_cluster_gives_the_vectors_of_one_machine(
    loses: bool, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "BLOCK", 1500)
    words = random_words(4000)
    texts = [" ".join(words[start : start + start % 9 + 1]) for start in range(3500)]
    retriever = load_retriever(write_embedder(tmp_path / "model"))
    for name in ("alone", "together"):
        (tmp_path / name).mkdir()
    alone = encode_corpus(retriever, texts, tmp_path / "alone")
    monkeypatch.setattr(dense, "devices_for", None)  # which is not asked
    losing = threading.Timer(3.0, lambda: cluster.remove_node(cluster.second, allow_graceful=False))
    with encoding_on(cluster.address):
        if loses:
            losing.start()
        together = encode_corpus(retriever, texts, tmp_path / "together", batch_size=8)
    losing.cancel()
    assert not is_on_cluster()
    assert len(together) == 3
    np.testing.assert_allclose(joined(together), joined(alone), atol=1e-6)


@pytest.mark.slow
def test_verbs_encode_on_a_cluster(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, collection = write_retriever(tmp_path / "model"), write_dataset(tmp_path / "collection")
    on = ["--ray", cluster.address]
    main(["search", str(model), "abcd", "--corpus", str(collection), *on])
    main(["data", "negatives", str(collection), "--model", str(model), "--out", str(tmp_path / "mined"), *on])
    main(["evaluate", str(model), "--tasks", f"{collection}:test", "--out", str(tmp_path / "there"), *on])
    main(["evaluate", str(model), "--tasks", f"{collection}:test", "--out", str(tmp_path / "here")])
    assert "60 passages ready" in capsys.readouterr().out
    there, here = ((tmp_path / name / "results.md").read_text() for name in ("there", "here"))
    assert there == here


def test_a_cluster_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    model, collection = write_retriever(tmp_path / "model"), write_dataset(tmp_path / "collection")
    with pytest.raises(SystemExit, match="2"):
        main(["search", str(model), "abcd", "--corpus", str(collection), "--ray", "127.0.0.1:1"])
    assert "There is no Ray cluster at '127.0.0.1:1'" in capsys.readouterr().err
    assert not (model / "index").exists()


def test_hybrid_vectors_are_encoded_on_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_dense.search.cluster.start_ray", lambda address: None)
    model, collection = write_hybrid(tmp_path, 4, 3), write_dataset(tmp_path / "collection")
    with encoding_on("auto"), pytest.raises(InputError, match="Hybrid vectors are encoded on one machine"):
        build_index(model, collection, tmp_path / "index")
