"""Render the cards of the models that were trained and measured here, from their committed results.

python model_cards/render.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from hf_dense.hub.cards import CARD_TEMPLATE, Measured, render_model_card
from hf_dense.storage.files import write_text
from hf_dense.storage.manifest import COMPLETE, Manifest

HERE: Final = Path(__file__).parent
_COLLECTION: Final = ("collection", "dataset")  # as results call it, and as older ones do


def render_cards() -> dict[str, str]:
    """The files of this directory that are made, by name."""
    return {"template.md": CARD_TEMPLATE, "demo_dupmae.md": _demo(), "evidence_retromae.md": _evidence()}


def _demo() -> str:
    found = _read("demo_results.json")
    [dupmae] = [result for result in found["results"] if result["name"] == "DupMAE"]
    seconds = dupmae["seconds"]
    cost = f"It took {seconds['pretraining']:.0f} s of pre-training and {seconds['finetuning']:.0f} s of fine-tuning."
    results = [("python_docs", found["settings"]["split"], dupmae["metrics"])]
    return _render("demo_dupmae", "make demo", found, results, found["against_no_pretraining"]["DupMAE"], cost)


def _evidence() -> str:
    found = _read("evidence_results.json")
    by_seed = {f"python_docs, seed {seed}": found["by_seed"][f"RetroMAE, seed {seed}"] for seed in found["seeds"]}
    measured = {**by_seed, "python_docs, mean of the seeds": found["means"]["RetroMAE"]}
    results = [(task, found["settings"]["split"], metrics) for task, metrics in measured.items()]
    test = found["mrr@10_tests"]["RetroMAE against no pre-training"]
    return _render("evidence_retromae", "make evidence", found, results, test, "There is one model for each seed.")


def _render(
    name: str, command: str, found: dict[str, Any], results: list[Measured], test: dict[str, float], remark: str
) -> str:
    """The card of a model, whose name ends in its method, from what a comparison wrote and its test against none."""
    settings = {key: value for key, value in found["settings"].items() if key not in (*_COLLECTION, "seed", "split")}
    [collection] = [found["settings"][key] for key in _COLLECTION if key in found["settings"]]
    method = name.rpartition("_")[2]
    seeds = {"seeds": found["seeds"]} if "seeds" in found else {"seed": found["seed"]}
    difference = (
        f"MRR@10 {test['difference']:+.4f} against the same encoder without pre-training (95 % interval "
        f"{test['low']:+.4f} to {test['high']:+.4f}, p = {test['p_value']:.4f}, {test['queries']} queries)."
    )
    manifest = Manifest(
        "pre-training and fine-tuning",
        COMPLETE,
        {"method": method, **settings, **seeds, "content of the collection": found["data"]["content_hash"]},
        {"collection": collection},
        command=command,
        seed=seeds.get("seed"),
        run={key: found[key] for key in ("commit", "hardware", "date")},
        facts={
            "remarks": [remark, difference],
            "results": results,
            "limitations": [f"Its weights are not in this repository; `{command}` trains it again."],
        },
    )
    return render_model_card(name, manifest, "retriever")


def _read(name: str) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((HERE.parent / "docs" / name).read_text(encoding="utf-8"))
    return results


if __name__ == "__main__":
    for name, text in render_cards().items():
        write_text(HERE / name, text)
