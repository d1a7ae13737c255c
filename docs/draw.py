"""Draw what the pages show of files: the methods' declarations, the metrics of a pipeline: python docs/draw.py"""

from __future__ import annotations

import json
import re
from pathlib import Path

from diagram import diagram

from hf_dense import METHODS
from hf_dense.evaluation.plots import draw_metrics, save_figure

_FIGURE = re.compile(r"<!-- diagram: (\w+) -->\n(?:```mermaid\n.*?```\n)?", re.DOTALL)


def drawn(page: str) -> str:
    """A page with the figure of every method that it names."""
    return _FIGURE.sub(
        lambda found: f"<!-- diagram: {found[1]} -->\n```mermaid\n{diagram(METHODS[found[1]].config())}\n```\n", page
    )


def draw_pipeline(results: Path, metrics: tuple[str, ...], picture: Path) -> None:
    """The metrics of a pipeline's stages; those of a re-ranker's recall in an old file are not what they are today."""
    stages = json.loads(results.read_text(encoding="utf-8"))["results"]
    rows = [{"name": stage["name"], **{metric: stage["metrics"][metric] for metric in metrics}} for stage in stages]
    save_figure(draw_metrics(rows), picture)


if __name__ == "__main__":
    docs = Path(__file__).parent
    draw_pipeline(docs / "finetuning_results.json", ("ndcg@10", "mrr@10"), docs / "finetuning_metrics.png")
    for path in sorted((docs / "methods").glob("*.md")):
        path.write_text(drawn(path.read_text(encoding="utf-8")), encoding="utf-8")
