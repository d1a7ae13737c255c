from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from json_lines import write_lines
from sentence_transformers import SentenceTransformer
from test_plots import is_drawn
from tiny_retriever import tiny_config, tiny_tokenizer, write_encoder, write_retriever

from hf_dense import InputError
from hf_dense.commands.analyse import add_arguments, run
from hf_dense.data import hub_names
from hf_dense.evaluation.analyses import CurvePoint, curve_point, curves, pair_correlation, similarity_by_length
from hf_dense.evaluation.analysis_plots import draw_curves
from hf_dense.evaluation.positions import load_with_decoders, similarity_by_position
from hf_dense.evaluation.result import RESULT_FILE, RetrievalResult
from hf_dense.methods import get_method
from hf_dense.modeling.bottleneck_layout import FlatRows
from hf_dense.storage.manifest import MANIFEST, Manifest

EAST, NORTH, NORTH_EAST = (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)


def test_one_query_tells_nothing_of_others() -> None:
    assert curve_point("a", 1, {"q": 0.25}) == CurvePoint("a", 1, 0.25, 0.0, 1.0)


class Known(SentenceTransformer):
    """A retriever whose tokens are letters and whose vectors are given."""

    def __init__(self, directory: Path, vectors: Mapping[str, Sequence[float]]) -> None:
        super().__init__(modules=list(SentenceTransformer(str(directory), device="cpu")), device="cpu")
        self.vectors = vectors
        self.read: list[list[str]] = []

    def encode_document(self, inputs: list[str], **options: Any) -> Any:
        self.read.append(inputs)
        return np.array([self.vectors[text] for text in inputs], dtype=np.float32)

    encode_query = encode_document


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_retriever(tmp_path_factory.mktemp("analyses") / "model")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random pre-training checkpoints of a method with a causal decoder, and of one without."""
    folder = tmp_path_factory.mktemp("checkpoints")
    torch.manual_seed(0)
    for name in ("seed_encoder", "retromae"):
        method = get_method(name)
        method.pretraining(method.config(backbone_config=tiny_config())).save_pretrained(folder / name)
        tiny_tokenizer().save_pretrained(folder / name)
    return {name: folder / name for name in ("seed_encoder", "retromae")}


def write_result(directory: Path, values: Sequence[float], first: int = 0) -> Path:
    per_query = {"mrr@10": {f"q{first + at}": value for at, value in enumerate(values)}}
    result = RetrievalResult("ours", "dev", {"mrr@10": float(np.mean(values))}, per_query, 1.0)
    directory.mkdir(parents=True)
    (directory / RESULT_FILE).write_text(json.dumps(asdict(result)))
    return directory


def test_similarity_of_random_pairs_goes_by_tokens(retriever: Path) -> None:
    vectors = {"ab": EAST, "cd": EAST, "ef": (3.0, 0.0), "abcd": EAST, "efgh": NORTH_EAST, "abcdefghijklm": NORTH}
    model = Known(retriever, vectors)
    short, long = similarity_by_length(model, list(vectors), lengths=(4, 8), pairs=50)
    assert (short.shortest, short.longest, short.texts) == (1, 4, 3)  # [CLS] a ##b [SEP]
    assert (long.shortest, long.longest, long.texts) == (5, 8, 2)
    assert short.mean == pytest.approx(1.0)
    assert short.deviation == pytest.approx(0.0, abs=1e-9)
    assert long.mean == pytest.approx(0.5**0.5)
    assert not any("abcdefghijklm" in texts for texts in model.read)


def test_a_pair_has_two_texts_and_the_seed_draws_it(retriever: Path) -> None:
    axes = np.eye(26)
    model = Known(retriever, {letter: axes[at] for at, letter in enumerate("abcdefghijklmnopqrstuvwxyz")})
    texts = list(model.vectors)
    (row,) = similarity_by_length(model, texts, lengths=(3,), pairs=200)
    assert (row.mean, row.deviation) == (0.0, 0.0)  # a text paired with itself would give 1
    drawn = []
    for seed in (0, 0, 1):
        model.read.clear()
        similarity_by_length(model, texts, lengths=(3,), pairs=5, seed=seed)
        drawn.append(list(model.read))
    assert drawn[0] == drawn[1] != drawn[2]


def test_an_encoder_counts_as_the_retriever_made_of_it(tmp_path: Path) -> None:
    texts = ["ab cd", "ef gh", "ij kl", "abcdefgh", "ijklmnop"]
    encoder, exported = write_encoder(tmp_path / "encoder"), write_retriever(tmp_path / "model")
    rows = [similarity_by_length(model, texts, lengths=(8, 32), pairs=20) for model in (encoder, exported)]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 2


def test_contexts_are_compared_with_those_of_other_passages(retriever: Path) -> None:
    passages = ["cats purr", "dogs bark"]
    own, other = ["the cat purrs", "a dog barks"], ["dogs bark loudly", "cats purr"]
    vectors = {passages[0]: EAST, passages[1]: NORTH, own[0]: EAST, own[1]: NORTH, other[0]: NORTH, other[1]: EAST}
    corpus = Dataset.from_dict({"text": passages, "neighbour": own, "queries": [[text] for text in other]})
    neighbour, queries = pair_correlation(Known(retriever, vectors), corpus)
    assert neighbour.context == "neighbour"
    assert neighbour.pairs == 2
    assert (neighbour.similarity, neighbour.random_similarity, neighbour.correlated) == (1.0, 0.0, 1.0)
    assert (neighbour.words, neighbour.random_words) == (1.0, 0.0)  # stems, without the stop words
    assert (queries.similarity, queries.random_similarity, queries.correlated) == (0.0, 1.0, 0.0)
    assert (queries.words, queries.random_words) == (0.0, pytest.approx((2 / 3 + 1) / 2))


def test_contexts_drawn_are_a_function_of_the_seed(retriever: Path) -> None:
    letters = "abcdefghijklmnop"
    corpus = Dataset.from_dict(
        {"text": list(letters), "near": [*letters[1:], None], "queries": [[f"{a}b", f"{a}c"] for a in letters]}
    )
    rows = [pair_correlation(str(retriever), corpus, pairs=8, seed=seed) for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]
    (near, _) = pair_correlation(str(retriever), corpus)
    assert near.pairs == 15


def test_a_checkpoint_of_the_hub_is_read_at_its_revision(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    copy = str(checkpoints["retromae"])
    monkeypatch.setattr(hub_names, "snapshot_download", lambda *_, revision, **__: asked.append(revision) or copy)
    assert load_with_decoders("me/pretrained@v4").config.model_type == "retromae"
    assert asked == ["v4"]


def test_positions_match_a_plain_loop_over_texts(checkpoints: dict[str, Path]) -> None:
    texts = ["abcdef", "gh", *(["ij kl mn"] * 33)]
    rows = similarity_by_position(checkpoints["seed_encoder"], texts, max_length=7)
    assert [row.position for row in rows] == list(range(6))
    assert [row.texts for row in rows] == [35, 35, 35, 34, 34, 34]  # [CLS] and up to five letters
    assert rows[0].encoder == pytest.approx(1.0)
    method, tokenizer = get_method("seed_encoder"), tiny_tokenizer()
    model = method.pretraining.from_pretrained(checkpoints["seed_encoder"])
    found: dict[int, list[tuple[float, float]]] = {}
    for text in texts:
        ids = torch.tensor([tokenizer(text, truncation=True, max_length=7)["input_ids"]])
        view = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        with torch.no_grad():
            encoded = model.encoder(**view).last_hidden_state
            hidden = model.decode("decoder", FlatRows(view), encoded[:, 0])
        for at in range(ids.shape[1] - 1):
            pair = (cosine(hidden[at], encoded[0, 0]), cosine(encoded[0, at], encoded[0, 0]))
            found.setdefault(at, []).append(pair)
    for row in rows:
        assert (row.decoder, row.encoder) == pytest.approx(np.mean(found[row.position], axis=0), abs=1e-5)


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))


def test_a_curve_has_the_means_and_their_intervals(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    values = generator.random(200)
    few, many = write_result(tmp_path / "few", values), write_result(tmp_path / "many", np.ones(200))
    points = curves({"ours": [(100.0, many), (5.0, few)]}, seed=1)
    assert [(point.curve, point.x) for point in points] == [("ours", 5.0), ("ours", 100.0)]
    assert points[0].value == pytest.approx(values.mean())
    error = 1.96 * values.std() / 200**0.5  # what the bootstrap of a mean comes near to
    assert (points[0].low, points[0].high) == pytest.approx((values.mean() - error, values.mean() + error), abs=0.005)
    assert (points[1].low, points[1].value, points[1].high) == (1.0, 1.0, 1.0)
    assert curves({"ours": [(100.0, many), (5.0, few)]}, seed=1) == points


def test_the_axis_is_logarithmic_beyond_a_decade() -> None:
    for xs, scale in (
        ((1.0, 10.0), "linear"),
        ((1.0, 10.1), "log"),
        ((0.0, 100.0), "linear"),
        ((0.0, 1.0, 10.0), "linear"),
        ((0.0, 1.0, 10.1), "symlog"),
    ):
        points = [CurvePoint("", x, 0.5, 0.4, 0.6) for x in xs]
        assert draw_curves(points, metric="mrr@10", x_label="steps").axes[0].get_xscale() == scale


def test_what_cannot_be_analysed_is_said(retriever: Path, checkpoints: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text"):
        similarity_by_length(str(retriever), [], lengths=(8,))
    with pytest.raises(InputError, match="No two texts"):
        similarity_by_length(str(retriever), ["ab", "abcdefgh"], lengths=(4, 8))
    with pytest.raises(InputError, match="at least 1"):
        similarity_by_length(str(retriever), ["ab", "cd"], lengths=(8,), pairs=0)
    with pytest.raises(InputError, match="none of the context columns"):
        pair_correlation(str(retriever), Dataset.from_dict({"text": ["a", "b"], "title": ["c", "d"]}))
    with pytest.raises(InputError, match="fewer than two contexts"):
        pair_correlation(str(retriever), Dataset.from_dict({"text": ["a", "b"], "near": ["c", ""]}))
    with pytest.raises(InputError, match="no text"):
        similarity_by_position(checkpoints["seed_encoder"], [])
    with pytest.raises(InputError, match="max_length is 65"):
        similarity_by_position(checkpoints["seed_encoder"], ["ab"], 65)
    with pytest.raises(InputError, match="from left to right"):
        similarity_by_position(checkpoints["retromae"], ["ab"], 16)
    with pytest.raises(InputError, match="no pre-training checkpoint but a 'bert'"):
        similarity_by_position(write_encoder(tmp_path / "plain"), ["ab"], 16)
    with pytest.raises(InputError, match="There is no pre-training checkpoint"):
        similarity_by_position(tmp_path / "nowhere", ["ab"], 16)


def test_an_encoder_without_its_decoder_is_refused(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    get_method("seed_encoder").encoder.from_pretrained(checkpoints["seed_encoder"]).save_pretrained(tmp_path / "part")
    with pytest.raises(InputError, match="the encoder alone"):
        similarity_by_position(tmp_path / "part", ["ab"], 16)


def test_a_decoder_of_another_text_says_nothing_here(tmp_path: Path) -> None:
    method = get_method("query_cotmae")
    causal = {"attention": "causal:3", "layers": 1, "view": {"select": "none", "labels": "next"}}
    config = method.config(backbone_config=tiny_config(), decoders={"decoder": causal})
    assert config.decoder_specs["decoder"].attention_kind == "causal"
    method.pretraining(config).save_pretrained(tmp_path / "queries")
    with pytest.raises(InputError, match="from left to right"):
        similarity_by_position(tmp_path / "queries", ["ab"], 16)


def test_results_that_make_no_curve_are_refused(tmp_path: Path) -> None:
    one, two = write_result(tmp_path / "one", [0.0, 1.0]), write_result(tmp_path / "two", [1.0, 1.0])
    other, lone = write_result(tmp_path / "other", [1.0, 1.0], first=1), write_result(tmp_path / "lone", [1.0])
    for places in ([(1.0, one)], [(1.0, one), (1.0, two)]):
        with pytest.raises(InputError, match="at least two results, each at an x of its own"):
            curves({"ours": places})
    for nowhere in (math.nan, math.inf):
        with pytest.raises(InputError, match="'ours' stands at no number; give each an x that is one"):
            curves({"ours": [(1.0, one), (nowhere, two)]})
    with pytest.raises(InputError, match="queries of the other results"):
        curves({"ours": [(1.0, one), (2.0, other)]})
    with pytest.raises(InputError, match="or only one"):
        curves({"ours": [(1.0, lone), (2.0, lone)]})
    with pytest.raises(InputError, match="has no 'f1'; it has: mrr@10"):
        curves({"ours": [(1.0, one), (2.0, two)]}, metric="f1")
    with pytest.raises(InputError, match="no evaluation result"):
        curves({"ours": [(1.0, one), (2.0, tmp_path)]})
    with pytest.raises(InputError, match="no curve"):
        curves({})


@pytest.mark.parametrize("name", ["collection", "protocol", "split"])
def test_a_curve_is_of_one_collection_protocol_and_split(name: str, tmp_path: Path) -> None:
    places = [(float(x), write_result(tmp_path / str(x), [0.0, 1.0])) for x in range(3)]
    made = {"collection": "a", "protocol": "passages", "split": "dev", "model": "m"}
    for x, place in places:
        Manifest("evaluation", "complete", {**made, "model": str(x)}, {"collection": "mine"}).save(place)
    assert len(curves({"ours": places})) == 3
    Manifest("evaluation", "complete", {**made, name: "other"}, {"collection": "theirs"}).save(places[2][1])
    with pytest.raises(InputError, match=f"/2 was measured with (an)?other {name} "):
        curves({"ours": places})
    with pytest.raises(InputError, match=f"was measured with (an)?other {name} "):
        curves({"ours": places[:2], "theirs": places[1:]})


def analyse(*arguments: object) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    run(parser.parse_args([str(argument) for argument in arguments]))


def test_every_verb_writes_a_picture_and_its_figures(
    retriever: Path, checkpoints: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letters = "abcdefghijklmnop"
    rows = [{"_id": a, "text": f"{a}a {a}b", "near": f"{a}c {a}a", "random": f"x{a} {a}y"} for a in letters]
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    write_lines(corpus / "corpus.jsonl", [*rows, {"_id": "z", "text": " "}])
    results = [
        f"{name}:{x}={write_result(tmp_path / f'{name}{x}', np.random.default_rng(x).random(30) * share)}"
        for name, share in (("ours", 1.0), ("bert", 0.8))
        for x in (5, 10, 100)
    ]
    out = tmp_path / "out"
    analyse("lengths", retriever, corpus, "--lengths", 8, 16, "--pairs", 20, "--out", out / "lengths")
    analyse("positions", checkpoints["seed_encoder"], corpus, "--max_length", 16, "--out", out / "positions")
    analyse("contexts", retriever, corpus, "--out", out / "contexts")
    analyse("curve", *results, "--x_label", "queries (%)", "--out", out / "curve")
    counts = {"lengths": 1, "positions": 5, "contexts": 2, "curve": 6}
    for kind, count in counts.items():
        assert {path.name for path in (out / kind).iterdir()} == {f"{kind}.png", f"{kind}.json", MANIFEST}
        assert is_drawn(out / kind / f"{kind}.png")
        written = json.loads((out / kind / f"{kind}.json").read_text())
        assert len(written["rows"]) == count
        assert (written["provenance"] is None) == (kind == "curve")
    assert "drawn in" in capsys.readouterr().out


def test_nothing_else_is_overwritten(retriever: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("ab\ncd\nef\n")
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "curve.json").write_text("{}")
    with pytest.raises(InputError, match="was not written by hf_dense"):
        analyse("lengths", retriever, texts, "--out", occupied, "--overwrite")
    given: tuple[object, ...] = ("lengths", retriever, texts, "--out", tmp_path / "lengths")
    analyse(*given)
    analyse(*given)
    assert "is there already" in capsys.readouterr().out
    with pytest.raises(InputError, match="other texts drawn"):
        analyse(*given, "--seed", 1)
    analyse(*given, "--seed", 1, "--overwrite")
    with pytest.raises(InputError, match="another model"):
        analyse("lengths", write_retriever(tmp_path / "other", seed=3), *given[2:], "--seed", 1)
    texts.write_text("ab\ncd\nefg\n")
    with pytest.raises(InputError, match="other texts drawn"):
        analyse(*given, "--seed", 1)
    assert json.loads((tmp_path / "lengths" / "lengths.json").read_text())["settings"]["seed"] == 1
    with pytest.raises(InputError, match="with a number X"):
        analyse("curve", "few=there", "--x_label", "queries", "--out", tmp_path / "curve")
    assert not (tmp_path / "curve").exists()
