"""Texts of a batch in groups of like length: the vectors and gradients of the whole batch, with less padding."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from tiny_retriever import random_words, write_embedder, write_retriever

from hf_dense.finetuning.batches import ListCollator
from hf_dense.finetuning.embedding import cut_padding, embed, gradients_of_read_words, group_by_length


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_retriever(tmp_path_factory.mktemp("retriever") / "dot")


def texts(number: int = 21) -> list[str]:
    words = random_words(40)
    return [" ".join(words[: 1 + 7 * row % 13]) for row in range(number)]


def tokens(model: SentenceTransformer, side: str) -> dict[str, torch.Tensor]:
    model.tokenizer.padding_side = side
    return {key: value for key, value in model.preprocess(texts()).items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("chunk", [None, 4, 100])
def test_vectors_and_gradients_are_those_of_the_whole_batch(retriever: Path, side: str, chunk: int | None) -> None:
    vectors, gradients = [], []
    for grouped in (False, True):
        model = SentenceTransformer(str(retriever)).double().eval()
        batch = tokens(model, side)
        found = embed(model, batch, "query", chunk) if grouped else model(batch, task="query")["sentence_embedding"]
        (found * torch.arange(found.numel()).view_as(found).double().sin()).sum().backward()
        vectors.append(found.detach())
        gradients.append({name: value.grad for name, value in model.named_parameters() if value.grad is not None})
    torch.testing.assert_close(vectors[1], vectors[0], rtol=1e-9, atol=1e-12)
    assert gradients[0].keys() == gradients[1].keys() != set()
    for name, expected in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], expected, rtol=1e-7, atol=1e-10, msg=name)


@pytest.mark.parametrize("steps", [1, 2])
def test_gradients_of_the_words_that_are_read_are_those_of_the_vocabulary(retriever: Path, steps: int) -> None:
    found = []
    for sparse in (False, True):
        model = SentenceTransformer(str(retriever)).double().eval()
        words = model[0].auto_model.get_input_embeddings()
        batch, kinds = tokens(model, "right"), list[bool]()
        with gradients_of_read_words(model) if sparse else nullcontext():
            hook = words.weight.register_hook(lambda gradient, kinds=kinds: kinds.append(gradient.is_sparse))
            for _ in range(steps):  # whose gradients are added up
                embed(model, batch, "query").sin().sum().backward()
            hook.remove()
        assert kinds == steps * [sparse]
        assert words.weight.grad.layout == torch.strided
        found.append(words.weight.grad)
        assert not words.sparse
        words.weight.grad = None
        embed(model, batch, "query").sum().backward()
        assert words.weight.grad.layout == torch.strided, "as before"
    assert found[0].any()
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


def test_less_than_half_of_the_padding_is_read(retriever: Path) -> None:
    model = SentenceTransformer(str(retriever))
    batch = tokens(model, "right")
    read = list[int]()
    model[0].register_forward_pre_hook(lambda module, given: read.append(given[0]["input_ids"].numel()))
    embed(model, batch, "query")
    real, padded = int(batch["attention_mask"].sum()), batch["input_ids"].numel()
    assert len(read) > 1
    assert real <= sum(read) < real + (padded - real) / 2


def test_rows_that_read_nothing_keep_their_width() -> None:
    mask = torch.tensor([[1, 1], [0, 0]])
    assert cut_padding({"attention_mask": mask, "input_ids": mask}, torch.tensor([1]))["input_ids"].shape == (1, 2)


def test_every_row_is_in_one_group() -> None:
    mask = (torch.arange(9) < torch.randint(1, 9, (23, 1))).long()
    groups = group_by_length(mask, 8)
    assert sorted(torch.cat(groups).tolist()) == list(range(23))
    lengths = mask.sum(dim=1)[torch.cat(groups)]
    assert (lengths.diff() >= 0).all()
    assert [len(group) for group in groups] == [8, 8, 7]


@pytest.mark.parametrize("chunk", [None, 4])
def test_a_prompt_that_is_not_pooled_is_not_pooled_in_training(tmp_path: Path, chunk: int | None) -> None:
    model = SentenceTransformer(str(write_embedder(tmp_path / "model")))
    model[1].include_prompt = False
    prompts = {"query": "ask "}
    collate = ListCollator(preprocess_fn=model.preprocess, prompts=prompts, router_mapping={"query": "query"})
    batch = collate([{"query": text, "passages": [text]} for text in texts()])
    features = {key.removeprefix("query_"): value for key, value in batch.items() if key.startswith("query_")}
    with torch.no_grad():
        found = embed(model, features, "query", chunk)
    torch.testing.assert_close(found, model.encode_query(texts(), convert_to_tensor=True), rtol=1e-5, atol=1e-6)
