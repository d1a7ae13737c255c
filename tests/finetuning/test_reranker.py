"""The listwise re-ranker: its losses against plain references, its training, its resume, what it refuses."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from launched import launch
from manifests import manifest_of
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from test_biencoder import killed_after, killed_at_the_end
from tiny_retriever import (
    random_words,
    tiny_config,
    tiny_tokenizer,
    weights,
    write_checkpoint,
    write_cross_encoder,
    write_encoder,
    write_retriever,
)
from tokenizers import processors
from transformers import (
    BertForSequenceClassification,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from hf_dense.errors import InputError
from hf_dense.finetuning.lists import Entry, PassageLists
from hf_dense.finetuning.reranker import (
    ListwiseLoss,
    RerankerTrainingArguments,
    kept_passages,
    listwise_loss,
    r_drop_loss,
    train_reranker,
)
from hf_dense.search.cross_encoder import load_reranker


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder") / "bert")


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder without dropout."""
    directory = tmp_path_factory.mktemp("still") / "bert"
    torch.manual_seed(1)
    config = tiny_config()
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    BertModel(config, add_pooling_layer=False).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return directory


def lists(queries: int = 12, passages: int = 4, seed: int = 3) -> PassageLists:
    """Every positive ends in z; no negative does."""
    words = random_words(5 * queries)
    texts = {f"n{row}": word[:3] + "a" for row, word in enumerate(words[queries:])}
    texts |= {f"p{row}": word[:3] + " z" for row, word in enumerate(words[:queries])}
    corpus = Dataset.from_dict({"id": list(texts), "title": [""] * len(texts), "text": list(texts.values())})
    negatives = [tuple(f"n{4 * row + at}" for at in range(4)) for row in range(queries)]
    entries = [Entry(f"q{row}", words[row], (f"p{row}",), negatives[row]) for row in range(queries)]
    return PassageLists(entries, corpus, passages, seed)


def arguments(output_dir: Path, **changes: Any) -> RerankerTrainingArguments:
    options = {
        "per_device_train_batch_size": 4,
        "passages": 4,
        "kept": 3,
        "learning_rate": 2e-3,
        "max_steps": 4,
        "logging_steps": 1,
        "seed": 5,
        "use_cpu": True,
        "disable_tqdm": True,
        **changes,
    }
    return RerankerTrainingArguments(output_dir=str(output_dir), **options)


def history(run: Path) -> list[dict[str, float]]:
    entries = json.loads((run / "trainer_state.json").read_text())["log_history"]
    return [{"step": entry["step"], "loss": entry["loss"]} for entry in entries if "loss" in entry]


def softmax(row: list[float]) -> list[float]:
    total = sum(map(math.exp, row))
    return [math.exp(value) / total for value in row]


def test_a_re_ranker_is_trained_with_the_prompt_that_it_scores_with(still: Path, tmp_path: Path) -> None:
    model = CrossEncoder(str(still), num_labels=1, prompts={"own": "is it: "}, default_prompt_name="own", device="cpu")
    model.save_pretrained(str(tmp_path / "prompted"), create_model_card=False)
    rows = lists(queries=4).dataset()[:]
    scores = [
        model.predict([(query, text) for text in texts], activation_fn=torch.nn.Identity(), convert_to_tensor=True)
        for query, texts in zip(rows["query"], rows["passages"], strict=True)
    ]
    options = {"max_steps": 1, "learning_rate": 0.0, "kept": None, "r_drop": False}
    train_reranker(tmp_path / "prompted", lists(queries=4), arguments(tmp_path / "run", **options), max_length=32)
    assert history(tmp_path / "run")[0]["loss"] == pytest.approx(listwise_loss(torch.stack(scores)).item(), rel=1e-4)


def test_losses_are_those_of_plain_loops() -> None:
    torch.manual_seed(0)
    first, second = torch.randn(5, 7, dtype=torch.float64), torch.randn(5, 7, dtype=torch.float64)
    entropy, divergence = [0.0, 0.0], 0.0
    for one, other in zip(first.tolist(), second.tolist(), strict=True):
        p, q = softmax(one), softmax(other)
        entropy[0] -= math.log(p[0]) / 5
        entropy[1] -= math.log(q[0]) / 5
        divergence += sum(a * math.log(a / b) + b * math.log(b / a) for a, b in zip(p, q, strict=True)) / 5
    assert listwise_loss(first).item() == pytest.approx(entropy[0], rel=1e-12)
    assert r_drop_loss(first, second).item() == pytest.approx((sum(entropy) + divergence) / 2, rel=1e-12)
    assert r_drop_loss(first, first).item() == pytest.approx(entropy[0], rel=1e-12)


