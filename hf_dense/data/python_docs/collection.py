"""A retrieval collection from the docstrings of the Python environment itself.

A document is one docstring, cut into passages; a query is a summary sentence, its relevant passages are those of
the documents it summarises, out of which the sentence was removed. Modules, and with them documents and queries,
are divided into train, dev and test. The same versions of the packages give the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from datasets import Dataset, Features
from huggingface_hub import DatasetCard, DatasetCardData
from tqdm.auto import tqdm

from hf_dense.data.cards import configuration, size_category
from hf_dense.data.passages import (
    MIN_WORDS,
    CountTokens,
    build_passages,
    check_length,
    count_words,
    token_counter,
    token_unit,
    tokenizer_source,
)
from hf_dense.data.python_docs.docstrings import (
    Document,
    Reading,
    find_sources,
    fingerprint_sources,
    read_documents,
)
from hf_dense.data.python_docs.prose import letter_share
from hf_dense.data.schemas import CORPUS, QRELS, QUERIES, SPLITS
from hf_dense.errors import InputError
from hf_dense.storage.files import write_text
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.staged import Staged

MIN_QUERY_WORDS: Final = 3
MAX_QUERY_WORDS: Final = 32
MIN_QUERY_LETTERS: Final = 0.75
MAX_QUERY_DOCUMENTS: Final = 3  # a summary shared by more documents ("Initialize self.") asks for nothing in particular
TRAIN_SHARE, DEV_SHARE = 0.8, 0.1

_CHUNK = 512  # documents cut at a time
_ASCII_PROSE = re.compile(r"[ -~]+")


@dataclass(frozen=True)
class Collection:
    """The rows of a collection, and counts of what was kept and dropped on the way."""

    corpus: tuple[Mapping[str, str | int], ...]
    queries: tuple[Mapping[str, str], ...]
    qrels: Mapping[str, tuple[Mapping[str, str | int], ...]]  # by split
    counts: Mapping[str, int]


def build_python_docs(
    out: str | os.PathLike[str] | Output,
    packages: Iterable[str] | None = None,
    length: int = 64,
    tokenizer: str | None = None,
    processes: int = 1,
    progress: bool = True,
) -> Path:
    """Write the collection of the docstrings of `packages` to the directory `out`.

    Args:
        packages: distribution names, "python" for the standard library; None takes the installed ones of
            `hf_dense.data.python_docs.docstrings.DEFAULT_PACKAGES`.
        length: greatest number of tokens in a passage.
        tokenizer: whose tokens are counted (a directory or Hub id); words and punctuation marks when absent.
        processes: how many read source files side by side; see `read_documents`.

    Returns:
        The directory.

    Raises:
        InputError: a package is not installed, nothing was found to read, `length` is below 2, or see `Output.stage`.
    """
    check_length(length)
    files, versions = find_sources(packages)
    named = ", ".join(f"{package} {version}" for package, version in versions.items())
    sources = {"packages": Source(named, fingerprint_sources(files)), **tokenizer_source(tokenizer)}
    with Output.of(out).stage("collection", {"length": length, "versions": versions}, sources) as work:
        if not work.done:
            reading = read_documents(files, processes, progress)
            if not reading.documents:
                raise InputError(f"no docstring was found in {named or 'any package'}; name other packages")
            collection = collect(reading, length, token_counter(tokenizer), progress=progress)
            if not collection.corpus:
                raise InputError(f"the docstrings of {named} hold no passage of {MIN_WORDS} words or more")
            write_tables(work.result, collection)
            work.facts["counts"] = collection.counts
            card = _card(work, collection, versions, length, token_unit(tokenizer))
            write_text(work.result / "README.md", str(card))
    return Output.of(out).path


def split_of(module: str) -> str:
    """The split of a module: train (80 %), dev (10 %) or test (10 %), by a hash of its dotted name.

    >>> split_of("numpy.linalg._linalg")
    'train'
    """
    share = int.from_bytes(hashlib.sha256(module.encode()).digest()[:8], "big") / 2**64
    return "train" if share < TRAIN_SHARE else "dev" if share < TRAIN_SHARE + DEV_SHARE else "test"


def query_of(document: Document) -> str:
    """The query a document's summary makes, or "" if it makes none.

    Usable is an English-like sentence (ASCII, three quarters letters) of 3 to 32 words, of a document that says
    more than its summary.
    """
    summary = document.prose.summary.rstrip()
    if summary.endswith(":") or not document.prose.paragraphs or not _ASCII_PROSE.fullmatch(summary):
        return ""
    enough = count_words(summary) >= MIN_QUERY_WORDS and len(summary.split()) <= MAX_QUERY_WORDS
    return summary.rstrip(" .!;,") if enough and letter_share(summary) >= MIN_QUERY_LETTERS else ""


def collect(reading: Reading, length: int, count_tokens: CountTokens, progress: bool = False) -> Collection:
    """Turn documents into corpus, queries and qrels, without duplicates and without overlap between splits."""
    counts: Counter[str] = Counter(
        files=reading.files, unreadable_files=reading.unreadable_files, docstrings=len(reading.documents)
    )
    documents = _deduplicate(reading.documents, counts)
    queries = _choose_queries(documents, counts)
    cutter = _Cutter(length, count_tokens, counts)
    passages = cutter.cut(documents, queries, progress)
    for text in [text for text, found in queries.items() if not any(passages[d.name] for d in found)]:
        counts["queries_without_passage"] += 1  # its texts are short or repeated: the summary goes back in
        passages |= cutter.cut(queries.pop(text)[:1], {}, progress=False)
    corpus: list[dict[str, str | int]] = [
        {
            "id": f"{document.name}#{position}",
            "title": document.name,
            "text": text,
            "document": document.name,
            "position": position,
            "split": split_of(document.module),
        }
        for document in documents
        for position, text in enumerate(passages[document.name])
    ]
    query_rows, qrels = _judge(queries, passages, counts)
    counts["documents"] = sum(1 for texts in passages.values() if texts)
    counts["passages"] = len(corpus)
    for split in SPLITS:
        counts[f"{split}_passages"] = sum(row["split"] == split for row in corpus)
    return Collection(tuple(corpus), tuple(query_rows), qrels, dict(sorted(counts.items())))


def _deduplicate(documents: Iterable[Document], counts: Counter[str]) -> list[Document]:
    """One document per name (the first definition) and per text (the shortest name), sorted by name."""
    by_name: dict[str, Document] = {}
    for document in documents:
        if document.name in by_name:
            counts["repeated_names"] += 1
        elif not document.prose.summary and not document.prose.paragraphs:
            counts["without_prose"] += 1
        else:
            by_name[document.name] = document
    by_text: dict[str, Document] = {}
    for document in sorted(by_name.values(), key=lambda document: (len(document.name), document.name)):
        text = "\n".join([document.prose.summary, *document.prose.paragraphs]).casefold()
        if by_text.setdefault(text, document) is not document:
            counts["repeated_docstrings"] += 1
    return sorted(by_text.values(), key=lambda document: document.name)


def _choose_queries(documents: Iterable[Document], counts: Counter[str]) -> dict[str, list[Document]]:
    """Query text -> the documents it summarises (all of one split), in order of the first document."""
    summarised: defaultdict[str, list[Document]] = defaultdict(list)
    for document in documents:
        if text := query_of(document):
            summarised[_key(text)].append(document)
        else:
            counts["without_query"] += 1
    queries = {}
    for found in summarised.values():
        if len(found) > MAX_QUERY_DOCUMENTS:
            counts["generic_queries"] += 1
        elif len({split_of(document.module) for document in found}) > 1:
            counts["queries_across_splits"] += 1
        else:
            queries[query_of(found[0])] = found
    return queries


class _Cutter:
    """Cuts documents into passages, without short ones and without any that it has seen before."""

    def __init__(self, length: int, count_tokens: CountTokens, counts: Counter[str]) -> None:
        self.length, self.count_tokens, self.counts = length, count_tokens, counts
        self.seen: set[str] = set()

    def cut(
        self, documents: Sequence[Document], queries: Mapping[str, Sequence[Document]], progress: bool
    ) -> dict[str, list[str]]:
        """Document name -> its passages, without the query that it answers."""
        query_by_name = {document.name: text for text, found in queries.items() for document in found}
        texts = {_key(text) for text in queries}  # no passage may be a query word for word
        passages: dict[str, list[str]] = {}
        with tqdm(total=len(documents), desc="Cutting passages", unit="document", disable=not progress) as bar:
            for start in range(0, len(documents), _CHUNK):
                chunk = documents[start : start + _CHUNK]
                banned = [query_by_name.get(document.name, "") for document in chunk]
                bodies = [_body(document, bool(query)) for document, query in zip(chunk, banned, strict=True)]
                cut = build_passages(bodies, self.length, self.count_tokens, banned)
                for document, found in zip(chunk, cut, strict=True):
                    passages[document.name] = [text for text in found if self._is_new(text, texts)]
                bar.update(len(chunk))
        return passages

    def _is_new(self, text: str, queries: Set[str]) -> bool:
        key = _key(text)
        if count_words(text) < MIN_WORDS:
            self.counts["short_passages"] += 1
        elif key in self.seen or key in queries:
            self.counts["repeated_passages"] += 1
        else:
            self.seen.add(key)
            return True
        return False


def _key(text: str) -> str:
    """What two equal texts share: neither case nor the final mark makes a difference."""
    return text.casefold().rstrip(" .!;,")


def _body(document: Document, has_query: bool) -> list[str]:
    prose = document.prose
    return list(prose.paragraphs) if has_query or not prose.summary else [prose.summary, *prose.paragraphs]


def _judge(
    queries: Mapping[str, Sequence[Document]], passages: Mapping[str, Sequence[str]], counts: Counter[str]
) -> tuple[list[dict[str, str]], dict[str, tuple[dict[str, str | int], ...]]]:
    """Query rows, and by split the judgements: every passage of a summarised document is relevant."""
    rows: list[dict[str, str]] = []
    qrels: dict[str, list[dict[str, str | int]]] = {split: [] for split in SPLITS}
    for text, summarised in queries.items():
        found = [document for document in summarised if passages[document.name]]
        relevant = [f"{document.name}#{at}" for document in found for at in range(len(passages[document.name]))]
        query, split = found[0].name, split_of(found[0].module)
        rows.append({"id": query, "text": text})
        qrels[split] += [{"query-id": query, "corpus-id": passage, "score": 1} for passage in relevant]
        counts[f"{split}_queries"] += 1
    counts["queries"] = len(rows)
    return rows, {split: tuple(judged) for split, judged in qrels.items()}


def write_tables(folder: Path, collection: Collection) -> None:
    """Write a collection in published form; of its judgements the splits that there are."""
    columns = Features({name: feature for name, feature in CORPUS.items() if name != "section"})
    _write_table(folder / "corpus" / "part-00000.parquet", collection.corpus, columns)
    _write_table(folder / "queries" / "part-00000.parquet", collection.queries, QUERIES)
    for split, judged in collection.qrels.items():
        _write_table(folder / "qrels" / f"{split}.parquet", judged, QRELS)


def _write_table(path: Path, rows: Sequence[Mapping[str, str | int]], features: Features) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {name: [row[name] for row in rows] for name in features}
    Dataset.from_dict(columns, features=features).to_parquet(str(path))


def _card(work: Staged, collection: Collection, versions: Mapping[str, str], length: int, unit: str) -> DatasetCard:
    counts, folder = collection.counts, work.result
    data = DatasetCardData(
        language="en",
        license="other",
        license_name="per-package",
        pretty_name="Python documentation retrieval",
        size_categories=size_category(counts["passages"]),
        task_categories=["text-retrieval"],
        tags=["python", "documentation", "docstrings", "retrieval"],
        configs=[
            configuration(folder, "default", {split: f"qrels/{split}.parquet" for split in SPLITS}),
            configuration(folder, "corpus", {"corpus": "corpus/*.parquet"}),
            configuration(folder, "queries", {"queries": "queries/*.parquet"}),
        ],
    )
    splits = [
        f"| {s} | {counts[f'{s}_passages']:,} | {counts.get(f'{s}_queries', 0):,} | {len(collection.qrels[s]):,} |"
        for s in SPLITS
    ]
    named = {key: counts[key] for key in counts if not key.startswith(SPLITS)}
    content = _CARD.format(
        data=data.to_yaml(),
        length=length,
        unit=unit,
        command=work.manifest.command or "hf_dense.data.python_docs.collection.build_python_docs",
        splits="\n".join(splits),
        counts="\n".join(f"| {key.replace('_', ' ')} | {number:,} |" for key, number in named.items()),
        versions="\n".join(f"| {package} | {version} |" for package, version in versions.items()),
        min_words=MIN_WORDS,
        query_words=f"{MIN_QUERY_WORDS} to {MAX_QUERY_WORDS}",
        generic=MAX_QUERY_DOCUMENTS,
    )
    return DatasetCard(content)


_CARD: Final = """---
{data}
---

