"""What comes through the bottleneck of a small encoder, by method, depth, masking and start?

    python benchmarks/bottlenecks.py COLLECTION [--model EMBEDDER] [--only NAME ...]

Encoders of the comparison's shape (`hf_dense.experiments.comparison`) are pre-trained on a collection, one thread, one
seed. Written for each: the losses and the bottleneck gap at the end (means over the last five logs), and of the vectors
of up to 2,000 passages before and after: their mean norm, the mean cosine of all pairs, the effective rank, and nDCG@10
of the collection's queries among these passages, plain and whitened, as the probe measures it. For scale stands what
the loss is when nothing but the frequency of words is known. A variant that is complete is not run again.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
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
TRAINED = {"max_steps": 150, "learning_rate": 1e-4, "logging_steps": 10}  # of what starts from a trained encoder
NO_DECODER: dict[str, Any] = {"decoders": {"decoder": None}}
FORMS = {"decoder_loss": ".2f", f"decoder{SUFFIX}": ".3f"}  # of a table's cells
LOOKS = {"norm": ".1f", "cosine": ".2f", "effective rank": ".0f", "nDCG@10": ".3f", "nDCG@10, whitened": ".3f"}
LAST = 5  # logs, whose means are reported


def masked(rate: float) -> dict[str, Any]:
    """Condenser with another share of its words hidden."""
    return {"encoders": {"encoder": {"view": {"rate": rate}}}}


# name: method, layers of the encoder, changes to the method, changes to the training
VARIANTS: dict[str, tuple[str, int, dict[str, Any], dict[str, Any]]] = {
    "Condenser": ("condenser", 2, {}, {}),
    "Condenser, from a trained encoder": ("condenser", 0, {"bottleneck": "cls"}, TRAINED),
    "RetroMAE": ("retromae", 2, {}, {"max_steps": 2000}),
    "Condenser, 45 % masked": ("condenser", 2, masked(0.45), {}),
    "masked language modelling, 15 %": ("condenser", 2, NO_DECODER, {}),
    "Condenser, learning rate 5e-4": ("condenser", 2, {}, {"learning_rate": 5e-4}),
    "Condenser, 4 layers": ("condenser", 4, {}, {}),
    "Condenser, head on the embeddings": ("condenser", 2, {"decoders": {"decoder": {"inputs": "hidden:0"}}}, {}),
    "DupMAE": ("dupmae", 2, {}, {}),
    "Condenser, learning rate 5e-3": ("condenser", 2, {}, {"learning_rate": 5e-3}),
    "Condenser, head of 1 layer": ("condenser", 2, {"decoders": {"decoder": {"layers": 1}}}, {}),
    "Condenser, 6 layers": ("condenser", 6, {}, {}),
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
        if name not in rows and (VARIANTS[name][1] or options.model):
            rows[name] = run_variant(name, settings, options.model, pool, tokenizer, out)
            write_text(options.results, json.dumps({**facts, "variants": rows}, indent=1) + "\n")
            print(table(rows))


def run_variant(
    name: str, settings: Settings, model: str | None, pool: Pool, tokenizer: Path, out: Output
) -> dict[str, Any]:
    """Pre-train one variant: what was asked, what was logged, and its vectors before and after."""
    method, layers, changes, training = VARIANTS[name]
    place = out.at(name.lower().replace(",", "").replace("%", "percent").replace(" ", "-"))
    shape = {**encoder_shape(settings), "num_hidden_layers": layers}
    start: dict[str, Any] = {"backbone_config": shape, "tokenizer": str(tokenizer)} if layers else {"backbone": model}
    given = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "max_steps": STEPS}
    arguments = TrainingArguments(str(place.path), seed=settings.seed, **{**PRETRAINING, **given, **training})
    asked = PretrainingOptions(
        method=method, corpus=settings.collection, max_length=settings.max_length, **start, **changes
    )
    before = model if not layers else start_of(settings, layers, out)
    result = pretrain(asked, arguments)
    logs = [row for row in result.history if "encoder_loss" in row]
    means = {key: mean(logs, key) for key in ("encoder_loss", "encoder_bag_loss", *FORMS)}
    manifest = Manifest.load(result.path)
    assert manifest is not None
    return {
        "method": method,
        "layers": layers,
        "changes": changes,
        "steps": arguments.max_steps,
        "learning rate": arguments.learning_rate,
        **{key: value for key, value in means.items() if value is not None},
        "before": look(str(before), pool, settings.max_length),
        "after": look(str(result.path), pool, settings.max_length),
        "curve": [{key: row[key] for key in ("step", *means) if key in row} for row in logs],
        "seconds": manifest.facts["seconds"],
        "run": describe_run(),
    }


def start_of(settings: Settings, layers: int, out: Output) -> Path:
    """Random weights of that depth."""
    deep = Settings(**{**vars(settings), "layers": layers})
    return Path(make_start(deep, Variant("start"), out.at(f"random-{layers}")))


def mean(logs: list[Mapping[str, Any]], key: str) -> float | None:
    """Of the last logs; None where it was not logged."""
    values = [row[key] for row in logs if key in row][-LAST:]
    return sum(values) / len(values) if values else None


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
    head = ["", "steps", "encoder's loss", "decoder's loss", "gap", *LOOKS]
    cells = []
    for name, row in rows.items():
        before, after = row["before"], row["after"]
        line = [name, f"{row['steps']:,}", f"{row['encoder_loss']:.2f}"]
        line += [f"{row[key]:{form}}" if key in row else "-" for key, form in FORMS.items()]
        line += [f"{before[key]:{form}} to {after[key]:{form}}" for key, form in LOOKS.items()]
        cells.append(line)
    return markdown_table(head, cells, set(range(1, len(head))))


if __name__ == "__main__":
    run_main(main)
