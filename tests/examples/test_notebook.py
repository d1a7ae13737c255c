"""The notebook is executed as it is, on small documents; only its parameters are replaced."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from package_documents import write_documents, write_word_embedder

NOTEBOOK = Path(__file__).parents[2] / "examples" / "adapt.ipynb"
PARAMETERS = 'DOCUMENTS, BASE, BUDGET, OUT = "documents", "EMBEDDER", "150s", "out"'


def read() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_the_notebook_is_small_and_clean() -> None:
    notebook = read()
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(notebook.cells) <= 10
    assert not [cell for cell in code if cell.outputs or cell.execution_count]
    assert [cell.metadata.get("tags") for cell in code].count(["parameters"]) == 1


@pytest.mark.slow
def test_it_runs_to_a_verdict_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    write_documents(tmp_path / "documents", tmp_path / "numpy", 120)
    write_word_embedder(tmp_path / "EMBEDDER", tmp_path / "documents")
    notebook = read()
    notebook.cells.append(nbformat.v4.new_code_cell('adapt(corpus, base=BASE, budget="soon", out="other")'))
    next(cell for cell in notebook.cells if cell.metadata.get("tags") == ["parameters"]).source = PARAMETERS
    where = {"metadata": {"path": str(tmp_path)}}
    with pytest.raises(CellExecutionError, match="The budget is 'soon'"):
        NotebookClient(notebook, timeout=600, resources=where).execute()
    _, corpus, found, _, hits, refused = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert "passages" in shown(corpus)
    assert "BM25" in shown(found)
    assert refused[0].traceback == ["InputError: The budget is 'soon'; write a time such as 10m, 2h or 1h30m."]
    assert (tmp_path / "out" / "adapted" / "report.html").is_file()
    assert len(re.findall(r"^-?\d\.\d{3}  ", said(hits, "stdout"), re.MULTILINE)) == 3
    everything = "".join(said(outputs, name) for outputs in (corpus, found, hits) for name in ("stdout", "stderr"))
    assert not re.search(r"\x1b\[\d*[^\dm]", everything), "the cursor is not moved: notebooks have none"


def shown(outputs: list[nbformat.NotebookNode]) -> str:
    """What the last line of a cell is shown as."""
    return str(next(output for output in outputs if output.output_type == "execute_result").data["text/html"])


def said(outputs: list[nbformat.NotebookNode], name: str) -> str:
    """What a cell wrote to a stream."""
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == name)
