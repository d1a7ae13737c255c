"""What masking reads of a tokenizer, and training one."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_pretraining import random_text
from tiny_retriever import spaced_tokenizer, tiny_tokenizer
from tokenizers import pre_tokenizers, processors
from transformers import BertTokenizer

from hf_dense.data.tokenizers import train_tokenizer
from hf_dense.errors import InputError
from hf_dense.pretraining.vocabulary import Vocabulary, continuing

TRAIN = """
import json, sys
from hf_dense.data.tokenizers import train_tokenizer
print(json.dumps(train_tokenizer(json.loads(sys.argv[1]), 150, 32).get_vocab()))
"""


def random_texts(count: int = 200) -> list[str]:
    generator = random.Random(0)
    return [random_text(generator, 12) for _ in range(count)]


def test_special_tokens_and_continuations_are_read() -> None:
    tokenizer = tiny_tokenizer()
    vocabulary = Vocabulary.of(tokenizer)
    assert vocabulary.size == len(tokenizer) == len(vocabulary.special) == len(vocabulary.continues)
    named = (vocabulary.pad, vocabulary.first, vocabulary.last, vocabulary.mask)
    assert tokenizer.convert_ids_to_tokens(list(named)) == ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
    ids = tokenizer("[CLS] abc d [MASK] [UNK] e")["input_ids"][1:-1]
    assert tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", "a", "##b", "##c", "d", "[MASK]", "[UNK]", "e"]
    assert vocabulary.continues[ids].tolist() == [False, False, True, True, False, False, False, False]
    assert vocabulary.special[ids].tolist() == [True, False, False, False, False, True, True, False]


def test_an_id_may_have_no_token() -> None:
    tokenizer = tiny_tokenizer()
    tokens = dict(tokenizer.get_vocab())
    del tokens["d"]
    holed = BertTokenizer(vocab=tokens)
    vocabulary = Vocabulary.of(holed)
    assert len(holed) < vocabulary.size == len(tokenizer)
    assert vocabulary.continues.tolist() == Vocabulary.of(tokenizer).continues.tolist()


@pytest.mark.parametrize(("kind", "space"), [("bytes", "Ġ"), ("sentences", "▁")])
def test_words_are_told_apart_by_their_spaces_too(kind: str, space: str) -> None:
    tokenizer = spaced_tokenizer(random_texts(), kind)
    vocabulary = Vocabulary.of(tokenizer)
    ids = tokenizer("abcd ef. gh")["input_ids"]
    tokens = tokenizer.convert_ids_to_tokens(ids)
    starts = [not continues for continues in vocabulary.continues[ids]]
    words = "".join(("|" if start else "") + token for token, start in zip(tokens[1:-1], starts[1:-1], strict=True))
    assert words.strip("|") == f"{space}abcd|{space}ef|.|{space}gh".removeprefix("" if kind == "sentences" else space)
    assert starts[0] or vocabulary.special[ids[0]]


@pytest.mark.parametrize(
    "text", ["今天天气很好、我们去公园。", "東京タワーに行きました。", "วันนี้อากาศดีมาก", "ກິນເຂົ້າ", "ខ្ញុំទៅផ្សារ", "မြန်မာစာ"]
)
def test_texts_of_scripts_without_spaces_are_many_words(text: str) -> None:
    pieces = ["▁", "▁the", "▁of", *text, *(text[at : at + 2] for at in range(len(text)))]
    starts = [not continues for continues in continuing(pieces)]
    assert all(starts[3:])


def test_bytes_of_scripts_without_spaces_are_put_together_first() -> None:
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False)
    spelled = {
        text: alphabet.pre_tokenize_str(text)[0][0] for text in ("京都", "京", "。", "\u2019", "é", "가", "ა", "'s")
    }
    cut = [spelled["京"][:2], spelled["京"][:1], spelled["京"][1:], spelled["ა"][:1]]
    found = continuing(["Ġthe", "Ġof", *spelled.values(), *cut])
    assert found == [False] * 6 + [True] * 4 + [False, False, True, True]


@pytest.mark.parametrize("kind", ["bytes", "sentences"])
def test_ordinary_english_is_cut_into_words_as_before(kind: str) -> None:
    text = "don't well-known (e.g. U.S.), naïve café; 5.1% of it's \"x\" ... C++"
    texts = [*random_texts(), *[text] * 50]
    tokens = list(spaced_tokenizer(texts, kind).get_vocab())
    mark = "Ġ" if kind == "bytes" else "▁"
    plain = set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~Ċ")
    assert continuing(tokens) == [not (token.startswith(mark) or set(token) <= plain) for token in tokens]


@pytest.mark.parametrize("role", ["cls", "sep", "mask", "pad"])
def test_a_tokenizer_without_a_special_token_is_refused(role: str) -> None:
    tokenizer = tiny_tokenizer()
    setattr(tokenizer, f"{role}_token", None)
    with pytest.raises(InputError, match=f"has no {role} token; .*use an encoder's tokenizer"):
        Vocabulary.of(tokenizer)


def test_a_tokenizer_that_puts_no_cls_before_a_text_is_refused() -> None:
    tokenizer = spaced_tokenizer(random_texts(), "bytes")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    with pytest.raises(InputError, match="puts no <s> before a text, as pre-training does; give it a post-processor"):
        Vocabulary.of(tokenizer)


def test_a_trained_tokenizer_is_a_lower_casing_wordpiece_of_the_size_asked_for() -> None:
    texts = random_texts()
    tokenizer = train_tokenizer(texts, 150, 32)
    assert isinstance(tokenizer, BertTokenizer)
    assert len(tokenizer) == 150
    assert tokenizer.model_max_length == 32
    assert tokenizer("ABC d")["input_ids"] == tokenizer("abc D")["input_ids"]
    ids = tokenizer(texts[0])["input_ids"]
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == texts[0]
    assert Vocabulary.of(tokenizer).continues.any()


def test_the_same_texts_give_the_same_tokenizer_every_time() -> None:
    """Hash maps of the library are ordered anew in every run of the trainer; the tokens and their ids must not be."""
    texts = random_texts()
    first = train_tokenizer(texts, 150, 32).get_vocab()
    assert all(train_tokenizer(texts, 150, 32).get_vocab() == first for _ in range(4))


@pytest.mark.slow
def test_every_process_trains_the_same_tokenizer() -> None:
    texts = random_texts()
    command = [sys.executable, "-c", TRAIN, json.dumps(texts)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == train_tokenizer(texts, 150, 32).get_vocab()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("में मैं", ["में", "मैं"]),
        ("ガ カ", ["ガ", "カ"]),
        ("น้ำ นำ", ["น้ำ", "นำ"]),
        ("Über été", ["uber", "ete"]),
        ("كَتَبَ كتب", ["كتب", "كتب"]),
    ],
)
def test_signs_stay_where_they_make_other_letters(text: str, tokens: list[str], tmp_path: Path) -> None:
    train_tokenizer([text] * 5, 150, 32).save_pretrained(tmp_path)
    assert BertTokenizer.from_pretrained(tmp_path).tokenize(text) == tokens


def test_a_word_of_hindi_changes_nothing_in_english() -> None:
    assert train_tokenizer([f"café {'word ' * 300} में"], 150, 32).tokenize("café") == ["cafe"]
