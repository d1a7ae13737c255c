"""Between two models: every weight exact, the best for both is chosen, and what does not go together is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from manifests import manifest_of
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from test_biencoder import killed
from tiny_retriever import spaced_tokenizer, tiny_config, weights, write_dataset, write_hybrid, write_retriever

from hf_dense import RetroMAEConfig, RetroMAEForPreTraining
from hf_dense.errors import InputError
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.experiments import merging
from hf_dense.experiments.interpolation import Between
from hf_dense.experiments.keeping import Kept
from hf_dense.experiments.merging import Point, check_weights, choose, merge_at, merge_best, read_table
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.hub.lineage import licence_of
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.output import Output


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`base`, `tuned`, another of the same shape, the encoder of `base`, and its pre-training by RetroMAE."""
    root = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("base", "tuned", "third")):
        write_retriever(root / name, seed)
    embedder = {"max_length": 32, "similarity": "dot", "normalize": False}  # that it was, as pre-training remembers it
    config = RetroMAEConfig(backbone_config=tiny_config().to_dict(), retriever=embedder)
    checkpoint = RetroMAEForPreTraining(config)
    checkpoint.save_pretrained(root / "checkpoint")
    shutil.copy(root / "base-encoder" / "tokenizer.json", root / "checkpoint")
    shutil.copy(root / "base-encoder" / "tokenizer_config.json", root / "checkpoint")
    return root


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> tuple[Kept, Kept]:
    """The own one and another."""
    root = tmp_path_factory.mktemp("collections")
    for name, passages in (("own", 40), ("other", 50)):
        write_dataset(root / name, passages=passages)
        (root / name / "qrels" / "test.tsv").rename(root / name / "qrels" / "dev.tsv")
    return Kept("own", root / "own", "dev"), Kept("other", root / "other", "dev")


def exports(manifest: Manifest) -> list[str]:
    """What the retrievers of a model's lineage were made from."""
    return [step["start"] for step in manifest.facts["lineage"] if step["kind"] == "retriever"]


def encoder_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix("encoder.backbone."): tensor
        for name, tensor in weights(checkpoint).items()
        if name.startswith("encoder.backbone.")
    }


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_weights_are_between_those_of_the_two(models: Path, tmp_path: Path, weight: float) -> None:
    base, tuned = models / "base", models / "tuned"
    model = merge_at(Between(str(base), str(tuned)), weight, Output(tmp_path / "out", command="me"))
    first, second, found = weights(base), weights(tuned), weights(model)
    assert found.keys() == first.keys()
    for name in found:
        expected = first[name].double() + weight * (second[name].double() - first[name].double())
        exactly = {0.0: first, 1.0: second}.get(weight)
        torch.testing.assert_close(found[name].double(), expected, rtol=1e-6, atol=1e-7)
        assert exactly is None or torch.equal(found[name], exactly[name])
    assert SentenceTransformer(str(model)).similarity_fn_name == "dot"
    manifest = manifest_of(model)
    assert (manifest.kind, manifest.command, manifest.made_from["weight"]) == ("retriever", "me", weight)
    assert manifest.sources == {"base": str(base), "tuned": str(tuned)}
    assert exports(manifest) == [str(models / "base-encoder"), str(models / "tuned-encoder")], "the steps of both"
    card = (model / "README.md").read_text()
    assert f"Its weights are {base} + w ({tuned} - {base}), with w = {weight:g}." in card


