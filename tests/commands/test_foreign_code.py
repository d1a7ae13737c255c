"""Code that comes with a model is never run, whatever somebody types into the question whether it may."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from tiny_retriever import write_dataset, write_embedder

from hf_dense.commands.main import main

CODE = """
from pathlib import Path
from transformers import BertConfig, BertForMaskedLM, BertModel, BertTokenizer
Path({marker!r}).write_text("it ran")
class StrangeConfig(BertConfig):
    model_type = "strange"
class StrangeModel(BertModel):
    config_class = StrangeConfig
class StrangeTokenizer(BertTokenizer):
    pass
"""


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A model whose configuration and tokenizer want code beside them; the code leaves a file."""
    model = tmp_path / "stranger"
    model.mkdir()
    names = {"AutoConfig": "StrangeConfig", **dict.fromkeys(("AutoModel", "AutoModelForMaskedLM"), "StrangeModel")}
    auto = {name: f"strange.{kind}" for name, kind in names.items()}
    (model / "config.json").write_text(json.dumps({"model_type": "strange", "auto_map": auto}))
    tokenizer = {
        "tokenizer_class": "StrangeTokenizer",
        "auto_map": {"AutoTokenizer": ["strange.StrangeTokenizer", None]},
    }
    (model / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (model / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\none\n")
    (model / "strange.py").write_text(CODE.format(marker=str(tmp_path / "ran")))
    write_dataset(tmp_path / "collection")
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "title": "a", "text": "one two three four five six"}\n')
    return model


VERBS = [
    ["pretrain", "--method", "retromae", "--backbone", "MODEL", "--corpus", "CORPUS"],
    ["pretrain", "--method", "retromae", "--tokenizer", "MODEL", "--corpus", "CORPUS"],
    ["pretrain", "--method", "simlm", "--generator", "MODEL", "--corpus", "CORPUS"],
    ["data", "passages", "CORPUS", "--tokenizer", "MODEL"],
    ["data", "keywords", "CORPUS", "--tokenizer", "MODEL"],
    ["data", "generate", "CORPUS", "--model", "MODEL"],
    ["data", "train-generator", "COLLECTION", "--base", "MODEL"],
    ["glue", "MODEL"],
    ["export", "MODEL"],
    ["finetune", "--model", "MODEL", "--collection", "COLLECTION", "--per_device_train_batch_size", "4"],
    ["evaluate", "MODEL", "--tasks", "COLLECTION", "--no_bm25"],
    ["search", "MODEL", "one", "--corpus", "CORPUS"],
]


@pytest.mark.parametrize("words", VERBS, ids=lambda words: " ".join(words[:2]))
def test_no_verb_runs_it(
    words: list[str],
    stranger: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 20))
    places = {"MODEL": str(stranger), "CORPUS": str(tmp_path / "corpus.jsonl")}
    places["COLLECTION"] = str(tmp_path / "collection")
    out = [] if words[0] == "search" else ["--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as raised:
        main([*(places.get(word, word) for word in words), *out])
    assert not (tmp_path / "ran").exists()
    assert raised.value.code == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "stranger" in last or "code" in last


@pytest.mark.parametrize("named", ["strange.StrangeModule", "this.StrangeModule"])
def test_no_module_of_an_embedder_is_imported(named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`modules.json` names classes: those of Sentence-Transformers, a file beside it, or any installed package."""
    model = write_embedder(tmp_path / "stranger")
    modules = json.loads((model / "modules.json").read_text())
    modules[-1]["type"] = named
    (model / "modules.json").write_text(json.dumps(modules))
    (model / "strange.py").write_text(CODE.format(marker=str(tmp_path / "ran")))
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "title": "a", "text": "one two three four five six"}\n')
    with pytest.raises(SystemExit) as raised:
        main(["search", str(model), "one", "--corpus", str(tmp_path / "corpus.jsonl")])
    assert raised.value.code == 2
    assert "Cannot load a retriever" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
    assert "this" not in sys.modules
