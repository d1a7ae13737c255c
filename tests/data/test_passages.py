from __future__ import annotations

from pathlib import Path

import pytest
from datasets import Dataset
from tiny_retriever import write_embedder, write_two_encoders
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from hf_dense.data.passages import (
    add_neighbours,
    build_passages,
    count_words,
    load_tokenizer,
    pretoken_counter,
    token_counter,
)
from hf_dense.errors import InputError


def count_spaces(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def test_sentences_are_packed_greedily_across_paragraphs() -> None:
    document = ["One two three. Four five.", "Six seven eight nine. Ten."]
    assert build_passages([document], 6, count_spaces) == [["One two three. Four five.", "Six seven eight nine. Ten."]]
    assert build_passages([document], 5, count_spaces)[0][0] == "One two three. Four five."
    assert build_passages([document], 100, count_spaces) == [["One two three. Four five. Six seven eight nine. Ten."]]


def test_no_passage_exceeds_the_length_and_no_word_is_lost() -> None:
    documents = [
        [" ".join(f"word{n}" for n in range(size)) + "." for size in (1, 40, 3, 17)],
        ["A-b-c-d-e-f-g-h-i-j-k-l-m-n. And a normal sentence follows it."],
    ]
    count = pretoken_counter()
    for length in (2, 5, 8, 16):
        for document, passages in zip(documents, build_passages(documents, length, count), strict=True):
            assert max(count(passages)) <= length
            assert "".join("".join(passages).split()) == "".join("".join(document).split())


def test_chinese_is_cut_between_its_sentences_and_stays_as_it_is_written() -> None:
    document = ["退货需要发票。请先联系客服。三天之内免费。"]
    assert build_passages([document], 16, pretoken_counter()) == [["退货需要发票。请先联系客服。", "三天之内免费。"]]


def test_a_document_is_cut_by_the_abbreviations_of_its_language() -> None:
    long = "Das ist für alle, die es noch nicht gehört haben, und auch für die, denen es bekannt ist."
    document = [long, "Ja gut. Siehe Abb. 3 unten."]
    assert build_passages([document], 6, pretoken_counter())[0][-1] == "Siehe Abb. 3 unten."
    assert build_passages([document[1:]], 6, pretoken_counter())[0][-1] == "3 unten."


def test_documents_stay_apart_and_empty_ones_have_no_passage() -> None:
    assert build_passages([["One."], [], ["Two."]], 10, count_spaces) == [["One."], [], ["Two."]]


def test_sentences_that_repeat_the_banned_text_are_removed() -> None:
    document = ["Intro words. Return the SUM of both.", "In short: return the sum of both, quickly. Rest."]
    assert build_passages([document], 50, count_spaces, ["return the sum"]) == [["Intro words. Rest."]]
    assert build_passages([["Any text."]], 50, count_spaces, [""]) == [["Any text."]]


@pytest.mark.parametrize("length", [1, 0, -3])
def test_a_length_without_room_is_an_error(length: int) -> None:
    with pytest.raises(InputError, match="give at least 2"):
        build_passages([["One."]], length, count_spaces)


def test_pretokens_are_those_of_bert() -> None:
    texts = ["Don't use `numpy.array`!", "caf\u00e9  na\u00efve_name", "\u4f60\u597d x\u2264y", ""]
    normalizer, pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    expected = [len(pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text))) for text in texts]
    assert pretoken_counter()(texts) == expected
    assert expected[0] == 10
    assert pretoken_counter()([]) == []


@pytest.mark.parametrize(
    ("text", "letters"), [("การคืนสินค้า ABC", 10), ("返品は無料です。", 8), ("မြန်မာ", 3), ("ខ្មែរ", 3)]
)
def test_letters_of_scripts_without_spaces_are_counted(text: str, letters: int) -> None:
    assert pretoken_counter()([text]) == [letters]


def test_thai_is_cut_to_the_length_that_is_asked_for() -> None:
    (passages,) = build_passages([["การคืนสินค้าต้องมีใบเสร็จรับเงินและบรรจุภัณฑ์เดิม" * 3]], 30, pretoken_counter())
    assert len(passages) > 3
    assert max(pretoken_counter()(passages)) <= 30


def test_words_have_two_letters() -> None:
    assert count_words("An x_value of 3.5, a b") == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [("東京は日本の首都です。", 10), ("เมืองหลวง", 8), ("यह एक छोटा वाक्य है।", 5), ("iPhone手机", 3)],
)
def test_words_of_scripts_without_spaces_or_with_signs_for_vowels(text: str, words: int) -> None:
    assert count_words(text) == words


def test_neighbour_is_the_next_passage_and_for_the_last_the_previous() -> None:
    corpus = Dataset.from_dict(
        {
            "text": ["b1", "a0", "lonely", "b0", "a2", "a1"],
            "document": ["b", "a", "c", "b", "a", "a"],
            "position": [1, 0, 0, 0, 10, 9],
        }
    )
    pairs = add_neighbours(corpus)
    assert pairs.column_names == ["text", "document", "position", "neighbour"]
    assert list(pairs["text"]) == ["a0", "a1", "a2", "b0", "b1"]
    assert list(pairs["neighbour"]) == ["a1", "a2", "a1", "b1", "b0"]


def test_neighbours_of_lonely_passages_are_an_empty_table() -> None:
    pairs = add_neighbours(Dataset.from_dict({"text": ["x"], "document": ["d"], "position": [0]}))
    assert pairs.num_rows == 0
    assert pairs.column_names == ["text", "document", "position", "neighbour"]


def test_neighbours_need_positions() -> None:
    with pytest.raises(InputError, match="need the corpus column 'document', but it has only id, text"):
        add_neighbours(Dataset.from_dict({"id": ["1"], "text": ["x"]}))


def test_no_passage_is_longer_where_tokens_begin_with_a_space(tmp_path: Path) -> None:
    """As those of GPT-2, RoBERTa and ModernBERT do."""
    sentences = [f"{word} opened the {word.lower()} valve." for word in ("Nobody", "Pumps", "Somebody", "People")]
    bytes_of = Tokenizer(models.BPE())
    bytes_of.pre_tokenizer, bytes_of.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    bytes_of.train_from_iterator(["of the opened valve nobody pumps people somebody"] * 9, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytes_of)
    tokenizer.save_pretrained(tmp_path)
    count = token_counter(str(tmp_path))
    for length in range(20, 60):
        [passages] = build_passages([[" ".join(sentences)]], length, count)
        assert " ".join(passages) == " ".join(sentences)
        assert max(len(ids) for ids in tokenizer(passages, add_special_tokens=False)["input_ids"]) <= length


def test_of_two_encoders_the_tokenizer_is_that_of_passages(tmp_path: Path) -> None:
    two = write_two_encoders(tmp_path / "two")
    assert load_tokenizer(str(two)).model_max_length == 20, "queries have 8"
    (two / "router_config.json").write_text("{}")
    with pytest.raises(InputError, match="No tokenizer can be loaded from"):
        load_tokenizer(str(two))


def test_the_tokenizer_of_a_retriever_of_2019_lies_in_a_folder(tmp_path: Path) -> None:
    embedder = write_embedder(tmp_path / "embedder")
    expected = load_tokenizer(str(embedder)).get_vocab()
    (embedder / "0_Transformer").mkdir()
    for file in embedder.glob("*token*"):
        file.rename(embedder / "0_Transformer" / file.name)
    modules = (embedder / "modules.json").read_text().replace('"path": ""', '"path": "0_Transformer"')
    (embedder / "modules.json").write_text(modules)
    assert load_tokenizer(str(embedder)).get_vocab() == expected
