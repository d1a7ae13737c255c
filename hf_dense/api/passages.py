"""Passages of documents, and queries made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, overload

from hf_dense.api.calls import Place, as_list, as_path, check_filled, checked, read_call
from hf_dense.api.results import Result, caption, html_table
from hf_dense.storage.files import as_typed

_SHOWN: Final = 5  # rows


class Corpus:
    """The passages of a directory, in the order in which they stand there; it may be given wherever a path may.

    Args:
        path: of a corpus, a collection, or a folder in BEIR layout.

    Raises:
        InputError: no passages are there.
    """

    def __init__(self, path: Place) -> None:
        from hf_dense.data.collections import load_corpus

        place = Path(as_path(path))
        self.rows = load_corpus(place)
        self.path = place.absolute() if place.exists() else place  # of a Hub dataset its name

    @classmethod
    @checked
    def from_documents(
        cls,
        sources: Place | Sequence[Place],
        *,
        out: Place,
        length: int | None = None,
        whole: bool = False,
        tokenizer: Place | None = None,
        short: float | None = None,
        titles: str | None = None,
        code: str | None = None,
        repeats: str | None = None,
        id_column: str | None = None,
        title_column: str | None = None,
        text_column: str | None = None,
        split: str | None = None,
        engine: str | None = None,
        processes: int | None = None,
        address: str | None = None,
        overwrite: bool = False,
        license: str | None = None,
    ) -> Corpus:
        """Cut documents into passages: `hf-dense data passages`, whose flags the arguments are.

        Args:
            sources: one, or several: folder of documents, table of them, collection or Hub dataset.
            out: receives the passages; where they are there already, made from the same, nothing is done.
            length: greatest number of tokens of a passage; None is the flag's default here and everywhere.
            whole: every document is one passage.
            tokenizer: whose tokens are counted.
            short: probability of closing a passage early.
            titles: `column` or `text`.
            code: `keep`, `drop` or `fence`.
            repeats: `keep`, `exact` or `near`.
            id_column: of a table.
            title_column: of a table.
            text_column: of a table.
            split: of a Hub dataset.
            engine: `local` or `ray`.
            processes: how many cut side by side.
            address: of the Ray cluster.
            overwrite: whether what was made from other inputs or settings is replaced.
            license: of the texts, for the card.

        Raises:
            InputError: the sources cannot be read, an option is out of range, or something else is in `out`.
        """
        options = {name: value for name, value in locals().items() if name not in ("cls", "sources")}
        given = as_list(sources)
        check_filled(sources=given)
        _run_data("passages", given, options)
        return cls(out)

    @checked
    def queries(
        self,
        *,
        out: Place,
        kinds: str | Sequence[str] | None = None,
        limit: int | None = None,
        split: str | None = None,
        seed: int | None = None,
        model: Place | None = None,
        style: Sequence[str] | None = None,
        template: str | None = None,
        candidates: int | None = None,
        temperature: float | None = None,
        output_length: int | None = None,
        batch_size: int | None = None,
        endpoint: str | None = None,
        parallel: int | None = None,
        price_in: float | None = None,
        price_out: float | None = None,
        overwrite: bool = False,
        license: str | None = None,
    ) -> Result:
        """Make queries of the passages, and a collection of both: `hf-dense data queries`.

        Args:
            out: receives the collection.
            kinds: what queries are, one or several, as `--from` names it: `headings`, `sentences`, `neighbours`,
                `generated`; None is `headings` and `sentences`.
            limit: passages that queries are made of.
            split: shares of train, dev and test in the documents.
            seed: of all draws.
            model: that generates.
            style: `question`, `keywords`, `title`.
            template: a prompt in their place.
            candidates: queries of each style for a passage.
            temperature: of the draws.
            output_length: tokens generated at most.
            batch_size: passages at once.
            endpoint: OpenAI-compatible address.
            parallel: requests at once.
            price_in: of a million tokens read.
            price_out: of a million tokens written.
            overwrite: whether what was made from other inputs or settings is replaced.
            license: of the texts, for the card.

        Returns:
            The collection, to be trained on and to be measured on.

        Raises:
            InputError: no query can be made, an option is out of range, or something else is in `out`.
        """
        options = {name: value for name, value in locals().items() if name not in ("self", "kinds")}
        chosen = ["headings", "sentences"] if kinds is None else as_list(kinds)
        check_filled(kinds=chosen)
        return _run_data("queries", [self], {"from": chosen, **options})

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield from self.rows

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, at: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(at, slice):
            some: list[dict[str, Any]] = self.rows.select(range(*at.indices(len(self)))).to_list()
            return some
        row: dict[str, Any] = self.rows[at]
        return row

    def __fspath__(self) -> str:
        return as_typed(self.path)

    def __str__(self) -> str:
        return as_typed(self.path)

    def __repr__(self) -> str:
        return f"<corpus in {self}; passages: {len(self):,}>"

    def _repr_html_(self) -> str:
        names = [name for name in ("id", "title", "text") if name in self.rows.column_names]
        first = [[row[name] for name in names] for row in self[:_SHOWN]]
        return f"{caption(f'corpus of {len(self):,} passages', self)}{html_table(names, first)}"


@checked
def mine(
    collection: Place,
    *,
    out: Place,
    split: str | None = None,
    depth: int | None = None,
    model: Place | None = None,
    kind: str | None = None,
    skip: int | None = None,
    margin: float | None = None,
    filter_by: Place | None = None,
    filter_margin: float | None = None,
    precision: str | None = None,
    max_length: int | None = None,
    batch_size: int | None = None,
    ray: str | None = None,
    overwrite: bool = False,
    license: str | None = None,
) -> Result:
    """Find hard negatives for training queries: `hf-dense data negatives`, whose flags the arguments are.

    Args:
        collection: corpus, queries and judgements.
        out: receives the training lists, for `finetune(lists=...)`.
        split: of the judgements.
        depth: greatest number of negatives of a query; None is the flag's default here and everywhere.
        model: retriever that finds them; `bm25`, or None, is BM25, which takes `skip` alone of the options below.
        kind: of search: `exact`, `flat`, `ivfpq` or `hnsw`.
        skip: leaves out so many of the highest hits.
        margin: leaves out hits less than this below the best positive's score.
        filter_by: cross-encoder that takes false negatives out.
        filter_margin: keeps what it scores this much below the positive.
        precision: that models compute in: `fp32`, `bf16` or `fp16`.
        max_length: longest text of the retriever in tokens.
        batch_size: texts encoded at once.
        ray: address of a Ray cluster whose machines encode passages.
        overwrite: whether what was made from other inputs or settings is replaced.
        license: of the texts, for the card.

    Raises:
        InputError: see `hf_dense.finetuning.mining.mine_negatives`.
    """
    options = {name: value for name, value in locals().items() if name != "collection"}
    return _run_data("negatives", [collection], options)


def _run_data(verb: str, positional: Sequence[Place], options: dict[str, Any]) -> Result:
    """What a verb of `hf-dense data` writes."""
    from hf_dense.commands.data import DATA_VERBS
    from hf_dense.commands.output import encoding_of

    arguments = read_call(f"data {verb}", positional, options)
    with encoding_of(arguments):
        DATA_VERBS[verb].run(arguments)
    return Result.of(arguments.out)