def test_the_positive_is_kept_and_the_highest_of_the_others() -> None:
    torch.manual_seed(0)
    scores = torch.randn(6, 9)
    scores[2, 4] = math.inf
    for kept in (2, 5, 9):
        for row, places in zip(scores.tolist(), kept_passages(scores, kept).tolist(), strict=True):
            others = sorted(range(1, 9), key=lambda at: -row[at])
            assert places == [0, *others[: kept - 1]]


@pytest.mark.parametrize("kept", [None, 4, 9])
def test_without_dropout_the_loss_is_the_cross_entropy_of_the_list(still: Path, kept: int | None) -> None:
    model, (queries, texts) = load_reranker(still, 32, new_head=True), batch(lists())
    loss = ListwiseLoss(model, kept, r_drop=False, chunk=64)([queries, texts])
    total = 0.0
    for query, passages in zip(queries, texts, strict=True):
        scores = model.predict([(query, passage) for passage in passages], activation_fn=torch.nn.Identity())
        total -= math.log(softmax(scores.tolist())[0])
    assert loss.item() == pytest.approx(total / len(queries), rel=1e-5)


def test_kept_trains_on_the_highest_alone(still: Path) -> None:
    model, (queries, texts) = load_reranker(still, 32, new_head=True), batch(lists())
    scores = torch.stack(
        [
            model.predict([(query, text) for text in row], convert_to_tensor=True)
            for query, row in zip(queries, texts, strict=True)
        ]
    )
    expected = listwise_loss(scores.gather(1, kept_passages(scores, 2)))
    model.train()
    loss = ListwiseLoss(model, 2, r_drop=False, chunk=64)([queries, texts])
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert model.training


def batch(drawn: PassageLists, rows: int = 5) -> tuple[list[str], list[list[str]]]:
    read = drawn.dataset()[:rows]
    return read["query"], read["passages"]


@pytest.mark.parametrize("r_drop", [False, True])
def test_chunks_give_the_gradients_of_one_pass(still: Path, r_drop: bool) -> None:
    gradients = []
    for chunk in (1000, 3):
        torch.manual_seed(0)
        model = load_reranker(still, 32, new_head=True).train()
        ListwiseLoss(model, 3, r_drop=r_drop, chunk=chunk)(batch(lists())).backward()
        gradients.append({name: value.grad for name, value in model.named_parameters() if value.grad is not None})
    whole, cut = gradients
    assert whole.keys() == cut.keys()
    assert len(whole) > 30
    for name in whole:
        torch.testing.assert_close(cut[name], whole[name], rtol=1e-4, atol=1e-6)


def test_r_drop_tells_two_dropouts_apart(encoder: Path, still: Path) -> None:
    for base, differs in ((encoder, True), (still, False)):
        model = load_reranker(base, 32, new_head=True).train()
        torch.manual_seed(0)
        once = ListwiseLoss(model, None, r_drop=False, chunk=1000)(batch(lists())).item()
        torch.manual_seed(0)
        twice = ListwiseLoss(model, None, r_drop=True, chunk=1000)(batch(lists())).item()
        assert (twice != pytest.approx(once, rel=1e-4)) is differs


def test_the_loss_falls_and_positives_come_first(encoder: Path, tmp_path: Path) -> None:
    drawn = lists(queries=32)
    model = train_reranker(encoder, drawn, arguments(tmp_path / "run", max_steps=60), max_length=32)

    assert model == tmp_path / "run" / "model"
    losses = [entry["loss"] for entry in history(tmp_path / "run")]
    assert len(losses) == 60
    assert sum(losses[-5:]) < 0.3 * sum(losses[:5])
    trained = CrossEncoder(str(model))
    assert trained.max_seq_length == 32
    queries, texts = batch(drawn, rows=32)
    first = 0
    for query, passages in zip(queries, texts, strict=True):
        scores = trained.predict([(query, passage) for passage in passages])
        first += int(scores.argmax() == 0)
    assert first >= 30
    assert scores.min() < 0, "predict gives logits"


@pytest.mark.parametrize("stopped", [3, *(pytest.param(stopped, marks=pytest.mark.slow) for stopped in (2, 5, None))])
def test_a_resumed_run_ends_as_an_uninterrupted_one(stopped: int | None, encoder: Path, tmp_path: Path) -> None:
    options = {"max_steps": 8, "save_strategy": "steps", "save_steps": 1}  # three steps in an epoch
    whole = train_reranker(encoder, lists(), arguments(tmp_path / "whole", **options), max_length=32)

    with killed_at_the_end() if stopped is None else killed_after(stopped):
        train_reranker(encoder, lists(), arguments(tmp_path / "killed", **options), max_length=32)
    if stopped is not None:
        (tmp_path / "killed" / "checkpoint-7").mkdir()  # not complete
    resumed = train_reranker(encoder, lists(), arguments(tmp_path / "killed", **options), max_length=32)

    expected, found = weights(whole), weights(resumed)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert history(tmp_path / "killed") == history(tmp_path / "whole")


