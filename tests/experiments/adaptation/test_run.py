"""The whole of an adaptation with two steps of each training, in the forms that the end-to-end test does not take."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from manifests import manifest_of
from sentence_transformers import SentenceTransformer
from tiny_retriever import (
    change_json,
    random_words,
    write_cross_encoder,
    write_dataset,
    write_embedder,
    write_encoder,
    write_retriever,
    write_two_encoders,
)

from hf_dense.errors import InputError
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.experiments.adaptation import material, report, run
from hf_dense.experiments.adaptation.arms import Arm
from hf_dense.experiments.adaptation.learning import Learning
from hf_dense.experiments.adaptation.material import Material
from hf_dense.experiments.adaptation.options import AdaptOptions
from hf_dense.experiments.adaptation.plan import Plan
from hf_dense.experiments.adaptation.report import Adaptation
from hf_dense.experiments.adaptation.run import Progress, adapt
from hf_dense.experiments.keeping import open_kept
from hf_dense.finetuning.lists import load_entries
from hf_dense.pretraining import gap
from hf_dense.search.index import SearchIndex, build_index, update_index
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    place = write_dataset(tmp_path / "own", passages=60, queries=40)
    (place / "qrels" / "dev.tsv").write_bytes((place / "qrels" / "test.tsv").read_bytes())
    return place


def plan_for(
    monkeypatch: pytest.MonkeyPatch,
    *methods: str,
    pool: int = 60,
    probes: int = 0,
    index: bool = True,
    encoding: float = 9,
    longer: int = 0,
) -> None:
    """Two steps of each training, but for the longer fine-tuning."""
    steps = {} if methods == ("none",) else dict.fromkeys(methods or ("retromae",), 2)
    plan = Plan(pool, False, index, 2, steps, 0.1, probes, {"encoding": encoding}, 0, 0, longer, ("as planned",))
    learning = Learning(queries=4, negatives=1, texts=4, finetuning_rate=1e-3, pretraining_rate=1e-3, length=16)
    monkeypatch.setattr(run, "_make_plan", lambda *_: (plan, learning))


def names(adaptation: Adaptation) -> list[str]:
    return [arm["name"] for arm in adaptation.facts["arms"]]


def test_what_is_kept_is_known_as_it_was_named(collection: Path, tmp_path: Path) -> None:
    named = f"{write_dataset(tmp_path / 'other', passages=30)}:test"
    options = AdaptOptions(str(collection), str(tmp_path / "out"), keep=named)
    sources = dict[str, Source]()
    assert run._kept(options, sources) == open_kept(named, str(collection))
    assert sources["kept"].name == named
    (tmp_path / "other" / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tp1\t1\n")
    found = dict[str, Source](), dict[str, Source]()
    for split, read in zip(("test", "dev"), found, strict=True):
        run._kept(replace(options, keep=f"{tmp_path / 'other'}:{split}"), read)
    assert found[0]["kept"].fingerprint != found[1]["kept"].fingerprint, "of one content, two sets of queries"


def test_what_is_complete_is_not_replaced_unasked_where_its_plan_is_gone(collection: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Output(out).occupy(run.KIND, {}, claims=["report.md"]) as work:
        (out / "report.md").write_text("of hours")
        work.complete()
    with pytest.raises(InputError, match="replace it with --overwrite"):
        adapt(AdaptOptions(str(collection), str(out), keep="none"))
    assert (out / "report.md").read_text() == "of hours"


def test_a_plan_of_another_teacher_or_seed_is_replaced_with_the_adaptation(
    collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, output = write_retriever(tmp_path / "model"), Output(tmp_path / "out", overwrite=True)
    given = Material(collection, collection, (), {"passages": 60}), tmp_path / "negatives", base, None, Progress()
    monkeypatch.setattr(run, "load_entries", lambda _: [])
    options = AdaptOptions(str(collection), str(tmp_path / "out"))
    slow = replace(options, teacher="a-cross-encoder")
    for steps, asked in enumerate((options, slow, replace(slow, seed=1)), start=3):
        plan_for(monkeypatch, longer=steps)
        assert run._plan(asked, *given, output)[0].longer == steps


@pytest.mark.slow
def test_from_random_weights_there_is_no_base(
    collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_for(monkeypatch, longer=5)
    found = adapt(AdaptOptions(str(collection), str(tmp_path / "out"), keep="none", length=16))
    assert names(found)[:4] == ["BM25", "fine-tuned", "fine-tuned longer", "RetroMAE, fine-tuned"]
    trained = tmp_path / "out" / "arms" / "fine-tuned-longer" / "training" / "trainer_state.json"
    assert json.loads(trained.read_text())["global_step"] == 5
    assert (
        "Fine-tuning is the same for every arm but the one that is longer"
        in (tmp_path / "out" / "report.md").read_text()
    )
    assert "against BM25" in found.table
    assert SentenceTransformer(str(found.retriever)).similarity_fn_name == "cosine"
    manifest = manifest_of(tmp_path / "out" / "pretrained" / "retromae")
    assert found.facts["verdict"]["effort"]["minutes"] == pytest.approx(manifest.facts["seconds"] / 60)


@pytest.mark.slow
@pytest.mark.parametrize("write", [partial(write_embedder, pooling="max"), write_two_encoders])
def test_an_embedder_that_cannot_be_pretrained_is_adapted_without(
    write: Callable[[Path], Path], collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_for(monkeypatch, "none")
    base = write(tmp_path / "base")
    found = adapt(AdaptOptions(str(collection), str(tmp_path / "out"), str(base), method="none", keep="none"))
    assert names(found)[:3] == ["BM25", "base", "fine-tuned"]
    assert [name.endswith("distilled") for name in names(found)[3:]] == [True, False], "and fused with BM25"
    assert "Whether pre-training pays was not tried. Use " in found.verdict
    assert "Queries of fine-tuned against base" in (tmp_path / "out" / "report.md").read_text()
    kinds = [[type(module) for module in SentenceTransformer(str(model))] for model in (base, found.retriever)]
    assert kinds[0] == kinds[1]
    assert adapt(AdaptOptions(str(collection), str(tmp_path / "out"), str(base), method="none", keep="none")) == found


@pytest.mark.slow
def test_what_was_deleted_is_made_again(collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_for(monkeypatch)
    options = AdaptOptions(str(collection), str(tmp_path / "out"), keep="none", length=16)
    found = adapt(options)
    weights = (found.retriever / "model.safetensors").read_bytes()
    for gone in ("report.html", "results.json", "retriever/model.safetensors"):
        (tmp_path / "out" / gone).unlink()
        again = adapt(options)
        assert (tmp_path / "out" / gone).is_file()
        assert again.verdict == found.verdict
    assert (found.retriever / "model.safetensors").read_bytes() == weights
    index = found.retriever / "index"
    assert len(SearchIndex.load(index)) == 60
    update_index(found.retriever, write_dataset(tmp_path / "fewer", passages=30), index, weight=0.7)
    (tmp_path / "out" / "report.md").unlink()
    assert adapt(options).verdict == found.verdict
    assert len(SearchIndex.load(index)) == 30
    assert "weights 0.7 and 0.3" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.slow
def test_what_made_queries_choose_is_said_to_be_so_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_for(monkeypatch)
    (tmp_path / "docs").mkdir()
    words = random_words(1_000, seed=3)
    for number in range(25):
        title, *own = words[40 * number : 40 * (number + 1)]
        (tmp_path / "docs" / f"{number}.md").write_text(f"# {title} {own[0]}\n\n{' '.join(own[1:])}.")
    monkeypatch.setattr(material, "_LEAST", {"dev": 1, "test": 1})
    base = write_embedder(tmp_path / "base")
    found = adapt(AdaptOptions(str(tmp_path / "docs"), str(tmp_path / "out"), str(base), keep="none", length=20))
    assert set(found.facts["queries"]["made"]) == {"train", "dev", "test"}
    assert manifest_of(found.retriever).facts["results"][0][0].endswith(" passages, made queries")
    assert "only where it is ahead of base by more than chance" in (tmp_path / "out" / "report.md").read_text()
    assert found.facts["arms"][-1]["weight"] == 0.5, "made queries have the words of their passages, as BM25 likes them"
    worth = {arm["name"]: arm["dev"]["ndcg@10"] for arm in found.facts["arms"]}
    passed_over = [name for name, dev in worth.items() if dev > worth[found.facts["verdict"]["best"]]]
    assert ("had more on the queries that choose" in found.verdict) is bool(passed_over)


def test_what_is_ready_is_held_against_made_queries(tmp_path: Path) -> None:
    ready, plain = write_embedder(tmp_path / "ready"), write_encoder(tmp_path / "plain")
    for base, made, found in (
        (ready, ("train", "dev", "test"), [True, True]),
        (ready, ("train",), [True, False]),
        (ready, ("dev", "test"), [False, True]),
        (plain, ("train", "dev", "test"), [False, False]),
        (None, ("train", "dev", "test"), [False, False]),
    ):
        options = AdaptOptions("docs", str(tmp_path / "out"), base and str(base))
        given = Material(tmp_path, tmp_path, made, {})
        assert [run._ready_on_made(options, given, split) for split in ("train", "dev")] == found


def test_made_queries_choose_another_than_the_base_only_where_it_is_clearly_ahead() -> None:
    def arm(name: str, *values: float, weight: float = 1.0) -> Arm:
        scores = {"ndcg@10": {str(query): value for query, value in enumerate(values)}}
        dev = RetrievalResult(name, "dev", {"ndcg@10": sum(values) / len(values)}, scores, 0.0)
        return Arm(name, Path(), Path(), Path(), weight, dev, dev, None, 0.0)

    base, clear = arm("base", *[0.2] * 20), arm("clear", *[0.5] * 20)
    luck = arm("luck", *[0.0] * 15, *[1.0] * 5)
    assert luck.worth > base.worth
    assert run.choose([base, luck], made=True) is base
    assert run.choose([base, luck], made=False) is luck
    assert run.choose([base, luck, clear], made=True) is clear
    fused, words = (arm("fused or words", *[0.0] * 15, *[1.0] * 5, weight=weight) for weight in (0.5, 0.0))
    assert run.choose([words, base, luck, fused], made=True) is fused, "beside BM25 the base is asked, too"
    assert run.choose([words, base, luck], made=True) is base
    assert run.choose([luck, clear], made=True) is clear, "from random weights there is no base"


def test_an_index_that_was_updated_since_stays(collection: Path, tmp_path: Path) -> None:
    model, output = write_retriever(tmp_path / "model"), Output(tmp_path / "out")
    scored = RetrievalResult("best", "test", {}, {}, 0.0)
    best = Arm("best", model, build_index(model, collection, tmp_path / "arm"), tmp_path, 1.0, scored, scored, None, 0)
    given = Material(collection, collection, (), {"passages": 60})

    def deliver(output: Output = output) -> Manifest:
        run._deliver(best, [], given, True, "fp32", output, Progress())
        return manifest_of(tmp_path / "out" / "retriever" / "index")

    assert deliver().made_from["weight"] == 1
    index, fewer = tmp_path / "out" / "retriever" / "index", write_dataset(tmp_path / "fewer", passages=30)
    update_index(tmp_path / "out" / "retriever", fewer, index, weight=0.7)
    assert deliver().made_from["weight"] == 0.7
    assert len(SearchIndex.load(index)) == 30
    assert "weights 0.7 and 0.3" in str(report._use(best, tmp_path / "out", collection))
    (index / "passages.parquet").unlink()
    assert deliver(replace(output, overwrite=True)).made_from["weight"] == 1
    assert len(SearchIndex.load(index)) == 60


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (1.0, None),
        (0.5, "It was chosen to be asked together with BM25: `hf-dense search MODEL --corpus DATA --weight 0.5`."),
        (0.0, "BM25 was chosen, and not this model: `hf-dense search MODEL --corpus DATA --weight 0`."),
    ],
)
def test_the_card_of_the_retriever_says_what_bm25_has_to_say(weight: float, said: str | None, tmp_path: Path) -> None:
    model, collection = write_retriever(tmp_path / "model"), write_dataset(tmp_path / "own")
    scored = RetrievalResult("best", "test", {}, {}, 0.0)
    best = Arm("best", model, tmp_path, tmp_path, weight, scored, scored, None, 0)
    given = Material(collection, collection, (), {"passages": 60})
    run._deliver(best, [], given, False, "fp32", Output(tmp_path / "out"), Progress())
    card = (tmp_path / "out" / "retriever" / "README.md").read_text()
    assert ("BM25" in card) is (said is not None)
    assert said is None or said in card


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "fits"), [(9.0, True), (1e6, False)])
def test_an_index_that_was_not_planned_is_built_where_time_is_left(
    collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: float, fits: bool
) -> None:
    plan_for(monkeypatch, pool=50, index=False, encoding=encoding)
    base = write_embedder(tmp_path / "base")
    found = adapt(AdaptOptions(str(collection), str(tmp_path / "out"), str(base), keep="none", length=16))
    assert (found.retriever / "index").is_dir() is fits
    assert ("its index inside" in (tmp_path / "out" / "report.md").read_text()) is fits
    if fits:
        assert len(SearchIndex.load(found.retriever / "index")) == 60


@pytest.mark.slow
def test_auto_tries_several_methods_and_a_teacher_is_distilled(
    collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_for(monkeypatch, "retromae", "dupmae", pool=50, probes=2)
    monkeypatch.setattr(gap, "EVERY", 1)
    torch.manual_seed(0)
    teacher = tmp_path / "teacher"
    write_cross_encoder(teacher)
    base = write_embedder(tmp_path / "base")
    options = AdaptOptions(
        str(collection), str(tmp_path / "out"), str(base), method="auto", teacher=str(teacher), keep="none", length=16
    )
    found = adapt(options)
    assert names(found)[2:5] == ["fine-tuned", "RetroMAE, fine-tuned", "DupMAE, fine-tuned"]
    scores = manifest_of(tmp_path / "out" / "lists" / "scores")
    assert scores.sources["cross-encoder"] == str(teacher)
    assert len(load_entries(tmp_path / "out" / "lists" / "scores")) == 2 * 2, "what two steps read"
    history = json.loads((tmp_path / "out" / "pretrained" / "dupmae" / "trainer_state.json").read_text())["log_history"]
    assert [entry["step"] for entry in history if "probe_ndcg@10" in entry] == [0, 1, 2]
    page = (tmp_path / "out" / "report.html").read_text()
    asked = found.facts["queries"]
    assert asked["measured"]["test"] == found.facts["verdict"]["found"]["queries"] < asked["test"]
    assert f"Means over {asked['measured']['test']} of {asked['test']} test queries" in page
    assert "Probes of every pre-training" in page
    assert "Bottleneck gap of every pre-training" in page
    assert "as planned" in page
    best = next(arm for arm in found.facts["arms"] if arm["name"] == found.facts["verdict"]["best"])
    index = SearchIndex.load(found.retriever / "index")
    assert (len(index), index.weight) == (60, best["weight"]), "the index has all passages, the pool 50"
    (measured,) = manifest_of(found.retriever).facts["results"]
    assert measured[:2] == ["own, 50 passages", "test"]
    assert any(arm["weight"] == 1 and arm["metrics"] == measured[2] for arm in found.facts["arms"]), "without BM25"
    card = (found.retriever / "README.md").read_text()
    assert f"| own, 50 passages | test | ndcg@10 | {measured[2]['ndcg@10']:.4f} |" in card
    assert (f"--weight {best['weight']:g}`" in card) is (best["weight"] < 1), "how it was chosen to be asked"


def test_what_cannot_work_is_said_before_anything_is_written(collection: Path, tmp_path: Path) -> None:
    base, out = write_embedder(tmp_path / "base"), tmp_path / "out"
    (tmp_path / "passages.jsonl").write_text('{"id": "1", "text": "Words of a passage that stands alone."}\n')
    (tmp_path / "wrong.csv").write_text("question,text\nhow,so\n")
    (tmp_path / "empty.csv").write_text("query,positive\n")
    (tmp_path / "down.jsonl").write_text('{"query": "how", "negative": "so"}\n')
    given = {"docs": str(collection), "out": str(out), "base": str(base), "keep": "none"}
    for changed, sentence in (
        ({"docs": "nowhere"}, "nowhere"),
        ({"teacher": str(base)}, "has no head that scores pairs|cross-encoder"),
        ({"queries": "nowhere.jsonl"}, "There is no file nowhere.jsonl of queries"),
        (
            {"queries": str(tmp_path / "wrong.csv")},
            "Row 1 of .*wrong.csv has no positive passage; every row needs columns",
        ),
        ({"queries": str(tmp_path / "empty.csv")}, "empty.csv holds no labelled query"),
        ({"queries": str(tmp_path / "down.jsonl")}, "holds no labelled query: .*1"),
        ({"base": "nowhere/at/all"}, "nowhere/at/all"),
        (
            {"docs": str(tmp_path / "passages.jsonl"), "method": "query_cotmae"},
            "query_cotmae reads queries or continuations .*; choose one of: auto, condenser, .*retromae",
        ),
    ):
        with pytest.raises(InputError, match=sentence):
            adapt(AdaptOptions(**{**given, **changed}))
        assert not out.exists()


def test_what_is_kept_is_built_only_once_all_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "open_kept", lambda *_: pytest.fail("it takes long"))
    with pytest.raises(InputError, match="nowhere"):
        adapt(AdaptOptions("nowhere", str(tmp_path / "out")))


@pytest.mark.parametrize("prompted", [False, True])
def test_what_was_refused_before_the_plan_may_be_given_otherwise(
    prompted: bool,
    collection: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = list[str]()

    def too_short(options: AdaptOptions, *_: object) -> None:
        asked.append(options.budget)
        raise InputError(f"{options.budget} is too short.")

    monkeypatch.setattr(run, "_make_plan", too_short)
    given = AdaptOptions(str(collection), str(tmp_path / "out"), str(write_embedder(tmp_path / "base")), keep="none")
    prompts = {"query": "query: "} if prompted else {}
    change_json(tmp_path / "base" / "config_sentence_transformers.json", prompts=prompts)
    for budget in ("5m", "6m"):
        with pytest.raises(InputError, match=f"{budget} is too short"):
            adapt(replace(given, budget=budget, length=16))
    assert asked == ["5m", "6m"]
    said = capsys.readouterr().err
    assert "tokens of a text" not in said
    assert "How it makes vectors: pooling mean" in said
    assert ("query prompt 'query: '" in said) == prompted
    assert ("It names no prompts" in said) != prompted
    with pytest.raises(InputError, match="5m is too short"):
        adapt(replace(given, budget="5m", length=64))
    assert "At most 20 tokens of a text, as" in capsys.readouterr().err
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="was not written by hf_dense"):
        adapt(replace(given, out=str(tmp_path / "foreign")))
    assert (tmp_path / "foreign" / "thesis.tex").read_text() == "mine"
