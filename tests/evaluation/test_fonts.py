from __future__ import annotations

import logging
import warnings

import pytest
from matplotlib.text import Text

from hf_dense.evaluation import fonts
from hf_dense.evaluation.plots import as_png, draw_metrics


def test_letters_that_no_font_has_are_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fonts, "_installed", dict)  # whatever this machine has
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        assert as_png(draw_metrics([{"name": "模型 a", "nDCG@10": 0.5}])).startswith(b"\x89PNG")
    (line,) = caplog.messages
    assert "the letters 型模, which" in line


def test_a_font_that_has_the_letters_writes_them(caplog: pytest.LogCaptureFixture) -> None:
    figure = draw_metrics([{"name": "e\u20d2", "nDCG@10": 0.5}])  # of matplotlib's own fonts STIXGeneral has it
    as_png(figure)
    families = next(text for text in figure.findobj(Text) if "e\u20d2" in text.get_text()).get_fontfamily()
    assert families[0] == "sans-serif"
    assert len(families) == 2
    assert not caplog.messages
