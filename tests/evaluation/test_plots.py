from __future__ import annotations

import math
from pathlib import Path

import pytest
from matplotlib.image import imread

from hf_dense import InputError
from hf_dense.evaluation.plots import draw_losses, draw_metrics, loss_series, save_figure

HISTORY = [
    {"step": 10, "loss": 5.0, "encoder_loss": 3.0, "decoder_loss": 2.0, "learning_rate": 1e-4, "epoch": 0.1},
    {"step": 20, "loss": 4.0, "encoder_loss": 2.5, "decoder_loss": 1.5, "epoch": 0.2},
    {"step": 20, "eval_loss": 4.5, "eval_runtime": 1.0},
    {"step": 20, "train_loss": 4.5, "train_runtime": 9.0},
]


def test_series_hold_each_loss_and_nothing_else() -> None:
    assert loss_series(HISTORY) == {
        "loss": [(10, 5.0), (20, 4.0)],
        "encoder_loss": [(10, 3.0), (20, 2.5)],
        "decoder_loss": [(10, 2.0), (20, 1.5)],
        "eval_loss": [(20, 4.5)],
    }


def is_drawn(path: Path) -> bool:
    image = imread(path)
    return min(image.shape[:2]) > 300 and len({tuple(pixel) for pixel in image[::7, ::7, :3].reshape(-1, 3)}) > 3


def test_losses_and_metrics_are_drawn(tmp_path: Path) -> None:
    rows = [{"name": "BM25", "mrr@10": 0.4, "recall@100": 0.8}, {"name": "ours", "mrr@10": 0.0, "recall@100": 0.9}]
    for figure in (draw_losses({"a": HISTORY, "b": HISTORY, "empty": []}), draw_metrics(rows)):
        save_figure(figure, tmp_path / "plots" / "new.png")
        assert is_drawn(tmp_path / "plots" / "new.png")
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["new.png"]


def test_a_loss_that_was_logged_once_is_a_point_over_its_step() -> None:
    axes = draw_losses({"a": [{"step": 50, "loss": 5.0}]}).axes[0]
    (curve,) = axes.get_lines()
    assert curve.get_marker() == "o"
    assert all(tick == int(tick) for tick in axes.get_xticks())


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(InputError, match="No loss"):
        draw_losses({"a": [{"step": 1, "train_runtime": 3.0}]})
    for rows in ([], [{"name": "a"}], [{"name": "a", "x": 1}, {"name": "b", "y": 1}]):
        with pytest.raises(InputError, match="same metrics"):
            draw_metrics(rows)


def test_many_retrievers_have_their_names_beside_their_bars() -> None:
    rows = [{"name": f"model {number}", "ndcg@10": number / 20, "mrr@10": 0.5} for number in range(11)]
    first, second = draw_metrics(rows).axes
    assert [first.get_xlabel(), second.get_xlabel()] == ["ndcg@10", "mrr@10"]
    assert [label.get_text() for label in first.get_yticklabels()] == [row["name"] for row in rows]
    assert [bar.get_width() for bar in first.patches] == [row["ndcg@10"] for row in rows]
    few = draw_metrics(rows[:10])
    assert len(few.axes) == 1


@pytest.mark.parametrize("number", [2, 11])
@pytest.mark.parametrize("value", [0.0, math.nan])
def test_a_figure_that_is_none_costs_no_picture(number: int, value: float) -> None:
    rows = [{"name": f"model {one}", "ndcg@10": value, "mrr@10": value if one == 0 else 0.4} for one in range(number)]
    axes = draw_metrics(rows).axes
    if number == 2:
        assert axes[0].get_ylim() == (0, pytest.approx(0.46))
    else:
        assert [one.get_xlim() for one in axes] == [(0, 1.25), (0, 0.5)]
        assert axes[0].get_ylim() == (pytest.approx(10.6), -0.6), "no empty rows above and below"


@pytest.mark.parametrize("number", [2, 11])
def test_depths_of_a_measure_are_drawn_in_order(number: int) -> None:
    values = {"ndcg@10": 0.1, "recall@100": 0.3, "recall@50": 0.2, "recall@1000": 0.4}
    figure = draw_metrics([{"name": f"model {one}", **values} for one in range(number)])
    axes = figure.axes[0]
    drawn = [one.get_text() for one in axes.get_xticklabels()] if number == 2 else [a.get_xlabel() for a in figure.axes]
    assert drawn == ["ndcg@10", "recall@50", "recall@100", "recall@1000"]
    if number == 2:
        assert [bar.get_height() for bar in axes.patches][:4] == [0.1, 0.2, 0.3, 0.4]


def test_every_name_is_shown_as_it_is() -> None:
    figure = draw_metrics([{"name": name, "ndcg@10": 0.5} for name in ("_base", "a$b$")])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [" _base", r"a\$b\$"]


@pytest.mark.parametrize("length", [4, 40, 90])
def test_no_name_runs_out_of_the_picture(length: int) -> None:
    figure = draw_metrics([{"name": f"{number} {'n' * length}", "ndcg@10": 0.5} for number in range(5)])
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
