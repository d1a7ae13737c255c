"""Cards of models, from the manifests of their directories: nothing is said that no manifest holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Final

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from hf_dense.data.hub_names import divided
from hf_dense.errors import InputError
from hf_dense.hub.lineage import FOREIGN, FROM_HUB, Step, languages_of, licence_of, steps_of
from hf_dense.storage.files import write_text
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.markdown import escaped, markdown_table

CARD_TEMPLATE: Final = """---
{metadata}
---

# {name}

{about}

## Use

{use}

## How it was made

{making}

```bash
{commands}
```

Settings of the last step:

```yaml
{settings}
```

## Results

{results}

## Limitations

{limitations}

## Licence

{licence}
"""

Measured = tuple[str, str, Mapping[str, float]]
"""What was measured: the name of the task, the split, and the metrics."""

_NOT_RECORDED: Final = "not recorded"

_BY_ARCHITECTURE: Final = {
    "ForSequenceClassification": "cross-encoder",
    "ForPreTraining": "pre-training checkpoint",
    "ForConditionalGeneration": "generator of queries",
    "ForCausalLM": "generator of continuations",
    "LMHeadModel": "generator of continuations",
}


@dataclass(frozen=True)
class Form:
    """What models of one form are, for whom, and how they are used (Python; `{model}` is the directory or Hub id, and
    `{revision}` an argument that names the branch, where one does)."""

    about: str
    library: str
    task: str
    use: str


_RETRIEVER_USE: Final = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{model}"{revision}{options})
queries = model.encode_query(["what is a bottleneck"])
passages = model.encode_document(["A bottleneck squeezes a text into one vector."])
print(model.similarity(queries, passages))"""

_ONNX_USE: Final = """import json
from pathlib import Path

import onnxruntime
from huggingface_hub import snapshot_download
from transformers import AutoTokenizer

model = Path("{model}")
folder = model if model.is_dir() else Path(snapshot_download(str(model){revision}))
tokenizer = AutoTokenizer.from_pretrained(folder)
session = onnxruntime.InferenceSession(folder / "model.onnx")
facts = json.loads((folder / "onnx.json").read_text())


def encode(texts, role):  # whose prompt, if it has one, is in onnx.json
    texts = [facts["prompts"].get(role, "") + text for text in texts]
    longest = facts.get("query_length") if role == "query" else None
    batch = tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="np")
    return session.run(None, {{name: batch[name] for name in facts["inputs"]}})[0]


queries = encode(["what is a bottleneck"], "query")
passages = encode(["A bottleneck squeezes a text into one vector."], "document")
print(facts["similarity"])  # that queries and passages are compared by"""

_NO_POOLER: Final = " A pooler that transformers may miss when it loads this is read by nothing."

FORMS: Final = {
    "retriever": Form(
        "A retriever: it turns queries and passages into vectors whose similarity is the passage's relevance."
        + _NO_POOLER,
        "sentence-transformers",
        "sentence-similarity",
        _RETRIEVER_USE.replace("{options}", ""),
    ),
    "hybrid retriever": Form(
        "A retriever of DupMAE's hybrid vectors: a dense projection, and a score for every token of the vocabulary."
        + _NO_POOLER,
        "sentence-transformers",
        "sentence-similarity",
        _RETRIEVER_USE.replace("{options}", ", trust_remote_code=True"),
    ),
    "cross-encoder": Form(
        "A cross-encoder: it reads a query and a passage together and scores them.",
        "sentence-transformers",
        "text-ranking",
        "from sentence_transformers import CrossEncoder\n\n"
        'model = CrossEncoder("{model}"{revision})\n'
        'print(model.predict([("what is a bottleneck", "A bottleneck squeezes a text into one vector.")]))',
    ),
    "encoder": Form(
        "An encoder of texts, to be fine-tuned." + _NO_POOLER,
        "transformers",
        "feature-extraction",
        "from transformers import AutoModel, AutoTokenizer\n\n"
        'model = AutoModel.from_pretrained("{model}"{revision})\n'
        'tokenizer = AutoTokenizer.from_pretrained("{model}"{revision})\n'
        'states = model(**tokenizer("A bottleneck squeezes a text.", return_tensors="pt")).last_hidden_state',
    ),
    "pre-training checkpoint": Form(
        "An encoder with the decoders that it was pre-trained with, to be fine-tuned or trained on.",
        "transformers",
        "feature-extraction",
        "from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer\n\n"
        'encoder = AutoModel.from_pretrained("{model}"{revision}, trust_remote_code=True)\n'
        'tokenizer = AutoTokenizer.from_pretrained("{model}"{revision}, trust_remote_code=True)\n'
        'batch = tokenizer(["A bottleneck squeezes a text."], return_tensors="pt")\n'
        "vectors = encoder(**batch).pooler_output  # the bottleneck\n"
        'everything = AutoModelForPreTraining.from_pretrained("{model}"{revision}, trust_remote_code=True)',
    ),
    **{
        name: Form(
            f"A language model that writes {what}, for hf-dense data generate.",
            "transformers",
            "text-generation",
            f"from transformers import {auto}, AutoTokenizer\n\n"
            f'model = {auto}.from_pretrained("{{model}}"{{revision}})\n'
            'tokenizer = AutoTokenizer.from_pretrained("{model}"{revision})\n'
            'written = model.generate(**tokenizer("A bottleneck squeezes a text.", return_tensors="pt"))',
        )
        for name, what, auto in (
            ("generator of queries", "queries of a passage", "AutoModelForSeq2SeqLM"),
            ("generator of continuations", "how a passage goes on", "AutoModelForCausalLM"),
        )
    },
    "ONNX retriever": Form(
        "A retriever as an ONNX file: from tokens to vectors whose similarity is the passage's relevance.",
        "onnx",
        "sentence-similarity",
        _ONNX_USE,
    ),
}


