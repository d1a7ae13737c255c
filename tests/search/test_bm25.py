from __future__ import annotations

import unicodedata
from pathlib import Path

import bm25s
import pytest
import Stemmer

from hf_dense.search.bm25 import LexicalIndex, parted, words_of


def test_soft_hyphens_divide_no_word() -> None:
    assert words_of(["Donau\u00addampf\u00adschiff"]) == words_of(["Donaudampfschiff"])


@pytest.mark.parametrize("passages", ["NFC", "NFD"])
@pytest.mark.parametrize("queries", ["NFC", "NFD"])
def test_accents_are_found_however_they_are_written(passages: str, queries: str, tmp_path: Path) -> None:
    texts = [unicodedata.normalize(passages, text) for text in ("Müller übt Flöte", "Maller ibt Flate", "mu ller")]
    query = unicodedata.normalize(queries, "müller")
    index = LexicalIndex.build(texts, tmp_path / "index")
    scores, indices = index.search([query], 3)
    assert indices[0, 0] == 0
    assert (scores[0] > 0).tolist() == [True, False, False]
    assert (index.scores(query, indices[0]) == scores[0]).all()


@pytest.mark.parametrize(
    ("texts", "query"),
    [
        (["商品签收后七天内可以无理由退货。", "电子产品保修一年。人为损坏不在保修范围内。"], "怎么退货"),
        (
            ["東京は日本の首都である。", "京都には多くの寺院があり、秋には紅葉を見に観光客が訪れる。"],
            "日本の首都はどこ",
        ),
        (["この製品はコンピューターに接続する。", "この製品は水に弱い。"], "コンピューター"),
        (["กรุงเทพมหานครเป็นเมืองหลวง", "แมวนอนบนโซฟา"], "เมืองหลวงคือที่ไหน"),
        (["在iPhone手机上安装应用", "在电脑上看视频"], "iphone"),
    ],
)
def test_scripts_without_spaces_are_found_by_what_they_share(texts: list[str], query: str, tmp_path: Path) -> None:
    index = LexicalIndex.build([texts[1], texts[0]], tmp_path / "index")
    scores, indices = index.search([query], 2)
    assert indices[0, 0] == 1
    assert scores[0, 0] > 2 * scores[0, 1]
    assert (index.scores(query, indices[0]) == scores[0]).all()


@pytest.mark.parametrize(
    ("texts", "query"),
    [
        (["एक साल की वारंटी सभी उत्पादों पर", "सामान सात दिन में लौटाया जा सकता है"], "वारंटी कितने साल की है"),
        (["সব পণ্যের এক বছরের ওয়ারেন্টি আছে", "সাত দিনের মধ্যে ফেরত দেওয়া যায়"], "ওয়ারেন্টি কত বছরের"),
        (["எல்லா பொருட்களுக்கும் உத்தரவாதம் உண்டு", "ஏழு நாட்களுக்குள் திருப்பி அனுப்பலாம்"], "உத்தரவாதம்"),
        (["ضَمَانُ الْمُنْتَجَاتِ سَنَةٌ", "يُمْكِنُ إِرْجَاعُ الْبِضَاعَةِ"], "الْمُنْتَجَاتِ"),
    ],
)
def test_words_with_signs_of_vowels_are_whole(texts: list[str], query: str, tmp_path: Path) -> None:
    index = LexicalIndex.build([texts[1], texts[0]], tmp_path / "index")
    scores, indices = index.search([query], 2)
    assert indices[0, 0] == 1
    assert scores[0, 0] > 2 * scores[0, 1]
    (words,) = words_of([texts[0]])
    assert len(words) == len(set(words)) == len(texts[0].split())
    assert bm25s.tokenize(parted(texts[0]), return_ids=False, show_progress=False) == [words], "as MTEB's BM25 reads"


def test_words_without_marks_are_those_of_bm25s() -> None:
    texts = [
        "İstanbul's 2nd _name_ of x² ΑΣ, naïve Straße ǅ ½ don't",
        "\ufe0flove 1 a\u2060b c\u200dd",
        "Ⅷ ⑧⑧ ªº e\u0301t",
    ]
    stemmer = Stemmer.Stemmer("english")
    expected = bm25s.tokenize(
        [unicodedata.normalize("NFC", text) for text in texts],
        stopwords="en",
        stemmer=stemmer,
        return_ids=False,
        show_progress=False,
    )
    assert words_of(texts) == expected


def test_words_are_those_of_their_language(tmp_path: Path) -> None:
    texts = ["Die Häuser der Stadt wurden von den Bürgern nicht verkauft, und sie sind da.", "Es war einmal ein Hund."]
    index = LexicalIndex.build([*texts, *texts[1:] * 20], tmp_path / "index")
    assert index.language.name == LexicalIndex.load(tmp_path / "index").language.name == "german"
    query = "was ist mit dem verkauften Haus"
    scores, indices = index.search([query], 2)
    assert indices[0, 0] == 0
    assert (scores[0] > 0).tolist() == [True, False]
    assert (index.scores(query, indices[0]) == scores[0]).all()
    assert words_of([query], index.language) == [["verkauft", "haus"]]
