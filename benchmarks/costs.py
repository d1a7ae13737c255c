"""What the recipes cost, on paper: operations counted from their settings, as hours of a GPU.

python benchmarks/costs.py      # writes the tables and the figures of docs/reproduction.md

Nothing is run. Texts count as long as the recipe lets them be, which is more than most are; operations are those that
training needs (`needed_operations.py`), and are done at an assumed rate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from needed_operations import needed_operations
from torch import Tensor

from hf_dense.commands.recipes import FOLDER, describe, read_configs
from hf_dense.methods import METHODS, get_method
from hf_dense.modeling.bottleneck_declaration import View
from hf_dense.modeling.bottleneck_losses import IGNORED
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
RATE = 1e14  # useful operations a second: a third of the 312e12 in bfloat16 that an A100 has by its data sheet
WORDS = 3.6e9  # tokens of Wikipedia and books: 16 GB (SEED-Encoder, section 4.1) at 4.5 bytes a token
MARCO, DOCUMENTS, WIKIPEDIA = 8_841_823, 3_213_835, 21_015_324  # SEED-Encoder, table 6; MASTER, table 1
QUERIES = {"msmarco": 502_939, "nq": 58_880, "msmarco_documents": 367_013}  # the same tables
PASSAGES = {"msmarco": MARCO, "nq": WIKIPEDIA, "msmarco_documents": DOCUMENTS}
QUERY = 32  # tokens of a user's query
WRITTEN = 16  # tokens of a generated one
ROWS = {  # of an epoch, where a recipe counts epochs
    "condenser": WORDS / 126,
    "cocondenser": 2.0 * DOCUMENTS,
    "retromae": WORDS / 510,
    "dupmae": WORDS / 510,
    "dupmae_paper": WORDS / 510,
    "retromae_stage2": float(MARCO),
    "dupmae_stage2": float(MARCO),
}
_GENERATOR = {
    "model_type": "electra",
    "hidden_size": 256,
    "embedding_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}  # google/electra-base-generator
_STAGES = ("retriever1", "retriever2", "reranker", "distilled")
_TABLE = re.compile(r"(<!-- costs: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_FIGURE = re.compile(r"`([\w:]+)` (?:[\d,.]+|\?) h\b")


def recipes(use: str) -> list[str]:
    """Names of the recipes of papers, for `pretrain` or `finetune`."""
    names = [path.stem for path in sorted(FOLDER.glob("*.yaml")) if path.stem not in ("demo", "one_gpu", "own")]
    trained = [name for name in names if name != "msmarco" and "variants" not in read_configs([name])]
    return [name for name in trained if (_method(name) is None) == (use == "finetune")]


@cache
def pretraining(name: str) -> dict[str, float]:
    """Rows of a step, steps and operations of a pre-training."""
    values = read_configs([name])
    method = get_method(values["method"])
    sizes = {"vocab_size": values.get("vocab_size", 30522)}
    given: dict[str, Any] = {key: values[key] for key in ("encoders", "decoders") if key in values}
    if method.config.has_generator:
        given["generator_config"] = _GENERATOR
    config = method.config(backbone_config=sizes, **given)
    processes = int(re.findall(r"--num_processes (\d+)", describe(FOLDER / f"{name}.yaml")["cost"])[0])
    rows = values["per_device_train_batch_size"] * values.get("gradient_accumulation_steps", 1) * processes
    steps = values.get("max_steps") or ROWS[name] * values["num_train_epochs"] // rows
    needed = needed_operations(config, _views(config, values["max_length"]))
    needed *= 4 / 3 if "chunk" in values else 1.0  # vectors of the whole batch are computed first
    return {"rows": rows, "length": values["max_length"], "steps": steps, "operations": needed * rows * steps}


@cache
def finetuning(name: str) -> dict[str, float]:
    """Operations of the stages of a fine-tuning, each with what is mined and scored for it and one search with it."""
    values = read_configs([name])
    collection = Path(values["collection"]).name
    queries, passages, length = QUERIES[collection], PASSAGES[collection], values["max_length"]
    search = passages * _read(length)  # the corpus is encoded; the comparison of vectors is left out
    found: dict[str, float] = {}
    read: dict[str, int] = {}
    for stage in (stage for stage in _STAGES if stage in values):
        section = values[stage]
        if stage != "reranker":
            before = read.get(section.get("start", ""), values["max_length"])
            length = read[stage] = section.get("max_length", before)
            search = passages * _read(length)
        asked = _asked(section, queries)
        if stage == "reranker":
            pair, size, kept = _read(section["max_length"]), section["passages"], section.get("kept")
            trained = 3 * (kept or size) * (2 if section.get("r_drop") else 1)
            found[stage] = search + asked * pair * (trained + (size if kept else 0))
            continue
        texts = _read(QUERY) + section["passages"] * _read(length)
        chunked = section.get("chunk", 1 << 30) < section["per_device_train_batch_size"] * section["passages"]
        found[stage] = asked * texts * (4 if chunked else 3) + search
        if stage == "retriever2":
            minings = -(-asked // queries) if section.get("refresh") else 1
            found[stage] += minings * search
            if "filter_by" in values["mined"]:
                found[stage] += queries * values["mined"]["depth"] * _read(length, layers=6, hidden=384)
        if stage == "distilled":
            depth = 1 + section.get("depth", 200)
            found[stage] += queries * depth * _read(values["reranker"]["max_length"])
    return found


def hours(name: str) -> float:
    """GPU hours of a recipe, or of a fine-tuning up to a stage: `simlm_msmarco:retriever1`."""
    recipe, _, last = name.partition(":")
    if _method(recipe) is not None:
        return pretraining(recipe)["operations"] / RATE / 3600
    stages = finetuning(recipe)
    wanted = [*stages][: [*stages].index(last) + 1] if last else [*stages]
    return sum(stages[stage] for stage in wanted) / RATE / 3600


def filled(page: str) -> str:
    """A page with the tables of costs, and with the hours of every recipe that it gives as `` `recipe` N h ``."""
    tables = {"pretraining": _pretraining_table, "finetuning": _finetuning_table}
    page = _TABLE.sub(lambda found: found[1] + tables[found[2]](), page)
    return _FIGURE.sub(lambda found: f"`{found[1]}` {shown(hours(found[1]))} h", page)


def shown(value: float) -> str:
    """Two digits: 0.63, 5.4, 46, 1,200."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def _pretraining_table() -> str:
    lines = ["| recipe | rows a step | tokens | steps | operations | GPU hours |", "|---|---:|---:|---:|---:|---:|"]
    for name in recipes("pretrain"):
        cost = pretraining(name)
        lines.append(
            f"| `{name}` | {cost['rows']:,.0f} | {cost['length']:.0f} | {cost['steps']:,.0f} | "
            f"{cost['operations']:.1e} | {shown(hours(name))} |"
        )
    return "\n".join(lines) + "\n"