def test_the_base_itself_is_not_changed_and_any_float_type_is_read(models: Path, tmp_path: Path) -> None:
    before = {name: tensor.clone() for name, tensor in weights(models / "base").items()}
    half = shutil.copytree(models / "tuned", tmp_path / "half")
    save_file(
        {name: tensor.half() for name, tensor in weights(half).items()}, half / "model.safetensors", {"format": "pt"}
    )
    found = weights(merge_at(Between(str(models / "base"), str(half)), 0.5, Output(tmp_path / "out")))
    second = weights(half)
    assert all(tensor.dtype == torch.float32 for tensor in found.values())
    assert all(torch.equal(weights(models / "base")[name], before[name]) for name in before)
    for name in found:
        torch.testing.assert_close(found[name], (before[name] + second[name].float()) / 2, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("tuned", ["checkpoint", "third", "third-encoder"])
def test_what_training_changed_elsewhere_is_added(models: Path, tmp_path: Path, tuned: str) -> None:
    between = Between(str(models / "base"), str(models / tuned), str(models / "tuned-encoder"))
    found = weights(merge_at(between, 0.5, Output(tmp_path / "out")))
    base, start = weights(models / "base"), weights(models / "tuned-encoder")
    trained = encoder_weights(models / tuned) if tuned == "checkpoint" else weights(models / tuned)
    assert found.keys() == base.keys()
    for name in found:
        expected = base[name] + 0.5 * (trained[name] - start[name])
        torch.testing.assert_close(found[name], expected, rtol=1e-5, atol=1e-6)
    pooling = SentenceTransformer(str(tmp_path / "out" / "model"))[1].pooling_mode
    assert pooling == SentenceTransformer(str(models / "base"))[1].pooling_mode


def test_a_checkpoint_that_remembers_its_embedder_is_a_tuned_model(models: Path, tmp_path: Path) -> None:
    between = Between(str(models / "base"), str(models / "checkpoint"))
    found = weights(merge_at(between, 1.0, Output(tmp_path / "out")))
    trained = encoder_weights(models / "checkpoint")
    assert all(torch.equal(found[name], trained[name]) for name in found)


@pytest.mark.slow
def test_the_best_for_both_is_written_with_all_figures(
    models: Path, collections: tuple[Kept, Kept], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, (own, kept) = tmp_path / "out", collections
    between = Between(str(models / "base"), str(models / "tuned"))
    with monkeypatch.context() as patch:
        patch.setattr(merging, "_write_model", killed)
        with pytest.raises(KeyboardInterrupt):
            merge_best(between, [0.5, 1.0], own, kept, Output(out))
    measured = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    model = merge_best(between, [0.5, 1.0], own, kept, Output(out))
    assert {path: path.stat().st_mtime_ns for path in out.rglob("result.json")} == measured, "a killed run goes on"
    facts = json.loads((out / "merge.json").read_text())
    assert [point["weight"] for point in facts["points"]] == [0.0, 0.5, 1.0]
    sums = [sum(point[what]["metrics"]["ndcg@10"] for what in ("own", "kept")) for point in facts["points"]]
    assert facts["chosen"] == [0.0, 0.5, 1.0][sums.index(max(sums))]
    for what, split in (("own", own), ("kept", kept)):
        found = RetrievalResult.load(out / "evaluation" / "weight-0.5" / what)
        assert facts["points"][1][what]["metrics"] == found.metrics
        assert facts[what] | {"name": split.name, "split": "dev"} == facts[what]
    table = read_table(out)
    assert f"Chosen: w = {facts['chosen']:g} (largest sum of nDCG@10 on both collections" in table
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:5]] == ["0", "0.5", "1"]
    assert (out / "merge.png").stat().st_size > 1000
    expected = weights(merge_at(between, facts["chosen"], Output(tmp_path / "point")))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(model).items())
    assert "| own | dev | ndcg@10 |" in (model / "README.md").read_text()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert merge_best(between, [1.0, 0.5, 0.5], own, kept, Output(out)) == model
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == before, "done already"
    with pytest.raises(InputError, match="was made from other weights"):
        merge_best(between, [0.25], own, kept, Output(out))
    with pytest.raises(InputError, match="was made from another tuned"):
        merge_best(Between(str(models / "base"), str(models / "third")), [0.5, 1.0], own, kept, Output(out))


def point(weight: float, own: float, kept: float) -> Point:
    results = [RetrievalResult("", "dev", {"ndcg@10": value}, {}, 0.0) for value in (own, kept)]
    return Point(weight, *results)


def test_weights_that_look_alike_are_one() -> None:
    assert check_weights([0.5, 0.50000001, 1, 0.9999999]) == [0.5, 1.0]


def test_the_largest_sum_is_chosen_and_of_equals_the_smaller_weight() -> None:
    points = [point(0, 0.761, 0.351), point(0.5, 0.850, 0.316), point(1, 0.882, 0.228)]
    assert choose(points).weight == 0.5
    assert choose([point(0, 0.5, 0.5), point(0.5, 0.75, 0.25), point(1, 0.25, 0.5)]).weight == 0


def narrow(root: Path) -> None:
    from transformers import BertModel

    BertModel(tiny_config(intermediate_size=48), add_pooling_layer=False).save_pretrained(root / "narrow")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(root / "base-encoder" / name, root / "narrow")


def four_heads(root: Path) -> None:
    shutil.copytree(root / "base", root / "four")
    config = json.loads((root / "four" / "config.json").read_text())
    (root / "four" / "config.json").write_text(json.dumps({**config, "num_attention_heads": 4}))


def other_tokens(root: Path) -> None:
    shutil.copytree(root / "base", root / "tokens")
    spaced_tokenizer(["some words here"], "bytes").save_pretrained(root / "tokens")


def changed(name: str, file: str, **values: object) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        shutil.copytree(root / "base", root / name)
        config = json.loads((root / name / file).read_text())
        (root / name / file).write_text(json.dumps({**config, **values}))

    return change