def write_model_card(directory: str | Path, manifest: Manifest, *, name: str | None = None) -> Path:
    """Write a model's `README.md`; one that is there is replaced.

    Args:
        directory: of the model.
        manifest: of the directory, as it will be. Its `facts` may hold `lineage` (see `lineage_of`), `results` (what
            was measured of the model), `max_length` and `query_length` where it was not made from them, and sentences
            for people: `remarks` on the model, and `limitations`.
        name: directory or Hub id that the model is loaded by; `directory` where None.

    Returns:
        The path of the card.

    Raises:
        InputError: there is no model, or a task and split is given twice.
    """
    card = Path(directory) / "README.md"
    write_text(card, render_model_card(name or str(directory), manifest, form_of(card.parent)))
    return card


def form_of(directory: Path) -> str:
    """The form, a name in `FORMS`, of the model in a directory.

    Raises:
        InputError: there is none.
    """
    if (directory / "onnx.json").is_file():
        return "ONNX retriever"
    modules, config = directory / "modules.json", directory / "config.json"
    if not (modules.is_file() or config.is_file()):
        raise InputError(f"There is no model in {directory}; write it first, then its card.")
    settings = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    named = settings.get("architectures")
    architecture = str(named[0]) if isinstance(named, list) and named else ""
    if modules.is_file() and not architecture.endswith("ForSequenceClassification"):
        return "hybrid retriever" if "HybridHead" in modules.read_text(encoding="utf-8") else "retriever"
    return next((form for end, form in _BY_ARCHITECTURE.items() if architecture.endswith(end)), "encoder")


def render_model_card(name: str, manifest: Manifest, form: str, revision: str | None = None) -> str:
    """The text of a card; see `write_model_card`. `form` is a name in `FORMS`, `revision` a branch of the Hub.

    Raises:
        InputError: a task and split is given twice.
    """
    results: Sequence[Measured] = manifest.facts.get("results", [])
    if len({(task, split) for task, split, _ in results}) < len(results):
        raise InputError("Two results are of the same task and split; give each once.")
    title, kind, branch = PurePath(name).name, FORMS[form], f', revision="{revision}"' if revision else ""
    steps = [step for step in steps_of(manifest) if step.kind not in (FROM_HUB, FOREIGN)]
    card = CARD_TEMPLATE.format(
        metadata=_metadata(title, manifest, kind, results).to_yaml(),
        name=title,
        about="\n".join([kind.about, *manifest.facts.get("remarks", [])]),
        use=f"```python\n{kind.use.format(model=name, revision=branch)}\n```",
        making=_table(steps),
        commands=_commands(steps),
        settings=settings_as_yaml(manifest),
        results=_results(results),
        limitations="\n".join(f"- {sentence}" for sentence in _limitations(manifest, form)),
        licence=_licence(*licence_of(manifest)),
    )
    return str(ModelCard(card))


def settings_as_yaml(manifest: Manifest) -> str:
    """What an output depends on beside its sources, without what was left unset or all configurations have."""
    from transformers import PreTrainedConfig  # takes a second

    settings = {key: value for key, value in manifest.made_from.items() if key not in manifest.sources}
    said = _said(settings, json.loads(PreTrainedConfig().to_json_string(use_diff=False)))
    return yaml.safe_dump(said, sort_keys=False, allow_unicode=True).strip()


def _said(settings: Mapping[str, object], usual: Mapping[str, object]) -> dict[str, object]:
    """Settings without None and, in configurations of models, without what is usual in them."""
    of_model = "model_type" in settings
    return {
        key: _said(value, usual) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if value is not None and not (of_model and key in usual and value == usual[key])
    }


