"""How fast documents become passages, in what memory, and how long BM25 negatives take.

    python benchmarks/corpora.py [--megabytes 10 100 1000] [--output benchmarks/results/corpora.json]

The baseline is the loop of the papers' scripts: NLTK sentences, a Python tokenizer, greedy packing, JSON lines. Both
cut the same documents, one after the other, in one process each. Documents are the docstrings of installed packages,
repeated with other numbers in them until there are as many megabytes as asked for; BM25's passages and queries are
drawn from a Zipf distribution.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from hf_dense.data.passage_corpus import Cutting, cut_documents
from hf_dense.data.python_docs.docstrings import find_sources, read_documents
from hf_dense.data.tokenizers import train_tokenizer
from hf_dense.storage.files import write_text
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.provenance import describe_commit, describe_hardware

LENGTH, PASSAGES, QUERIES, SEED = 128, 100_000, 10_000, 0


def docstrings() -> list[tuple[str, str]]:
    """Names and texts of the docstrings of some packages."""
    sources, _ = find_sources(["numpy", "torch", "python"])
    found = read_documents(sources, 1, False).documents
    texts = ((document.name, "\n\n".join([document.prose.summary, *document.prose.paragraphs])) for document in found)
    return [(name, text) for name, text in texts if len(text) > 200]


def baseline(documents: list[tuple[str, str]], vocabulary: Path, out: Path) -> int:
    """The loop that the papers' scripts have; the number of passages."""
    from nltk.tokenize.punkt import PunktSentenceTokenizer
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    sentences, tokenizer = PunktSentenceTokenizer(), BertTokenizerLegacy(str(vocabulary))
    count = 0
    with out.open("w") as stream:
        for name, text in documents:
            packed: list[int] = []
            for sentence in sentences.tokenize(text):
                ids = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(sentence))
                if packed and len(packed) + len(ids) > LENGTH:
                    stream.write(json.dumps({"id": name, "ids": packed}) + "\n")
                    count, packed = count + 1, []
                packed += ids
            if packed:
                stream.write(json.dumps({"id": name, "ids": packed}) + "\n")
                count += 1
    return count


def measure_cutting(documents: list[tuple[str, str]]) -> dict[str, Any]:
    """Passages per second of the loop and of ours, with the same WordPiece vocabulary."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = train_tokenizer([text for _, text in documents[:3000]], 8000, LENGTH)
        tokenizer.save_pretrained(folder)
        words = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        (folder / "vocab.txt").write_text("\n".join(word for word, _ in words))
        started = time.perf_counter()
        looped = baseline(documents, folder / "vocab.txt", folder / "passages.jsonl")
        loop = time.perf_counter() - started
        rows = [{"id": key, "title": "", "paths": [""], "texts": [text]} for key, text in documents]
        table = pa.Table.from_pylist(rows)
        results: dict[str, Any] = {"documents": len(documents), "baseline passages per second": looped / loop}
        for label, cutting in (
            ("exact", Cutting(LENGTH, tokenizer=name)),
            ("near", Cutting(LENGTH, tokenizer=name, repeats="near")),
        ):
            work = partial(cut_documents, cutting=cutting)
            work(table.slice(0, 10))
            started = time.perf_counter()
            ours = sum(len(work(table.slice(start, 500))) for start in range(0, len(table), 500))
            seconds = time.perf_counter() - started
            results[f"passages per second, {label} repeats"] = ours / seconds
            results[f"times the baseline, {label} repeats"] = (ours / seconds) / (looped / loop)
    return results


def write_documents(documents: list[tuple[str, str]], megabytes: int, path: Path) -> None:
    """So many megabytes of JSON lines."""
    size = turn = 0
    with path.open("w") as stream:
        while size < megabytes * 1_000_000:
            for name, text in documents:
                line = json.dumps({"id": f"{name}-{turn}", "text": text.replace(". ", f" {turn}. ")}) + "\n"
                stream.write(line)
                size += len(line)
                if size >= megabytes * 1_000_000:
                    break
            turn += 1


def watched(command: list[str]) -> tuple[float, float, float]:
    """Run a command; its seconds, and the greatest memory in GB of any of its processes and of all together.

    Memory is what a process has to itself (USS): pages of files that are mapped or shared do not count twice.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    single = together = 0.0
    done = threading.Event()

    def watch() -> None:
        nonlocal single, together
        root = psutil.Process(process.pid)
        while not done.wait(0.2):
            sizes = list(_sizes(root))
            if sizes:
                single, together = max(single, *sizes), max(together, sum(sizes))

    watcher = threading.Thread(target=watch)
    started = time.perf_counter()
    watcher.start()
    code = process.wait()
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    if code:
        raise SystemExit(f"{' '.join(command)} failed")
    return seconds, single, together


def _sizes(root: psutil.Process) -> Iterator[float]:
    try:
        for process in [root, *root.children(recursive=True)]:
            yield process.memory_full_info().uss / 1e9
    except psutil.Error:
        return


def measure_memory(documents: list[tuple[str, str]], megabytes: list[int]) -> list[dict[str, float]]:
    """Time and memory of `hf-dense data passages` for inputs of different sizes."""
    results = []
    for size in megabytes:
        with tempfile.TemporaryDirectory() as name:
            source = Path(name) / "documents.jsonl"
            write_documents(documents, size, source)
            command = [sys.executable, "-m", "hf_dense.commands.main", "data", "passages", str(source)]
            seconds, single, together = watched([*command, "--out", f"{name}/out", "--length", str(LENGTH)])
            manifest = Manifest.load(Path(name) / "out")
            counts = manifest.facts["counts"] if manifest else {}
        row = {"megabytes": size, "passages": counts["passages"], "seconds": seconds}
        row |= {"largest process GB": single, "all processes GB": together}
        results.append(row)
        print(json.dumps(row), flush=True)
    return results


def measure_negatives() -> dict[str, float]:
    """Seconds for BM25 negatives of 10,000 queries over 100,000 passages."""
    rng = np.random.default_rng(SEED)
    words = np.array([f"w{number:05d}x" for number in range(50_000)])

    def texts(count: int, size: int) -> list[str]:
        drawn = rng.zipf(1.2, size=(count, size)) % len(words)
        return [" ".join(row) for row in words[drawn]]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        (folder / "qrels").mkdir(parents=True)
        for table, count, size in (("corpus", PASSAGES, 60), ("queries", QUERIES, 8)):
            lines = (json.dumps({"_id": str(at), "text": text}) for at, text in enumerate(texts(count, size)))
            (folder / f"{table}.jsonl").write_text("\n".join(lines) + "\n")
        judged = [f"{query}\t{query}\t1" for query in range(QUERIES)]
        (folder / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
        command = [
            sys.executable,
            "-m",
            "hf_dense.commands.main",
            "data",
            "negatives",
            str(folder),
            "--out",
            f"{name}/out",
        ]
        seconds, single, _ = watched(command)
    return {"queries": QUERIES, "passages": PASSAGES, "seconds": seconds, "largest process GB": single}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--output", default="benchmarks/results/corpora.json")
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    documents = docstrings()
    results = {
        "cutting": measure_cutting(documents),
        "negatives": measure_negatives(),
        "memory": measure_memory(documents, options.megabytes),
        "commit": describe_commit(Path(__file__).parent),
        "hardware": describe_hardware(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": SEED,
    }
    write_text(options.output, json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
