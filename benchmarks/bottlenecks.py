"""What comes through the bottleneck of a small encoder, by method, depth, masking and start?

    python benchmarks/bottlenecks.py COLLECTION [--model EMBEDDER] [--only NAME ...]

Encoders of the comparison's shape (`hf_dense.experiments.comparison`) are pre-trained on a collection, one thread, one
seed. Written for each: the losses and the bottleneck gap at the end (means over the last quarter of the steps), and of
the vectors of up to 2,000 passages before and after: their mean norm, the mean cosine of all pairs, the effective rank,
and nDCG@10 of the collection's queries among these passages, plain and whitened, as the probe measures it. For scale
stands what the loss is when nothing but the frequency of words is known. A complete variant is not run again.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, TrainingArguments

from hf_dense.data.collections import content_hash
from hf_dense.errors import InputError, run_main
from hf_dense.experiments.comparison import PRETRAINING, Settings, Variant, encoder_shape, make_start, shared_tokenizer
from hf_dense.pretraining.gap import SUFFIX
from hf_dense.pretraining.pretrain import PretrainingOptions, pretrain
from hf_dense.pretraining.probe import PLAIN, WHITENED, Pool, score_pool
from hf_dense.storage.files import write_text
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import describe_run, provenance

STEPS = 800
FORMS = {"decoder_loss": ".2f", f"decoder{SUFFIX}": ".3f"}  # of a table's cells
LOOKS = {"norm": ".1f", "cosine": ".2f", "effective rank": ".0f", "nDCG@10": ".3f", "nDCG@10, whitened": ".3f"}
END = 0.75  # of the steps; logs after it are averaged


@dataclass(frozen=True)
class Asked:
    """A variant.

    Args:
        method: that pre-trains.
        layers: of the encoder.
        changes: to the `PretrainingOptions`.
        training: changes to the shared training.
        start: name of the variant whose result it starts from; `--model` for the encoder that is given; None is
            random weights.
    """

    method: str = "condenser"
    layers: int = 2
    changes: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    start: str | None = None


def masked(rate: float) -> dict[str, Any]:
    """Condenser with another share of its words hidden."""
    return {"encoders": {"encoder": {"view": {"rate": rate}}}}


def head(**changes: Any) -> dict[str, Any]:
    """Condenser with another head."""
    return {"decoders": {"decoder": changes}}


# A head of random weights on a trained encoder learns at a rate of its own.
_NEW_HEAD = {"decoder_learning_rate": 1e-3}
VARIANTS = {
    "Condenser": Asked(),
    "RetroMAE": Asked("retromae", training={"max_steps": 2000}),
    "Condenser, from RetroMAE's encoder": Asked(
        changes=_NEW_HEAD, training={"max_steps": 400, "learning_rate": 5e-4}, start="RetroMAE"
    ),
    "Condenser, from a trained encoder of 6 layers": Asked(
        layers=6,
        changes={"bottleneck": "cls", **_NEW_HEAD},
        training={"max_steps": 200, "learning_rate": 1e-4, "logging_steps": 25},
        start="--model",
    ),
    "Condenser, 45 % masked": Asked(changes=masked(0.45)),
    "Condenser, 4 layers": Asked(layers=4),
    "masked language modelling, 15 %": Asked(changes={"decoders": {"decoder": None}}),
    "Condenser, learning rate 5e-4": Asked(training={"learning_rate": 5e-4}),
    "Condenser, head on the embeddings": Asked(changes=head(inputs="hidden:0")),
    "DupMAE": Asked("dupmae"),
    "Condenser, learning rate 5e-3": Asked(training={"learning_rate": 5e-3}),
    "Condenser, head of 1 layer": Asked(changes=head(layers=1)),
    "Condenser, 6 layers": Asked(layers=6),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, help="directory with dev judgements")
    parser.add_argument("--model", help="trained encoder of the variant that starts from one; left out without it")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/bottlenecks"), help="where models are written")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/bottlenecks.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings(str(options.collection), pretraining=PRETRAINING, seed=options.seed)
    pool, out = Pool.load(options.collection, "dev"), Output(options.out)
    tokenizer = shared_tokenizer(settings, out.path / f"tokenizer-{settings.vocabulary}")
    facts = {
        "word frequencies": word_entropy(pool, tokenizer),
        "settings": {"steps": STEPS, "pretraining": PRETRAINING, "shape": encoder_shape(settings)},
        "pool": {"queries": len(pool.queries), "passages": len(pool.passages)},
        **provenance(options.seed, options.collection.resolve().name, content_hash(options.collection)),
    }
    rows = json.loads(options.results.read_text(encoding="utf-8"))["variants"] if options.results.exists() else {}
    for name in options.only:
        if name not in rows and (VARIANTS[name].start != "--model" or options.model):
            rows[name] = run_variant(name, settings, options.model, pool, tokenizer, out)
            rows = {name: row | at_the_end(row) for name, row in rows.items()}
            write_text(options.results, json.dumps({**facts, "variants": rows}, indent=1) + "\n")
            print(table(rows))


def run_variant(
    name: str, settings: Settings, model: str | None, pool: Pool, tokenizer: Path, out: Output
) -> dict[str, Any]:
    """Pre-train one variant: what was asked, what was logged, and its vectors before and after."""
    asked, place = VARIANTS[name], out.at(folder(name))
    training = {**PRETRAINING, "save_strategy": "no", "report_to": "none", "max_steps": STEPS, **asked.training}
    start: dict[str, Any] = {"tokenizer": str(tokenizer)}
    if asked.start is None:
        start["backbone_config"] = {**encoder_shape(settings), "num_hidden_layers": asked.layers}
        before = str(start_of(settings, asked.layers, out))
    else:
        before = (model or "") if asked.start == "--model" else str(out.path / folder(asked.start))
        start = {"backbone": before}
    arguments = TrainingArguments(str(place.path), seed=settings.seed, disable_tqdm=True, **training)
    shared = {"method": asked.method, "corpus": settings.collection, "max_length": settings.max_length}
    result = pretrain(PretrainingOptions(**{**shared, **start, **asked.changes}), arguments)
    manifest = Manifest.load(result.path)
    assert manifest is not None
    keys = ("step", "encoder_loss", "encoder_bag_loss", *FORMS)
    return {
        **asdict(asked),
        "steps": arguments.max_steps,
        "before": look(before, pool, settings.max_length),
        "after": look(str(result.path), pool, settings.max_length),
        "curve": [{key: row[key] for key in keys if key in row} for row in result.history if "encoder_loss" in row],
        "seconds": manifest.facts["seconds"],
        "run": describe_run(),
    }


def folder(name: str) -> str:
    """Of a variant."""
    return re.sub(r"\W+", "-", name.replace("%", "percent").lower())


def start_of(settings: Settings, layers: int, out: Output) -> Path:
    """Random weights of that depth."""
    deep = Settings(**{**vars(settings), "layers": layers})
    return Path(make_start(deep, Variant("start"), out.at(f"random-{layers}")))


def at_the_end(row: Mapping[str, Any]) -> dict[str, float]:
    """What was logged in the last quarter of the steps, as means."""
    logs = [entry for entry in row["curve"] if entry["step"] > END * row["steps"]]
    found = {key: [entry[key] for entry in logs if key in entry] for key in ("encoder_loss", *FORMS)}
    return {key: sum(values) / len(values) for key, values in found.items() if values}


def look(model: str, pool: Pool, max_length: int) -> dict[str, float]:
    """The [CLS] vectors of the pool in figures."""
    passages, queries = encode(model, pool.passages, max_length), encode(model, pool.queries, max_length)
    found = score_pool(queries, passages, pool.grades)
    unit = torch.nn.functional.normalize(passages)
    pairs = len(unit) * (len(unit) - 1)
    return {
        "norm": passages.norm(dim=1).mean().item(),
        "cosine": ((unit.sum(dim=0) @ unit.sum(dim=0) - len(unit)) / pairs).item(),
        "effective rank": effective_rank(passages),
        "nDCG@10": found[PLAIN],
        "nDCG@10, whitened": found[WHITENED],
    }


@torch.no_grad()
def encode(model: str, texts: list[str], max_length: int) -> Tensor:
    """(texts, dim), float64: last states at [CLS]."""
    tokenizer, encoder = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    parts = []
    for at in range(0, len(texts), 64):
        batch = tokenizer(
            texts[at : at + 64], truncation=True, max_length=max_length, padding=True, return_tensors="pt"
        )
        parts.append(encoder(batch["input_ids"], batch["attention_mask"]).last_hidden_state[:, 0])
    return torch.cat(parts).double()


def effective_rank(vectors: Tensor) -> float:
    """e to the entropy of the singular values, which are divided by their sum: 1 where all vectors are multiples of
    one, the number of dimensions where none is preferred.

    Source: Roy and Vetterli, "The effective rank: a measure of effective dimensionality" (EUSIPCO 2007).

    >>> round(effective_rank(torch.eye(3).double()), 4), round(effective_rank(torch.ones(4, 3).double()), 4)
    (3.0, 1.0)
    """
    values = torch.linalg.svdvals(vectors)
    return torch.special.entr(values / values.sum()).sum().exp().item()


def word_entropy(pool: Pool, tokenizer: Path) -> float:
    """Entropy in nats of the pool's tokens: the least loss of a model that knows frequencies and no context."""
    ids = AutoTokenizer.from_pretrained(str(tokenizer))(pool.passages, add_special_tokens=False)["input_ids"]
    counts = torch.tensor(list(Counter(token for text in ids for token in text).values())).double()
    if not len(counts):
        raise InputError("The collection's passages hold no words.")
    return torch.special.entr(counts / counts.sum()).sum().item()


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown, a variant a row; figures before and after."""
    titles = ["", "steps", "encoder's loss", "decoder's loss", "gap", *LOOKS]
    cells = []
    for name, row in rows.items():
        before, after = row["before"], row["after"]
        line = [name, f"{row['steps']:,}", f"{row['encoder_loss']:.2f}"]
        line += [f"{row[key]:{form}}" if key in row else "-" for key, form in FORMS.items()]
        line += [f"{before[key]:{form}} to {after[key]:{form}}" for key, form in LOOKS.items()]
        cells.append(line)
    return markdown_table(titles, cells, set(range(1, len(titles))))


if __name__ == "__main__":
    run_main(main)
