"""Render one card per recipe of examples/configs, and the template beside them.

python model_cards/render.py
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hf_dense.commands.options import read_yaml
from hf_dense.evaluation.tables import load_published
from hf_dense.evaluation.tasks import BEIR, GROUPS
from hf_dense.hub.cards import CARD_TEMPLATE, ModelFacts, render_model_card, retriever_use
from hf_dense.storage.files import write_text

HERE: Final = Path(__file__).parent
CONFIGS: Final = HERE.parent / "examples" / "configs"
_LICENCE: Final = (
    "Apache-2.0, as the code and the recipe. The terms of the data that a model is trained on apply beside it."
)
_UNTRAINED: Final = "No model of this recipe has been trained and measured; the card says what it will be."
_ENGLISH: Final = "The settings are those for English text; other languages are not measured."
_PUBLISHED: Final = (
    "Published figures are of the papers' own models, trained on their data and fine-tuned in their ways; "
    "that this recipe reaches them has not been shown."
)


@dataclass(frozen=True)
class _Method:
    """Its name, what it does, its paper, and the names that published figures have it under."""

    name: str
    does: str
    paper: str
    published: tuple[str, ...] = ()


_METHODS: Final = {
    "cocondenser": _Method(
        "coCondenser",
        "Condenser's head, and contrast between spans of one document and those of others",
        "arXiv:2108.05540",
        ("coCondenser",),
    ),
    "condenser": _Method(
        "Condenser",
        "a head predicts hidden tokens from early states and the late [CLS]",
        "arXiv:2104.08253",
        ("Condenser",),
    ),
    "cotmae": _Method(
        "CoT-MAE", "a shallow decoder rebuilds the neighbouring span of a document", "arXiv:2208.07670", ("CoT-MAE",)
    ),
    "dupmae": _Method(
        "DupMAE",
        "RetroMAE's decoder, and the passage's bag of words from the encoder's ordinary states",
        "arXiv:2305.02564",
        ("DupMAE",),
    ),
    "master": _Method(
        "MASTER",
        "five shallow decoders, each with a task of its own, share one encoder",
        "arXiv:2212.07841",
        ("MASTER",),
    ),
    "query_cocondenser": _Method(
        "query-as-context coCondenser",
        "coCondenser, with a generated query in place of a neighbouring span",
        "arXiv:2212.09598",
    ),
    "query_cotmae": _Method(
        "query-as-context CoT-MAE",
        "CoT-MAE, with a generated query in place of a neighbouring span",
        "arXiv:2212.09598",
    ),
    "retromae": _Method(
        "RetroMAE", "a one-layer decoder rebuilds every token of a passage", "arXiv:2205.12035", ("RetroMAE",)
    ),
    "seed_encoder": _Method(
        "SEED-Encoder",
        "an autoregressive decoder that sees two tokens back and the bottleneck",
        "arXiv:2102.09206",
        ("SEED-Encoder", "SEED"),
    ),
    "simlm": _Method(
        "SimLM", "replaced language modelling through a bottleneck, with a generator", "arXiv:2207.02578", ("SimLM",)
    ),
}


def render_cards() -> dict[str, str]:
    """The files of this directory that are made, by name."""
    pretraining = sorted(path for path in CONFIGS.glob("*.yaml") if path.stem in _METHODS)
    finetuning = sorted((CONFIGS / "finetuning").glob("*.yaml"))
    return {
        "template.md": CARD_TEMPLATE,
        **{f"{path.stem}.md": _pretraining_card(path) for path in pretraining},
        **{f"{path.stem}.md": _finetuning_card(path) for path in finetuning},
    }


def _pretraining_card(path: Path) -> str:
    recipe, method = read_yaml(path), _METHODS[path.stem]
    processes = re.search(r"--num_processes \d+", path.read_text(encoding="utf-8"))
    launch = f"accelerate launch {processes[0]}" if processes else "accelerate launch"
    output, length = recipe["output_dir"], recipe["max_length"]
    return render_model_card(
        ModelFacts(
            name=path.stem,
            about=f"An encoder pre-trained with {method.name}: {method.does}. {_UNTRAINED}",
            use=f"Fine-tune it, or export it for Sentence-Transformers:\n\n```bash\n"
            f"hf-dense finetune PIPELINE.yaml --encoder {output}\n"
            f"hf-dense export {output} --out build/retriever --max_length {length}\n```",
            method=f"{method.name} ({method.paper})",
            base_model=_base_model(recipe),
            data=f"passages in `{recipe['corpus']}`, one's own",
            seed=recipe.get("seed"),
            command=f"{launch} examples/pretrain.py --config examples/configs/{path.name}",
            settings=path.read_text(encoding="utf-8"),
            limitations=[
                "It is pre-trained only: fine-tune it before searching with it.",
                _ENGLISH,
                *([_PUBLISHED] if method.published else []),
            ],
            license="apache-2.0",
            licence=_LICENCE,
            tags=[path.stem],
        ),
        published=_published(method, {*BEIR, *GROUPS["web"]}),
    )


def _finetuning_card(path: Path) -> str:
    recipe = read_yaml(path)
    key = Path(recipe["encoder"]).name.removesuffix("_wiki")
    method = _METHODS[key]
    on_msmarco, on_nq = (Path(recipe["collection"]).name == name for name in ("msmarco", "nq"))
    tasks = {*BEIR} if path.stem.endswith("_beir") else {*GROUPS["web"]} if on_msmarco else {"NQ"} if on_nq else set()
    published = _published(method, tasks, answers=on_nq)
    stages = [name for name in ("retriever1", "retriever2", "reranker", "distilled") if name in recipe]
    retrievers = [name for name in stages if name != "reranker"]
    data = {"msmarco": "MS MARCO passages", "nq": "Natural Questions, in DPR's form"}
    return render_model_card(
        ModelFacts(
            name=path.stem,
            about=f"A retriever, fine-tuned from an encoder of {method.name}: {method.does}. {_UNTRAINED}",
            use=retriever_use(f"{recipe['output_dir']}/{retrievers[-1]}/model"),
            method=f"{method.name} ({method.paper}), then the stages {', '.join(stages)}",
            base_model=_base_model(read_yaml(CONFIGS / f"{key}.yaml")),
            data=data.get(Path(recipe["collection"]).name, "one's own documents and queries"),
            datasets=["mteb/msmarco"] if on_msmarco else [],
            seed=recipe["seed"],
            command=f"hf-dense finetune examples/configs/finetuning/{path.name}",
            settings=path.read_text(encoding="utf-8"),
            limitations=[
                f"It reads at most {recipe['max_length']} tokens of a text; what follows is cut off.",
                _ENGLISH,
                *([_PUBLISHED] if published else []),
            ],
            license="apache-2.0",
            licence=_LICENCE,
            tags=[key],
        ),
        published=published,
    )


def _base_model(recipe: dict[str, Any]) -> str | None:
    """The encoder of the Hub that a recipe starts from, by way of other recipes where it names their output."""
    backbone: str | None = recipe.get("backbone")
    if backbone is None or not backbone.startswith("build/"):
        return backbone
    return _base_model(read_yaml(CONFIGS / f"{Path(backbone).name}.yaml"))


def _published(method: _Method, tasks: Collection[str], answers: bool = False) -> list[dict[str, Any]]:
    """Figures published of a method's models on some tasks; of Natural Questions by answers, or by passages."""
    rows = []
    for row in load_published():
        values = {
            task: shown
            for task, metrics in row["values"].items()
            if task in tasks
            and (shown := {key: metrics[key] for key in metrics if key.startswith("answer") == answers})
        }
        if row["name"].partition(",")[0] in method.published and values:  # behind the comma: how it was fine-tuned
            rows.append({**row, "values": values})
    return rows


if __name__ == "__main__":
    for name, text in render_cards().items():
        write_text(HERE / name, text)