def _finetuning_table() -> str:
    lines = [f"| recipe | {' | '.join(_STAGES)} | all |", "|---|" + "---:|" * (len(_STAGES) + 1)]
    for name in recipes("finetune"):
        stages = finetuning(name)
        cells = [shown(stages[stage] / RATE / 3600) if stage in stages else "-" for stage in _STAGES]
        lines.append(f"| `{name}` | {' | '.join(cells)} | {shown(hours(name))} |")
    return "\n".join(lines) + "\n"


def _method(name: str) -> str | None:
    method = read_configs([name]).get("method")
    return method if method in METHODS else None


def _asked(section: Mapping[str, Any], queries: int) -> float:
    """Queries that a stage reads."""
    batch = section["per_device_train_batch_size"] * section.get("gradient_accumulation_steps", 1)
    steps = section.get("max_steps")
    return float(steps * batch if steps else section["num_train_epochs"] * queries)


def _read(length: int, layers: int = 12, hidden: int = 768) -> float:
    """Operations of reading a text once, forward: as `needed_operations` counts layers."""
    return 2 * layers * hidden * (length * (4 * hidden + 2 * 4 * hidden) + 2 * length**2)


def _views(config: BottleneckConfig, length: int) -> dict[str, dict[str, Tensor]]:
    """The views of a row, every text as long as it can be; which tokens are hidden does not matter, only how many."""
    found = {}
    for name, view in config.views.items():
        seen = config.decoder_specs[name].encoder if name in config.decoder_specs else name
        found[name] = dict(_texts(view, config.views[seen].rate, _length_of(length)))
    return found


def _length_of(length: int) -> Callable[[str], int]:
    lengths = {"first_half": length // 2 + 1, "second_half": length // 2 + 1, "query": WRITTEN}
    return lambda source: lengths.get(source, length)


def _texts(view: View, seen: float, length_of: Callable[[str], int]) -> Iterator[tuple[str, Tensor]]:
    sizes = [length_of(source) for source in view.sources]
    read, labels = torch.zeros(len(sizes), max(sizes)), torch.full((len(sizes), max(sizes)), IGNORED)
    drawn = torch.full(read.shape, -1.0)
    rate = {"none": 0.0, "complement": 1 - seen}.get(view.select, view.rate)
    for row, size in enumerate(sizes):
        hidden = round(rate * (size - 2))
        read[row, :size], drawn[row, :hidden] = 1, 1.0
        labels[row, : hidden if view.labels == "hidden" else size - 2] = 0
    yield "attention_mask", read
    yield "labels", labels
    if view.fill == "generator":
        yield "uniform", drawn


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(json.dumps({name: round(hours(name), 1) for use in ("pretrain", "finetune") for name in recipes(use)}))