def test_the_same_again_is_done_and_something_else_refused(encoder: Path, still: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = train_reranker(encoder, lists(), arguments(run), max_length=32)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert train_reranker(encoder, lists(), arguments(run), max_length=32) == model
    other = lists()
    other.replace([*other.entries[:-1], Entry("q11", other.entries[-1].query, ("p11",), ("n0", "n1", "n2", "n3"))])
    for base, made, changes, length, difference in [
        (still, lists(), {}, 32, "base"),
        (encoder, other, {}, 32, "lists"),
        (encoder, lists(passages=3), {}, 32, "passages of a list"),
        (encoder, lists(), {}, 31, "base|max_length"),
        (encoder, lists(), {"kept": None}, 32, r"kept \(3, now none\)"),
        (encoder, lists(), {"learning_rate": 1e-3}, 32, "learning_rate"),
    ]:
        with pytest.raises(InputError, match=f"was made from (an)?other ({difference})"):
            train_reranker(base, made, arguments(run, **changes), max_length=length)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    with pytest.raises(InputError, match="was not written by hf_dense"):
        train_reranker(encoder, lists(), arguments(tmp_path / "mine", overwrite=True), max_length=32)
    train_reranker(encoder, lists(), arguments(run, kept=None, overwrite=True), max_length=32)
    manifest = manifest_of(model)
    assert (manifest.kind, manifest.sources["base"]) == ("cross-encoder", str(encoder))


def test_passages_are_drawn_anew_in_every_epoch(encoder: Path, tmp_path: Path) -> None:
    drawn, epochs = lists(passages=2), []
    texts = drawn.texts
    drawn.texts = lambda names: (epochs.append((drawn.epoch, tuple(names))), texts(names))[1]  # type: ignore[method-assign]
    train_reranker(encoder, drawn, arguments(tmp_path / "run", max_steps=7), max_length=32)
    assert [epoch for epoch, _ in epochs[:24]] == [0] * 12 + [1] * 12
    assert epochs[24][0] == 2
    assert {names for _, names in epochs[:12]} != {names for _, names in epochs[12:24]}


def roberta_tokenizer() -> PreTrainedTokenizerFast:
    """One that numbers the parts of a pair, which RoBERTa cannot read."""
    tokenizer = tiny_tokenizer().backend_tokenizer
    ends = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep", "pad", "unk", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


SIZES = {"vocab_size": 57, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BASES: dict[str, Any] = {
    "bert": lambda: BertModel(tiny_config()),
    "electra": lambda: ElectraModel(ElectraConfig(**SIZES, embedding_size=8, max_position_embeddings=40)),
    "roberta": lambda: RobertaModel(
        RobertaConfig(**SIZES, max_position_embeddings=40, type_vocab_size=1, pad_token_id=0)
    ),
    "distilbert": lambda: DistilBertModel(
        DistilBertConfig(vocab_size=57, dim=16, n_layers=1, n_heads=2, hidden_dim=16, max_position_embeddings=40)
    ),
    "cross-encoder": lambda: BertForSequenceClassification(tiny_config(num_labels=1)),
}


@pytest.mark.parametrize("kind", BASES)
def test_bases_of_several_families_train_and_load_again(kind: str, tmp_path: Path) -> None:
    base = tmp_path / kind
    BASES[kind]().save_pretrained(base)
    (roberta_tokenizer() if kind == "roberta" else tiny_tokenizer()).save_pretrained(base)
    model = train_reranker(base, lists(), arguments(tmp_path / "run", max_steps=2), max_length=24)
    for loaded in (CrossEncoder(str(model)), load_reranker(model)):
        assert loaded.predict([("abcd", "efgh z")]).shape == (1,)
    if kind == "cross-encoder":
        before, after = weights(base)["classifier.weight"], weights(model)["classifier.weight"]
        assert torch.nn.functional.cosine_similarity(before, after).item() > 0.9


def test_a_retriever_and_a_loaded_model_are_bases_too(tmp_path: Path) -> None:
    retriever = write_retriever(tmp_path / "retriever")
    model = train_reranker(retriever, lists(), arguments(tmp_path / "first", max_steps=1), max_length=24)
    loaded = CrossEncoder(str(model), activation_fn=torch.nn.Sigmoid())
    again = train_reranker(loaded, lists(), arguments(tmp_path / "second", max_steps=1), max_length=20)
    assert isinstance(CrossEncoder(str(again)).activation_fn, torch.nn.Identity)
    assert CrossEncoder(str(again)).max_seq_length == 20


def test_a_base_that_is_kept_in_16_bits_is_trained_in_32(encoder: Path, tmp_path: Path) -> None:
    half = CrossEncoder(str(encoder), num_labels=1, device="cpu").to(torch.float16)
    half.save_pretrained(str(tmp_path / "half"))
    half.float().save_pretrained(str(tmp_path / "whole"))
    short, whole = (
        train_reranker(tmp_path / name, lists(), arguments(tmp_path / f"of-{name}", max_steps=3), max_length=20)
        for name in ("half", "whole")
    )
    assert all(torch.equal(tensor, weights(whole)[name]) for name, tensor in weights(short).items())


@pytest.mark.slow
def test_sixteen_bits_and_an_evaluator(encoder: Path, tmp_path: Path) -> None:
    drawn = lists()
    queries, texts = batch(drawn, rows=12)
    samples = [
        {"query": query, "positive": row[:1], "negative": row[1:]} for query, row in zip(queries, texts, strict=True)
    ]
    options = arguments(tmp_path / "run", max_steps=40, bf16=True, chunk=5, eval_strategy="steps", eval_steps=20)
    evaluator = CrossEncoderRerankingEvaluator(samples, name="dev", write_csv=False)
    train_reranker(encoder, drawn, options, max_length=32, evaluator=[evaluator])
    losses = [entry["loss"] for entry in history(tmp_path / "run")]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    log = json.loads((tmp_path / "run" / "trainer_state.json").read_text())["log_history"]
    assert [entry["step"] for entry in log if "eval_dev_mrr@10" in entry] == [20, 40]


def test_the_card_quotes_no_training_text(encoder: Path, tmp_path: Path) -> None:
    drawn = lists()
    model = train_reranker(encoder, drawn, arguments(tmp_path / "run"), max_length=32)
    card = (model / "README.md").read_text()
    assert not [entry.query for entry in drawn.entries if entry.query in card]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"passages": 1}, "passages is 1"),
        ({"kept": 1}, "kept is 1"),
        ({"chunk": 0}, "chunk is 0"),
        (
            {"dataloader_persistent_workers": True, "dataloader_num_workers": 1},
            "dataloader_persistent_workers would freeze",
        ),
    ],
)
def test_bad_arguments_are_one_sentence(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        arguments(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("base", "length", "changes", "message"),
    [
        ("bert", 65, {}, "max_length is 65; the encoder takes pairs of 4 to 64 tokens"),
        ("nowhere/at/all", 32, {}, "There is no model directory"),
        ("three", 32, {}, "gives 3 scores"),
        ("bert", 32, {"resume_from_checkpoint": "true"}, "There is no complete checkpoint in"),
        ("bert", 32, {"resume_from_checkpoint": "tests"}, "tests is not a complete checkpoint"),
    ],
)
def test_bad_input_is_one_sentence(
    base: str, length: int, changes: dict[str, Any], message: str, encoder: Path, tmp_path: Path
) -> None:
    write_cross_encoder(tmp_path / "three", labels=3)
    given = {"bert": encoder, "three": tmp_path / "three"}.get(base, base)
    with pytest.raises(InputError, match=message):
        train_reranker(given, lists(), arguments(tmp_path / "run", **changes), max_length=length)
    assert not (tmp_path / "run").exists()


def test_a_pretraining_checkpoint_is_no_base_and_the_way_to_one_is_said(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(InputError, match=f"write one with hf-dense export {checkpoint} --kind encoder"):
        load_reranker(checkpoint, new_head=True)


def test_lists_of_one_passage_and_untrained_heads_are_refused(encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lists have one passage each"):
        train_reranker(encoder, lists(passages=1), arguments(tmp_path / "run"), max_length=32)
    with pytest.raises(InputError, match="has no head that scores pairs; train a re-ranker from it"):
        load_reranker(encoder)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_ends_the_training(encoder: Path, tmp_path: Path) -> None:
    options = arguments(tmp_path / "run", learning_rate=1e30, max_steps=20, warmup_steps=0)
    with pytest.raises(InputError, match=r"The loss is (nan|inf) at step \d+; lower learning_rate"):
        train_reranker(encoder, lists(), options, max_length=32)
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.slow
def test_two_processes_train_as_one_does(still: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys\nfrom pathlib import Path\nsys.path[:0] = {[str(Path(__file__).parent), *sys.path]}\n"
        "import test_reranker as t\nrun, rows = Path(sys.argv[1]), int(sys.argv[2])\n"
        "arguments = t.arguments(run, per_device_train_batch_size=rows, chunk=5, max_steps=6)\n"
        f"t.train_reranker({str(still)!r}, t.lists(), arguments, max_length=32)\n"
    )
    losses = {}
    for processes in (1, 2):
        run = tmp_path / str(processes)
        done = launch(script, run, str(4 // processes), processes=processes)
        assert done.returncode == 0, done.stderr
        losses[processes] = [entry["loss"] for entry in history(run)]
    assert losses[2] == pytest.approx(losses[1], rel=1e-4)
