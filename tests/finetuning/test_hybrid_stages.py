"""DupMAE's stages by the hybrid vector: trained, mined with, kept sparse, with words alone too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet
from tiny_retriever import random_words, write_dataset, write_hybrid

from hf_dense.commands.recipes import read_configs
from hf_dense.errors import InputError
from hf_dense.finetuning.mining import mine_negatives
from hf_dense.finetuning.pipeline import Pipeline, run_pipeline
from hf_dense.hub.hybrid import load_hybrid
from hf_dense.hub.loading import load_retriever
from hf_dense.search import dense as dense_search
from hf_dense.search.first_stage import open_search


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hybrid")
    write_dataset(root / "data", passages=40)
    write_hybrid(root / "mixed", 6, 5)
    write_hybrid(root / "words", 0, 7)
    return root


def negatives(lists: Path) -> list[list[str]]:
    return [row["negatives"] for row in parquet.read_table(lists / "negatives" / "train.parquet").to_pylist()]


@pytest.mark.parametrize("name", ["mixed", "words"])
def test_mining_by_sparse_vectors_finds_what_whole_ones_find(
    root: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = root / name / "hybrid"
    monkeypatch.setattr(dense_search, "encode_corpus", None)  # whole vectors are not made
    found = {
        margin: negatives(mine_negatives(model, str(root / "data"), tmp_path / str(margin), depth=6, margin=margin))
        for margin in (None, 0.05)
    }
    retriever = load_hybrid(model)
    from hf_dense.finetuning.negatives import load_judged

    judged = load_judged(root / "data", "train")
    for row, (query, positives) in enumerate(judged.positives.items()):
        right = {at for group in positives for at in group}
        scores = retriever.encode_query([judged.queries[query]]) @ retriever.encode_document(list(judged.texts)).T
        order = [at for at in np.argsort(-scores[0], kind="stable").tolist() if at not in right]
        expected = [judged.ids[at] for at in order]
        assert found[None][row] == expected[: len(found[None][row])]
        limit = max(scores[0][at] for at in right) - 0.05
        kept = [judged.ids[at] for at in order if scores[0][at] <= limit]
        assert found[0.05][row] == kept[: len(found[0.05][row])]
    with pytest.raises(InputError, match="Hybrid vectors are searched exactly, not by 'flat'"):
        mine_negatives(model, str(root / "data"), tmp_path / "flat", kind="flat")


def test_words_alone_have_no_dense_part(root: Path, tmp_path: Path) -> None:
    model = load_hybrid(root / "words" / "hybrid")
    texts = random_words(9)
    documents = model.encode_document(texts)
    assert model[1].projection is None
    assert documents.shape[1] == model[1].vocabulary
    assert (documents != 0).sum(axis=1).max() <= 7
    scores, indices = open_search(model, texts, tmp_path, 4)(texts[:2], 9)
    whole = model.encode_query(texts[:2]) @ documents.T
    np.testing.assert_allclose(scores, np.take_along_axis(whole, indices, axis=1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["mixed", "words"])
def test_all_stages_are_of_hybrid_vectors(root: Path, name: str, tmp_path: Path) -> None:
    common = {"max_steps": 1, "per_device_train_batch_size": 4, "use_cpu": True, "report_to": "none"}
    sections = {"retriever1": {**common, "passages": 1}, "retriever2": {**common, "passages": 3, "start": "retriever1"}}
    given: dict[str, Any] = {"collection": str(root / "data"), "model": str(root / name / "hybrid")}
    models = run_pipeline(Pipeline.of({**given, "out": str(tmp_path / "out"), **sections, "max_length": 22}))
    for model in models.values():
        assert type(load_retriever(model)[-1]).__name__ == "HybridHead"


def test_the_recipe_is_the_papers() -> None:
    recipe = read_configs(["dupmae_msmarco"])
    assert recipe["retriever1"]["passages"] == 1, "equation 13: in-batch negatives alone"
    assert recipe["retriever2"]["start"] == "retriever1"
    assert recipe["retriever2"]["passages"] > 1, "equation 14"
    assert recipe["distilled"]["contrast_weight"] == 0, "equation 15: the teacher alone"
    assert recipe["distilled"]["distillation"] == "kl"