@pytest.mark.parametrize(
    ("make", "names", "sentence"),
    [
        (narrow, ("base", "narrow", "base"), r"base and .*narrow have different shapes \(0.model.encoder.*64.*48"),
        (four_heads, ("base", "four"), r"different encoders \(bert with 2 heads and bert with 4 heads\)"),
        (other_tokens, ("base", "tokens"), "base and .*tokens have different tokenizers"),
        (other_tokens, ("base", "checkpoint", "tokens"), "base and .*tokens have different tokenizers"),
        (
            changed("cosine", "config_sentence_transformers.json", similarity_fn_name="cosine"),
            ("base", "cosine"),
            r"cosine makes its vectors otherwise than .*base: it has another similarity \(dot, now cosine\); merge",
        ),
        (
            changed("mean", "1_Pooling/config.json", pooling_mode="mean"),
            ("base", "mean"),
            r"it has another pooling \(cls, now mean\)",
        ),
        (
            changed("asked", "config_sentence_transformers.json", prompts={"query": "ask: ", "document": ""}),
            ("base", "asked"),
            r"it has another query \(none, now ask: \)",
        ),
        (
            changed("longer", "sentence_bert_config.json", max_seq_length=16),
            ("base", "longer"),
            "or, with --delta START",
        ),
        (
            changed("relu", "config.json", hidden_act="relu"),
            ("base", "relu"),
            r"it has another hidden_act \(gelu, now relu\)",
        ),
        (
            changed("unasked", "1_Pooling/config.json", include_prompt=False),
            ("base", "unasked"),
            r"it has another include_prompt \(none, now False\)",
        ),
        (None, ("base", "nowhere/at/all"), "There is no model directory .*nowhere/at/all"),
        (lambda root: write_hybrid(root, 4, 8), ("hybrid", "tuned"), "hybrid gives hybrid vectors; only"),
    ],
)
def test_models_that_do_not_go_together(
    models: Path, tmp_path: Path, make: Callable[[Path], None] | None, names: tuple[str, ...], sentence: str
) -> None:
    root = shutil.copytree(models, tmp_path / "models")
    if make is not None:
        make(root)
    with pytest.raises(InputError, match=sentence):
        Between(*(str(root / name) for name in names))


def test_weights_and_splits_that_cannot_be(models: Path, collections: tuple[Kept, Kept], tmp_path: Path) -> None:
    between, (own, kept) = Between(str(models / "base"), str(models / "tuned")), collections
    for weight in (-0.5, 1.5, float("nan")):
        with pytest.raises(InputError, match=r"weights are from 0, the base, to 1"):
            merge_at(between, weight, Output(tmp_path / "out"))
    with pytest.raises(InputError, match="choose on another than test"):
        merge_best(between, [0.5], Kept("own", own.collection, "test"), kept, Output(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_later_training_is_in_the_lineage_once(models: Path, tmp_path: Path) -> None:
    """Of a merge of a merge, the steps that both share."""
    first = merge_at(Between(str(models / "base"), str(models / "tuned")), 0.5, Output(tmp_path / "first"))
    second = merge_at(Between(str(models / "base"), str(first)), 0.5, Output(tmp_path / "second"))
    manifest = manifest_of(second)
    assert exports(manifest) == [str(models / "base-encoder"), str(models / "tuned-encoder"), str(models / "base")]


@pytest.mark.parametrize(
    ("licence", "several"), [("cc-by-nc-4.0", "cc-by-nc-4.0, mit"), ("other", "mit, one that is not named")]
)
def test_a_licence_of_several_is_none(licence: str, several: str, models: Path, tmp_path: Path) -> None:
    for name, own in (("base", "mit"), ("third", licence)):
        shutil.copytree(models / name, tmp_path / name)
        (tmp_path / name / "hf_dense.json").unlink()
        (tmp_path / name / "README.md").write_text(f"---\nlicense: {own}\n---\n")
    merged = merge_at(Between(str(tmp_path / "base"), str(tmp_path / "third")), 0.5, Output(tmp_path / "out"))
    manifest = manifest_of(merged)
    assert licence_of(manifest) == ("other", None)
    card = (merged / "README.md").read_text()
    assert f"several licences: {several}." in card
    for name in ("base", "third"):
        assert f"How `{tmp_path / name}` was made is not recorded." in card
    export_sentence_transformer(merged, tmp_path / "again")
    again = manifest_of(tmp_path / "again")
    assert licence_of(again) == ("other", None)


def test_what_no_vector_depends_on_keeps_no_models_from_being_merged(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "third", tmp_path / "third")
    config = json.loads((tmp_path / "third" / "config.json").read_text())
    more = {
        "id2label": {"0": "no", "1": "yes"},
        "output_hidden_states": True,
        "hidden_dropout_prob": 0.3,
        "by": "somebody",
    }
    (tmp_path / "third" / "config.json").write_text(json.dumps({**config, **more}))
    assert Between(str(models / "base"), str(tmp_path / "third")).at(1.0) is not None
