"""An endless question is read anew with every passage by its beginning alone, and scores stay as they are."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder.modules import LogitScore, Transformer
from tiny_retriever import BACKBONE, VOCABULARY, change_json, random_words, tiny_tokenizer, write_cross_encoder
from transformers import Qwen2Config, Qwen2ForCausalLM

from hf_dense.errors import InputError
from hf_dense.hub.export import export_cross_encoder
from hf_dense.hub.loading import is_cross_encoder
from hf_dense.search import cross_encoder
from hf_dense.search.cross_encoder import load_reranker, predict_scores, read_part

MAX_LENGTH = 24
PASSAGES = ["ab cd", "ef gh " * 50, ""]
WORDS = " ".join(random_words(2_000))
ENDLESS = {
    "words": WORDS,
    "one word": "x" * 20_000,
    "an unknown word": "\u2603" * 20_000,
    "a word behind blanks": " " * 20_000 + "ab",
    "a letter that makes a word unknown": "ab" * 40 + "\u2603" + " " * 20_000,
}


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("reranker")
    write_cross_encoder(folder)
    return load_reranker(folder, MAX_LENGTH)


@pytest.mark.parametrize("question", ENDLESS.values(), ids=ENDLESS)
def test_an_endless_question_has_the_scores_of_all_of_it(question: str, reranker: CrossEncoder) -> None:
    wanted = reranker.predict([(question, passage) for passage in PASSAGES], show_progress_bar=False)
    (found,) = predict_scores(reranker, [(question, PASSAGES)], 2, lambda _: None)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_it_is_read_whole_once(reranker: CrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    read, preprocess = list[int](), reranker.preprocess

    def counted(pairs: list[tuple[str, str]], **named: Any) -> Any:
        read.extend(len(query) for query, _ in pairs)
        return preprocess(pairs, **named)

    monkeypatch.setattr(reranker, "preprocess", counted)
    predict_scores(reranker, [(ENDLESS["words"], PASSAGES), ("ab cd", PASSAGES)], 2, lambda _: None)
    assert len(read) == 2 * len(PASSAGES)
    assert max(read) < len(WORDS) / 10


def test_a_question_whose_beginning_says_less_stays_whole(reranker: CrossEncoder) -> None:
    assert read_part(reranker, ENDLESS["a word behind blanks"]) == ENDLESS["a word behind blanks"]
    assert read_part(reranker, "ab cd") == "ab cd"
    assert len(read_part(reranker, ENDLESS["one word"])) < 1_000


def test_a_pair_is_cut_to_the_positions_that_there_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    CrossEncoder(str(write_cross_encoder(tmp_path / "plain"))).save_pretrained(str(tmp_path / "saved"))
    change_json(tmp_path / "saved" / "sentence_bert_config.json", max_seq_length=100)
    found = load_reranker(tmp_path / "saved")
    assert found.max_seq_length == 64
    assert "is to read 100 tokens of a text (max_seq_length), and its encoder has positions for 64" in caplog.text
    pairs = [("a", "b " * 200)]
    wanted = load_reranker(tmp_path / "plain", max_length=64).predict(pairs, show_progress_bar=False)
    np.testing.assert_allclose(found.predict(pairs, show_progress_bar=False), wanted, atol=1e-6)


def test_a_language_model_scores_pairs_where_sentence_transformers_reads_a_score_of_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    bare, yes, no = tmp_path / "bare", VOCABULARY.index("y"), VOCABULARY.index("n")
    shape = {**BACKBONE, "num_key_value_heads": 2, "vocab_size": len(VOCABULARY), "pad_token_id": 0, "eos_token_id": 3}
    Qwen2ForCausalLM(Qwen2Config(**shape)).save_pretrained(bare)
    tiny_tokenizer().save_pretrained(bare)
    modules = [Transformer(str(bare), transformer_task="text-generation"), LogitScore(yes, no)]
    CrossEncoder(modules=modules, device="cpu").save_pretrained(str(tmp_path / "words"), create_model_card=False)
    pairs = [("ab cd", passage) for passage in PASSAGES[:2]]
    plain = CrossEncoder(str(tmp_path / "words"), device="cpu")
    wanted = plain.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    exported = export_cross_encoder(tmp_path / "words", tmp_path / "exported")
    for folder in (tmp_path / "words", exported):
        assert is_cross_encoder(folder)
        (found,) = predict_scores(load_reranker(folder), [("ab cd", PASSAGES[:2])], 2, lambda _: None)
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert not is_cross_encoder(bare)
    with pytest.raises(InputError, match="bare has no head that scores pairs; train a re-ranker from it first"):
        load_reranker(bare)


def test_threads_that_share_it_read_one_after_the_other(
    reranker: CrossEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a long question the tokenizer is told not to cut; what another thread read meanwhile was not cut either."""
    at_once = Counter[str]()

    def counted(model: CrossEncoder, question: str) -> str:
        at_once["now"] += 1
        at_once["most"] = max(at_once["most"], at_once["now"])
        sleep(0.05)
        at_once["now"] -= 1
        return read_part(model, question)

    monkeypatch.setattr(cross_encoder, "read_part", counted)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: predict_scores(reranker, [(WORDS, PASSAGES)], 2, bool), range(4)))
    assert at_once["most"] == 1
