from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from hf_dense.search.bm25 import LexicalIndex


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