# Python documentation retrieval

The docstrings of the Python standard library and of installed packages as a retrieval collection: a query is the
summary sentence of a docstring, its relevant passages are the rest of that docstring. Source files are parsed,
never imported.

Built by

```
{command}
```

## Columns

- `corpus` (one split, `corpus`): `id` (document#position), `title` (qualified name), `text`, `document`, `position`
  (from 0), `split` (train, dev or test: that of the document's module)
- `queries` (one split, `queries`): `id` (a document it summarises), `text`
- `default`, the judgements (splits train, dev, test): `query-id`, `corpus-id`, `score` (1: relevant)

The text of a passage as a search engine should see it is its title, a space, and its text.

## How it is made

- A document is the docstring of a module, or of a public class, function or method. Tests, vendored packages,
  private definitions and files that do not parse are left out.
- Code, doctests, formulas, tables, numeric output, bibliographies and "See Also" lists are removed; descriptions
  of parameters, return values and errors stay.
- A passage holds consecutive sentences, at most {length} {unit}, at least {min_words} words.
- A query has {query_words} words. Equal summaries are one query; one that more than {generic} documents share, or that
  occurs in two splits, is dropped. The query's sentence is removed from the passages of its documents; where a
  document makes no query, its summary stays in its passages.
- Documents with equal text (the shortest name stays) and passages with equal text (the first stays) occur once.
- Train, dev and test (80, 10, 10 %) are divided by a hash of the module's name. Copies of code that differ by a
  few words, as between the models of one library, can stand in two splits.

## Counts

| split | passages | queries | judgements |
|---|---|---|---|
{splits}

| | |
|---|---|
{counts}

## Licence

Each docstring keeps the licence of the package it comes from; see that package.

| package | version |
|---|---|
{versions}
"""
