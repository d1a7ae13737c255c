"""Every recipe is a pipeline whose sections the trainers take."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_dense.commands.options import read_yaml
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments
from hf_dense.finetuning.pipeline import Pipeline
from hf_dense.finetuning.reranker import RerankerTrainingArguments

RECIPES = sorted((Path(__file__).parents[2] / "examples" / "configs" / "finetuning").glob("*.yaml"))


def test_there_is_one_for_every_paper_and_dataset() -> None:
    names = {path.stem for path in RECIPES}
    msmarco = {"seed", "cocondenser", "cotmae", "query_as_context", "simlm", "retromae", "dupmae", "master"}
    assert {f"{name}_msmarco" for name in msmarco} | {
        "simlm_nq",
        "master_nq",
        "seed_nq",
        "retromae_beir",
        "own",
    } == names


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe(path: Path, tmp_path: Path) -> None:
    pipeline = Pipeline.of(read_yaml(path))
    own = {"passages", "depth", "start", "refresh"}
    for section in (pipeline.retriever1, pipeline.retriever2, pipeline.distilled):
        if section is not None:
            values = {name: value for name, value in section.items() if name not in own}
            BiencoderTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **values)
    if pipeline.reranker is not None:
        values = {
            name: value for name, value in pipeline.reranker.items() if name not in ("base", "max_length", "depth")
        }
        RerankerTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **values)
        assert pipeline.distilled is None or pipeline.distilled["distillation"] == "kl"
    assert path.read_text().startswith("# "), "a recipe says where its settings come from"