def _metadata(title: str, manifest: Manifest, form: Form, results: Sequence[Measured]) -> ModelCardData:
    steps = steps_of(manifest)
    methods = [step.method for step in steps if step.method]
    own = ["sentence-transformers"] if form.library == "sentence-transformers" else []
    return ModelCardData(
        language=languages_of(manifest) or None,
        license=licence_of(manifest)[0],
        library_name=form.library,
        pipeline_tag=form.task,
        tags=[*own, "hf_dense", "dense-retrieval", *dict.fromkeys(methods)],
        base_model=_base_models(steps),
        model_name=title if results else None,
        eval_results=[
            EvalResult(
                task_type="information-retrieval",
                dataset_type=task,  # the Hub's index tells results apart by this, not by the name
                dataset_name=task,
                dataset_split=split,
                metric_type=metric,
                metric_value=value,
            )
            for task, split, metrics in results
            for metric, value in metrics.items()
        ]
        or None,
    )


def _base_models(steps: Sequence[Step]) -> str | list[str] | None:
    """The models of the Hub that it was made from: one, or several that were merged."""
    starts = [divided(step.start or "")[0] for step in steps if step.kind == FROM_HUB]
    names = list(dict.fromkeys(filter(None, starts)))
    return names if len(names) > 1 else names[0] if names else None


def _table(steps: Sequence[Step]) -> str:
    """The steps, a column each, as far as they are recorded."""
    rows: dict[str, list[str | None]] = {
        "method": [step.method for step in steps],
        "starts from": [step.start or ("random weights" if _from_scratch(step) else _NOT_RECORDED) for step in steps],
        "reads": [step.data for step in steps],
        "steps of optimisation": [None if step.steps is None else f"{step.steps:,}" for step in steps],
        "seed": [None if step.seed is None else str(step.seed) for step in steps],
        "commit": [step.commit or _NOT_RECORDED for step in steps],
        "hardware": [step.hardware or _NOT_RECORDED for step in steps],
        "date": [step.date or _NOT_RECORDED for step in steps],
        "licence": [None if step.licence == "other" else step.licence for step in steps],
    }
    lines = [[name, *(cell or "-" for cell in cells)] for name, cells in rows.items() if any(cells)]
    return markdown_table(["", *_titles(steps)], lines)


def _from_scratch(step: Step) -> bool:
    """Whether a step began with random weights, as a pre-training does, and what draws the weights of an encoder."""
    return step.start is None and (step.method is not None or step.kind == "encoder")


def _titles(steps: Sequence[Step]) -> list[str]:
    """What each step made; of one kind in several steps with a number."""
    kinds = [step.kind for step in steps]
    return [f"{kind} {kinds[: at + 1].count(kind)}" if kinds.count(kind) > 1 else kind for at, kind in enumerate(kinds)]


def _commands(steps: Sequence[Step]) -> str:
    """The command of every step; one that made several in a row, as adapt does, is there once."""
    titled = zip(_titles(steps), (step.command for step in steps), strict=True)
    return "\n".join(
        f"# {', '.join(title for title, _ in made)}\n{command or '# not recorded'}"
        for command, made in groupby(titled, key=itemgetter(1))
    )


def _results(results: Sequence[Measured]) -> str:
    if not results:
        return "None was recorded with this model."
    rows = [
        f"| {escaped(task)} | {escaped(split)} | {metric} | {value:.4f} |"
        for task, split, metrics in results
        for metric, value in metrics.items()
    ]
    return "\n".join(["| task | split | metric | |", "|---|---|---|---:|", *rows])


def _limitations(manifest: Manifest, form: str) -> list[str]:
    found: list[str] = list(manifest.facts.get("limitations", []))
    read = {**manifest.made_from, **manifest.facts}
    length = read.get("max_length")
    if length and form != "pre-training checkpoint":  # which was trained on so many, and reads more
        queries = read.get("query_length")
        of_query = f", and {queries} of a query" if queries else ""
        of_what = "a query and a passage together" if form == "cross-encoder" else f"a text{of_query}"
        found.append(f"It reads at most {length} tokens of {of_what}; what follows is cut off.")
    if form == "pre-training checkpoint":
        found.append(
            "Sentence-Transformers takes it for a plain encoder, and pools the mean of its states; `hf-dense export` "
            "makes a retriever of it, whose vectors are its bottlenecks."
        )
    first, *more = steps = steps_of(manifest)
    if _from_scratch(first) and not any(step.method or step.steps for step in steps):
        found.append("It was not trained: its weights are random.")
    unknown = [first] if first.kind != FROM_HUB else []
    unknown += [step for step in more if step.kind == FOREIGN]
    found += [f"How `{step.start}` was made is not recorded." for step in unknown if step.start]
    return found or ["None was recorded."]


def _licence(licence: str, whose: str | None) -> str:
    if licence == "other":
        return "None was named when this was written; the terms of what it was made from apply."
    named = f", which {whose} has" if whose else ""
    return f"`{licence}`{named}, beside the terms of what it was made from."
