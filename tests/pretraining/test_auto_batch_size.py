"""Pre-training with a batch size that is found, of texts that are as long as they may be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from imagined_memory import batch_of, imagine
from test_generator import GENERATOR
from test_pretrain import Interrupted
from tiny_pretraining import same_weights, tiny_arguments, tiny_options, weights, write_corpus

from hf_dense.commands.main import main
from hf_dense.errors import InputError
from hf_dense.pretraining import pretrain as pretrain_module
from hf_dense.pretraining.longest import longest_rows
from hf_dense.pretraining.pretrain import pretrain


def automatic(out: Path, **changes: Any) -> Any:
    return tiny_arguments(out, **{"per_device_train_batch_size": "auto", **changes})


@pytest.mark.parametrize("method", ["retromae", "master", "simlm"])
def test_it_trains_as_with_the_number_that_is_found(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"generator": GENERATOR, "generator_weight": 0.2} if method == "simlm" else {}
    memory, options = imagine(monkeypatch, rows=8), tiny_options(tmp_path, method, **more)
    found, named = (tmp_path / name for name in ("found", "named"))
    pretrain(options, automatic(found, max_steps=3))
    assert batch_of(found) == 8
    assert memory.sizes == [2, 4]
    pretrain(options, tiny_arguments(named, max_steps=3))
    assert same_weights(weights(found), weights(named))


def test_a_busier_machine_does_not_change_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imagine(monkeypatch, rows=8)
    options, saved = tiny_options(tmp_path), {"save_strategy": "steps", "save_steps": 3}
    pretrain(options, automatic(tmp_path / "whole", **saved))
    with monkeypatch.context() as patched:
        patched.setattr(pretrain_module, "PreTrainer", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            pretrain(options, automatic(tmp_path / "killed", **saved))
    busy = imagine(monkeypatch, rows=4)
    pretrain(options, automatic(tmp_path / "killed", **saved))
    assert same_weights(weights(tmp_path / "killed"), weights(tmp_path / "whole"))
    assert pretrain(options, automatic(tmp_path / "whole", **saved)).done
    assert busy.sizes == []


def test_a_batch_is_no_larger_than_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 passages, some held out; of documents with two passages each, and one with one."""
    imagine(monkeypatch, rows=10_000)
    options = tiny_options(tmp_path)
    pretrain(options, automatic(tmp_path / "whole", max_steps=1))
    assert batch_of(tmp_path / "whole") == 32
    pretrain(options, automatic(tmp_path / "steps", max_steps=1, gradient_accumulation_steps=2))
    assert batch_of(tmp_path / "steps") == 2 * 16
    write_corpus(tmp_path / "few.jsonl", passages=60, per_document=1)
    with (tmp_path / "few.jsonl").open("a") as stream:
        for at in range(14):  # seven documents of two
            stream.write(json.dumps({"text": "abc def ghi jkl", "document": f"e{at // 2}", "position": at % 2}) + "\n")
    siblings = tiny_options(tmp_path, "cocondenser", corpus=str(tmp_path / "few.jsonl"), held_out=0.0)
    pretrain(siblings, automatic(tmp_path / "siblings", max_steps=1))
    assert batch_of(tmp_path / "siblings") == 8


def test_chunks_and_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = imagine(monkeypatch, rows=32)
    options = tiny_options(tmp_path, "cocondenser", chunk=4)
    pretrain(options, automatic(tmp_path / "chunks", max_steps=1))
    assert batch_of(tmp_path / "chunks") == 32
    assert memory.sizes == [16, 32]
    imagine(monkeypatch, rows=16)
    pretrain(tiny_options(tmp_path, streaming=True), automatic(tmp_path / "stream", max_steps=1))
    assert batch_of(tmp_path / "stream") == 16


def test_rows_are_filled_to_the_greatest_length() -> None:
    rows = Dataset.from_dict(
        {"text": [[1, 2], [3, 4, 5]], "queries": [[[1], [2, 3]], [[4], [5, 6]]], "length": [2, 3]}
    ).with_format("numpy")
    first, second = longest_rows(rows, 7)(2)
    assert first is second
    assert np.array_equal(first["text"], [3, 4, 5, 3, 4, 5, 3])
    assert [list(query) for query in first["queries"]] == [[4], [5, 6]], "several texts stay as they are"


def test_nothing_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imagine(monkeypatch, rows=1)
    with pytest.raises(InputError, match=r"A batch of 2 takes about 0.9 GB of memory, and 1.0 GB are free"):
        pretrain(tiny_options(tmp_path), automatic(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imagine(monkeypatch, rows=4)
    options, sizes = tiny_options(tmp_path), '{"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}'
    words = ["--method", "retromae", "--corpus", options.corpus, "--tokenizer", str(options.tokenizer)]
    words += ["--backbone_config", sizes, "--max_length", "16", "--max_steps", "1", "--use_cpu", "true"]
    main(["pretrain", *words, "--per_device_train_batch_size", "auto", "--out", str(tmp_path / "run")])
    assert batch_of(tmp_path / "run") == 4
