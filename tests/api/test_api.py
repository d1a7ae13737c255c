"""The verbs as functions: each once on tiny models, told what it does not know, and done once only."""

from __future__ import annotations

import inspect
import json
import logging
import os
import random
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from shutil import copytree
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from huggingface_hub import HfApi
from pandas import DataFrame  # type: ignore[import-untyped]
from sentence_transformers import SentenceTransformer
from tiny_retriever import LETTERS, tiny_tokenizer, write_dataset, write_embedder, write_retriever
from torch.nn import Identity, Sequential

import hf_dense
from hf_dense.api.calls import read_call
from hf_dense.api.results import Evaluation, Result
from hf_dense.commands.finetune import BothOptions, MeasuringOptions, SingleOptions, StageOptions
from hf_dense.errors import InputError
from hf_dense.experiments.adaptation.options import AdaptOptions
from hf_dense.experiments.adaptation.report import Adaptation
from hf_dense.pretraining.options import PretrainingOptions
from hf_dense.storage.manifest import Manifest

QUICK = {"max_steps": 2, "per_device_train_batch_size": 8, "use_cpu": True, "report_to": "none", "disable_tqdm": True}
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
SCRIPT = "<script>alert(1)</script>"


def write_documents(folder: Path, count: int = 8) -> Path:
    """Markdown with headings, of random sentences; the first title is a script."""
    folder.mkdir()
    draw = random.Random(0)
    for page in range(count):
        words = ["".join(draw.choices(LETTERS, k=4)) for _ in range(120)]
        sentences = [" ".join(words[at : at + 10]).capitalize() + "." for at in range(0, 120, 10)]
        title = f"Of {words[0]} and {words[1]}" if page else f"Of `{SCRIPT}`"
        half = [" ".join(sentences[:6]), f"## How to {words[2]} {words[3]}", " ".join(sentences[6:])]
        (folder / f"{page}.md").write_text("\n\n".join([f"# {title}", *half]))
    return folder


def stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def done_once(call: Callable[[], Any], folder: Path) -> Any:
    """The result of a call, which writes nothing when it is made again, and gives the same."""
    first = call()
    before = stamps(folder)
    second = call()
    assert stamps(folder) == before
    assert repr(second) == repr(first)
    return first


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("api") / "data")


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_retriever(tmp_path_factory.mktemp("api") / "retriever")


def test_documents_become_a_corpus_and_a_collection(tmp_path: Path) -> None:
    documents, out = write_documents(tmp_path / "documents"), tmp_path / "corpus"
    corpus = done_once(lambda: hf_dense.Corpus.from_documents(documents, out=out, length=30), out)
    assert len(corpus) == len([*corpus]) == len(corpus[:]) > 16
    assert corpus[1:3] == [corpus[1], corpus[2]]
    assert {"id", "title", "text"} <= {*corpus[0]}
    shown = corpus._repr_html_()
    assert shown.count("<tr>") == 6
    assert SCRIPT not in shown
    assert "&lt;script&gt;" in shown
    made = done_once(lambda: corpus.queries(out=tmp_path / "made", limit=12), tmp_path / "made")
    assert made.figures["queries of train"] > 4
    assert Manifest.load(made).command.startswith("hf-dense data queries")
    assert len(hf_dense.Corpus(made)) == len(corpus)


def test_a_directory_without_passages_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        hf_dense.Corpus(tmp_path / "nowhere")


def test_pretrain_takes_the_options_of_both_and_of_recipes(data: Path, tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    given = {"corpus": data, "backbone_config": SHAPE, "tokenizer": tmp_path / "tokenizer", "max_length": 32}
    (tmp_path / "mine.yaml").write_text("method: retromae\nmax_steps: 100\nsave_strategy: 'no'\n")

    def call() -> Any:
        places = {"config": tmp_path / "mine.yaml", "out": tmp_path / "out"}
        return hf_dense.pretrain(**places, **given, **QUICK, logging_steps=1, learning_rate=1e-3)

    result = done_once(call, tmp_path / "out")
    assert result.figures["step"] == 2, "what is given wins over the file"
    assert {"loss", "encoder_loss", "decoder_loss"} <= {*result.figures}
    assert len(result.history) >= 2
    assert "encoder_loss" in result._repr_html_()
    exported = hf_dense.export(result, out=tmp_path / "exported", max_length=24)
    assert SentenceTransformer(str(exported)).max_seq_length == 24


@pytest.mark.slow
def test_finetune_trains_on_what_mine_found(data: Path, retriever: Path, tmp_path: Path) -> None:
    lists = done_once(lambda: hf_dense.mine(data, out=tmp_path / "mined", model=retriever, depth=5), tmp_path / "mined")
    assert isinstance(lists, Result)

    def call() -> Any:
        options = {"lists": lists, "passages": 3, "measure_on": "test", **QUICK}
        return hf_dense.finetune(model=retriever, collection=data, out=tmp_path / "tuned", logging_steps=1, **options)

    result = done_once(call, tmp_path / "tuned" / "model")
    assert SentenceTransformer(str(result)).get_embedding_dimension() == 32
    assert result.path == tmp_path / "tuned" / "model"
    assert result.figures["step"] == 2
    assert "20 lists" in result.measured
    assert "nDCG@10" in result._repr_html_()


def test_stages_of_a_file_are_named(data: Path, retriever: Path, tmp_path: Path) -> None:
    few = {"max_steps": 2, "per_device_train_batch_size": 4, "passages": 2, "logging_steps": 1, "use_cpu": True}
    stages = {"max_length": 16, "bm25": {"depth": 9}, "retriever1": few, "measure_on": "test"}
    (tmp_path / "stages.yaml").write_text(json.dumps(stages))  # JSON is YAML
    given = {"model": retriever, "collection": data, "config": tmp_path / "stages.yaml"}
    with pytest.raises(InputError, match="--max_steps=2 is of one training"):
        hf_dense.finetune(**given, out=tmp_path / "run", max_steps=2)
    result = hf_dense.finetune(**given, out=tmp_path / "run")
    assert result.path == tmp_path / "run"
    assert result.models == {"retriever1": tmp_path / "run" / "retriever1" / "model"}
    assert "| retriever1 |" in result.measured


def test_evaluate_gives_the_table_and_the_figures(data: Path, retriever: Path, tmp_path: Path) -> None:
    def call() -> Evaluation:
        return hf_dense.evaluate({"<mine>": retriever}, data, out=tmp_path / "found", dimensions=[16], rerank=None)

    result = done_once(call, tmp_path / "found" / "<mine>")
    assert [*result.figures] == ["bm25", "<mine>", "<mine> (16 dimensions)"]
    assert 0 <= result.figures["<mine>"]["data-test"]["ndcg@10"] <= 1
    assert "| <mine> |" in result.table
    assert "| &lt;mine&gt; |" in result._repr_html_()
    assert "<mine>" not in result._repr_html_()


def test_publish_gives_the_address(hub_here: HfApi, retriever: Path) -> None:
    result = hf_dense.publish(retriever, "someone/from-python")
    assert result.figures["address"].endswith("someone/from-python")
    assert "model.safetensors" in hub_here.list_repo_files("someone/from-python")


def test_logging_stays_the_callers(
    data: Path, retriever: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler of the root would make an application's own `basicConfig`, which comes later, do nothing."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("hf_dense"), "level", logging.NOTSET)
    hf_dense.evaluate({"mine": retriever}, data, out=tmp_path / "found", no_bm25=True)
    hf_dense.export(retriever, out=tmp_path / "exported")
    assert logging.getLogger().handlers == []
    assert logging.getLogger("hf_dense").level == logging.NOTSET


UNKNOWN = {
    "adapt": (lambda out: hf_dense.adapt("docs", out=out, buget="10m"), "'buget' is no option of adapt; .* budget?"),
    "pretrain": (lambda out: hf_dense.pretrain(out=out, lerning_rate=1), "'lerning_rate' .* learning_rate?"),
    "finetune": (lambda out: hf_dense.finetune(out=out, colection="data"), "'colection' .* collection?"),
    "mine": (lambda out: hf_dense.mine("data", out=out, dept=3), "'dept' is no option of mine; did you mean depth?"),
    "evaluate": (lambda out: hf_dense.evaluate("bm25", "data", out=out, dimension=[3]), "mean dimensions?"),
    "export": (lambda out: hf_dense.export("model", out=out, max_len=3), "did you mean max_length?"),
    "publish": (lambda out: hf_dense.publish("model", "me/it", secret=True), "'secret' is no option of publish."),
    "corpus": (lambda out: hf_dense.Corpus.from_documents("d", out=out, lenght=3), "did you mean length?"),
}


@pytest.mark.parametrize(("call", "sentence"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_an_unknown_keyword_is_said_to_be_one(call: Callable[[Path], Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        call(tmp_path / "out")
    assert not (tmp_path / "out").exists()


WRONG = {
    "number": (lambda out: hf_dense.mine("data", out=out, depth="many"), "--depth: invalid int value: 'many'"),
    "choice": (lambda out: hf_dense.export("model", out=out, kind="best"), "--kind: invalid choice: 'best'"),
    "trainer": (
        lambda out: hf_dense.pretrain(method="retromae", corpus="c", out=out, max_steps="many"),
        "--max_steps.*: invalid int value",
    ),
    "absent": (lambda out: hf_dense.pretrain(method="retromae", out=out), "Name the corpus"),
    "nowhere": (lambda out: hf_dense.finetune(model="m", collection="c", config="nowhere.yaml"), "nowhere.yaml"),
    "name": (
        lambda out: hf_dense.evaluate({"lr=1e-4": "bm25"}, "data", out=out),
        "A model is called 'lr=1e-4'; name it without = and /.",
    ),
    "a name that is none": (
        lambda out: hf_dense.evaluate({1: "bm25"}, "data", out=out),  # type: ignore[dict-item]
        "A model is called 1; name it",
    ),
    "no model": (lambda out: hf_dense.evaluate({}, "data", out=out), "models is empty; give one"),
    "no task": (lambda out: hf_dense.evaluate("bm25", [], out=out), "tasks is empty"),
    "no document that is found": (
        lambda out: hf_dense.Corpus.from_documents(out.glob("*.md"), out=out),  # type: ignore[arg-type]
        "sources is empty",
    ),
    "no task that is found": (
        lambda out: hf_dense.evaluate(iter(["bm25"]), out.glob("*"), out=out),  # type: ignore[arg-type]
        "tasks is empty",
    ),
    "no list": (
        lambda out: hf_dense.finetune(model="m", collection="c", lists=[], out=out),
        "lists is empty; give one, or several",
    ),
    "no list that is found": (
        lambda out: hf_dense.finetune(model="m", collection="c", lists=out.glob("lists*"), out=out),  # type: ignore[arg-type]
        "lists is empty",
    ),
    "no document": (lambda out: hf_dense.Corpus.from_documents([], out=out), "sources is empty"),
    "a model": (
        lambda out: hf_dense.evaluate({"mine": Namespace()}, "data", out=out),  # type: ignore[dict-item]
        "not an object of the type Namespace; save it",
    ),
    "models that are none": (
        lambda out: hf_dense.evaluate(None, "data", out=out),
        "not an object of the type NoneType",
    ),  # type: ignore[arg-type]
    "a loaded model": (
        lambda out: hf_dense.evaluate(Sequential(Identity()), "data", out=out),  # type: ignore[arg-type]
        "not an object of the type Sequential; save it",
    ),
    "a task": (
        lambda out: hf_dense.evaluate("bm25", Dataset.from_dict({}), out=out),  # type: ignore[arg-type]
        "not an object of the type Dataset; write it with to_parquet, and give its path",
    ),
    "a recipe": (lambda out: hf_dense.finetune(config=5, out=out), "not an object of the type int"),  # type: ignore[arg-type]
    "a corpus": (
        lambda out: hf_dense.pretrain(method="retromae", corpus=Dataset.from_dict({}), out=out),  # type: ignore[arg-type]
        "corpus is of the type Dataset; write it with to_parquet, and give its path",
    ),
    "documents": (
        lambda out: hf_dense.Corpus.from_documents(Dataset.from_dict({}), out=out),  # type: ignore[arg-type]
        "not an object of the type Dataset; write it with to_parquet",
    ),
    "a table of documents": (
        lambda out: hf_dense.Corpus.from_documents(DataFrame({"text": ["abc"]}), out=out),  # type: ignore[arg-type]
        "not an object of the type DataFrame; write it with to_parquet",
    ),
    "a dict of documents": (
        lambda out: hf_dense.Corpus.from_documents({"text": ["abc"]}, out=out),  # type: ignore[arg-type]
        "not an object of the type dict; save it",
    ),
    "passages": (lambda out: hf_dense.Corpus(Dataset.from_dict({})), "not an object of the type Dataset"),  # type: ignore[arg-type]
    "a declaration": (
        lambda out: hf_dense.pretrain(encoders=hf_dense.Encoder(), out=out),  # type: ignore[arg-type]
        "encoders is of the type Encoder; give a dict",
    ),
    "a part of one": (
        lambda out: hf_dense.pretrain(encoders={"encoder": Namespace()}, out=out),
        "encoders holds an object of the type Namespace; give numbers, texts, lists and dicts",
    ),
    "a model to tune": (
        lambda out: hf_dense.finetune(model=Namespace(), collection="data", out=out),  # type: ignore[arg-type]
        "model is of the type Namespace; save it, and give its path",
    ),
    "a number of a model": (
        lambda out: hf_dense.mine("data", model=3, out=out),  # type: ignore[arg-type]
        "model is one path, not an object of the type int; give a text or a Path",
    ),
    "bytes of a source": (
        lambda out: hf_dense.Corpus.from_documents(b"docs", out=out),  # type: ignore[arg-type]
        "A path is wanted, not an object of the type bytes",
    ),
    "budget": (lambda out: hf_dense.adapt("docs", out=out, budget="soon"), "The budget is 'soon'"),
    "a budget that is no text": (
        lambda out: hf_dense.adapt("docs", out=out, budget=timedelta(minutes=5)),  # type: ignore[arg-type]
        "budget is of the type timedelta; give a text or a number",
    ),
    "an adaptation": (
        lambda out: hf_dense.publish(Adaptation(out, {}), "me/it"),  # type: ignore[arg-type]
        "not an object of the type Adaptation; give its retriever",
    ),
    "a seed": (lambda out: hf_dense.adapt("docs", out=out, seed=-1), "--seed -1 is not from 0"),
    "two methods": (
        lambda out: hf_dense.adapt("docs", out=out, method=["retromae", "dupmae"]),  # type: ignore[arg-type]
        "--method takes one value, and 'dupmae' is one too many",
    ),
    "two splits": (
        lambda out: hf_dense.mine("data", out=out, split=["train", "dev"]),  # type: ignore[arg-type]
        "--split takes one value, and 'dev' is one too many",
    ),
    "a switch that is a text": (
        lambda out: hf_dense.mine("data", out=out, overwrite="no"),  # type: ignore[arg-type]
        "overwrite is 'no'; give True or False",
    ),
    "a switch that is a number": (
        lambda out: hf_dense.evaluate("bm25", "data", out=out, no_bm25=0),
        "no_bm25 is 0; give True or False",
    ),
    "an empty path": (lambda out: hf_dense.adapt("", out=out), "A path is empty; name"),
    "an empty option": (lambda out: hf_dense.mine("data", model="", out=out), "model is empty; name"),
    "a path like a flag": (
        lambda out: hf_dense.adapt("--overwrite", out=out),
        "'--overwrite' begins with -, as flags do; begin a path with ./",
    ),
    "a name like a flag": (lambda out: hf_dense.evaluate({"-x": "bm25"}, "data", out=out), "'-x=bm25' begins with -"),
}


@pytest.mark.parametrize(("call", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_value_is_an_input_error(call: Callable[[Path], Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        call(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_written_is_said_in_a_sentence(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for call in (lambda out: hf_dense.mine(data, out=out), lambda out: hf_dense.evaluate("bm25", data, out=out)):
        with pytest.raises(InputError, match="Not a directory; see to it and start again"):
            call(tmp_path / "file" / "out")


def test_nothing_is_written_to_what_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = write_documents(tmp_path / "docs")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for strange, name in ((3, "int"), (["a"], "list"), (b"x", "bytes"), (True, "bool")):
        with pytest.raises(InputError, match=f"out is .*of the type {name}"):
            hf_dense.Corpus.from_documents(documents, out=strange)  # type: ignore[arg-type]
    assert not [*Path.cwd().iterdir()]


def test_declarations_may_be_objects_and_any_mapping() -> None:
    given = {"encoders": MappingProxyType({"encoder": hf_dense.Encoder(weight=0.5)}), "decoders": {"decoder": {}}}
    arguments = read_call("pretrain", [], {"method": "retromae", **given})
    words = [word for word in arguments.words if word.startswith("--encoders")]
    assert json.loads(words[0].partition("=")[2])["encoder"]["weight"] == 0.5


def test_what_is_none_was_not_given_and_several_may_be_anything_to_loop_over() -> None:
    assert read_call("pretrain", [], {"corpus": None}, None).words == ["pretrain"]
    for numbers in (np.array([64, 32]), range(64, 31, -32), iter([64, 32]), (64, 32)):
        words = read_call("evaluate", ["bm25"], {"tasks": "t", "out": "o", "dimensions": numbers}).words
        assert words[-3:] == ["--dimensions", "64", "32"]
    for number in (3, np.int64(3), np.array(3), torch.tensor(3)):
        assert read_call("pretrain", [], {"max_steps": number}).words[-1] == "--max_steps=3"
        given = read_call("pretrain", [], {"encoders": {"encoder": {"weight": number}}}).words[-1]
        assert given == '--encoders={"encoder": {"weight": 3}}'
    assert read_call("pretrain", [], {"overwrite": np.bool_(True)}).words[-1] == "--overwrite"


def test_kinds_of_queries_may_be_one_or_none(tmp_path: Path) -> None:
    corpus = hf_dense.Corpus.from_documents(write_documents(tmp_path / "documents"), out=tmp_path / "corpus", length=30)
    for kinds, expected in (("sentences", "sentences"), (None, "headings sentences")):
        made = corpus.queries(out=tmp_path / expected, kinds=kinds, limit=12)
        assert f"--from {expected} " in Manifest.load(made).command
    with pytest.raises(InputError, match="kinds is empty"):
        corpus.queries(out=tmp_path / "none", kinds=[])


def test_the_functions_load_nothing_heavy_before_they_are_called() -> None:
    script = (
        "import sys, hf_dense\nhf_dense.adapt, hf_dense.pretrain, hf_dense.mine, hf_dense.evaluate, hf_dense.Corpus"
    )
    heavy = "print([name for name in ('torch', 'transformers', 'datasets', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", f"{script}\n{heavy}"], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_results_stay_where_they_are_when_the_working_directory_changes(
    data: Path, retriever: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is recorded stays as a person would type it there, which names no place of this machine."""
    copytree(data, tmp_path / "data")
    copytree(retriever, tmp_path / "retriever")
    monkeypatch.chdir(tmp_path)
    corpus, lists = hf_dense.Corpus("data"), hf_dense.mine(Path("data"), out="lists", depth=3)
    exported = hf_dense.export("retriever", out="exported")
    assert (str(corpus), str(lists), os.fspath(lists)) == ("data", "lists", "lists")
    tuned = hf_dense.finetune(model=exported, collection=corpus, lists=lists, out="tuned", **QUICK)
    command = Manifest.load("tuned").command
    assert "--model=exported --collection=data --lists lists" in command
    assert str(tmp_path) not in command
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert tuned.path == tmp_path / "tuned" / "model" == tuned.models["model"]
    assert str(corpus) == str(corpus.path) == str(tmp_path / "data")
    found = hf_dense.evaluate({"tuned": tuned}, corpus, out="found", no_bm25=True)
    assert [*found.figures] == ["tuned"]
    assert f"evaluations in {Path('found')}" in repr(found)


def test_a_result_is_escaped_and_stands_for_its_path(tmp_path: Path) -> None:
    result = Result(tmp_path / "<b>", "thing", {SCRIPT: 0.25, "texts": 1200, "address": "<i>"})
    assert Path(result) == tmp_path / "<b>"
    assert repr(result) == f"<thing in {tmp_path}/<b>; {SCRIPT}: 0.25, texts: 1,200, address: <i>>"
    page = result._repr_html_()
    assert "<td>1,200</td>" in page
    assert not re.search(r"<[bi]>|<script>", page)


def names(*kinds: Any) -> set[str]:
    return {option.name for kind in kinds for option in fields(kind)}


def parsed(verb: str, *positional: str, **given: Any) -> set[str]:
    """What a verb's parser knows; publishing is a function of its own."""
    known = {*vars(read_call(verb, positional, {"out": "out", **given}))}
    return known - {"rest", "words", "data", "push_to_hub"}


FLAGS = {
    "adapt": names(AdaptOptions),
    "pretrain": names(PretrainingOptions) | {"out", "config", "trainer"},
    "finetune": names(BothOptions, StageOptions, MeasuringOptions, SingleOptions) | {"config", "trainer"},
    "mine": parsed("data negatives", "data"),
    "evaluate": parsed("evaluate", "bm25", tasks=["data"]),
    "publish": parsed("publish", "model", "me/it", out=None),
}


@pytest.mark.parametrize(("name", "flags"), FLAGS.items(), ids=FLAGS.keys())
def test_keywords_are_the_flags(name: str, flags: set[str]) -> None:
    assert {*inspect.signature(getattr(hf_dense, name)).parameters} == flags


def test_methods_of_a_corpus_and_export_have_the_flags() -> None:
    cut = {*inspect.signature(hf_dense.Corpus.from_documents).parameters}
    assert cut == parsed("data passages", "documents")
    made = {*inspect.signature(hf_dense.Corpus.queries).parameters} - {"self"}
    assert made == parsed("data queries", "corpus", **{"from": ["headings"]}) - {"corpus"}
    one = {
        "pooling": "cls",
        "similarity": "dot",
        "max_length": 3,
        "query_length": 3,
        "dense": 3,
        "sparse": 3,
        "normalize": False,
    }
    prompts = {"query_prompt": "a", "document_prompt": "b"}
    flags = parsed("export", "checkpoint", **one, **prompts) - {"checkpoint"}
    assert {*inspect.signature(hf_dense.export).parameters} == flags | {"model"}


def test_what_a_person_would_type_is_kept(retriever: Path, tmp_path: Path) -> None:
    embedder = write_embedder(tmp_path / "embedder")
    result = hf_dense.export(embedder, out=tmp_path / "it", normalize=True, query_prompt="ask: ", overwrite=False)
    command = f"hf-dense export {embedder} --out={tmp_path / 'it'} --normalize=true '--query_prompt=ask: '"
    assert Manifest.load(result).command == command
    assert SentenceTransformer(str(result)).prompts["query"] == "ask: "
