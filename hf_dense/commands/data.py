"""The verb `hf-dense data`: corpora, contexts, labels, generated texts and training lists, each one directory."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hf_dense.commands.options import read_number
from hf_dense.commands.output import (
    add_encoding_arguments,
    add_output_arguments,
    check_publishing,
    losses_aside,
    output_of,
    publish_output,
)
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.process_group import is_main_process

_ENCODING: Final = ("precision", "max_length", "batch_size")

SUMMARY: Final = "Build corpora, contexts, queries, labels, generated texts and negatives."


@dataclass(frozen=True)
class DataVerb:
    """One kind of data: its help line, its arguments, what builds it. Heavy imports belong inside `run`."""

    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every verb of `DATA_VERBS` to the parser of `hf-dense data`."""
    verbs = parser.add_subparsers(dest="data", required=True, metavar="WHAT")
    for name, verb in DATA_VERBS.items():
        summary = verb.summary
        verb.add_arguments(verbs.add_parser(name, help=summary, description=summary, allow_abbrev=False))


def run(arguments: argparse.Namespace) -> None:
    """Build what the arguments name, say what is there, and publish it where that is asked for."""
    before, repo = Manifest.load(arguments.out), getattr(arguments, "push_to_hub", None)
    if repo and is_main_process():
        check_publishing(repo, "dataset")
    with losses_aside():  # of a generator that is trained
        DATA_VERBS[arguments.data].run(arguments)
    if not is_main_process():
        return
    manifest = Manifest.load(arguments.out)
    facts = manifest.facts if manifest else {}
    counts = facts.get("counts", facts)
    found = ", ".join(f"{number:,} {what}" for what, number in counts.items() if isinstance(number, int))
    state = "is there already, made from the same" if manifest == before else "is written"
    print(f"{arguments.out} {state}{': ' if found else ''}{found}")
    if repo:
        publish_output(arguments.out, repo)


def _given(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Some arguments by their names."""
    return {name: getattr(arguments, name) for name in names}


def _named(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of some arguments that somebody gave, where None stands for the others."""
    return {name: value for name, value in _given(arguments, *names).items() if value is not None}


def _add_dataset(parser: argparse.ArgumentParser) -> None:
    add_output_arguments(parser, license_of="the texts", push=True)


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpus", metavar="CORPUS", help="passages: a directory, file or Hub dataset")


def _add_passages(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="folder of documents (.md, .html, .rst, .pdf, .docx, ...), table of them (.jsonl, .parquet, .csv, .tsv), "
        "collection or Hub dataset",
    )
    parser.add_argument("--length", type=int, help="greatest number of tokens (default: 128)")
    parser.add_argument("--whole", action="store_true", help="every document is one passage, whatever its length")
    parser.add_argument("--tokenizer", help="whose tokens are counted (default: words and punctuation marks)")
    parser.add_argument("--short", type=read_number, help="chance of closing a passage early (default: 0)")
    parser.add_argument(
        "--titles",
        choices=("column", "text"),
        default="column",
        help="a title is kept in its column, or stands at the head of the text too (default: column)",
    )
    parser.add_argument(
        "--code",
        choices=("keep", "drop", "fence"),
        default="keep",
        help="blocks of code: their words, nothing, or their words between ``` (default: keep)",
    )
    parser.add_argument(
        "--repeats",
        choices=("keep", "exact", "near"),
        default="exact",
        help="repeated passages stay, or go where they are the same (exact) or nearly so (near) (default: exact)",
    )
    for role in ("id", "title", "text"):
        parser.add_argument(f"--{role}_column", metavar="NAME", help=f"column that holds the {role}")
    parser.add_argument("--split", help="split of a Hub dataset (default: train)")
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="where documents are cut (default: local)"
    )
    parser.add_argument("--processes", type=int, help="how many cut side by side (default: one for each core)")
    parser.add_argument("--address", help="of the Ray cluster (default: one is started here)")
    _add_dataset(parser)


def _passages(arguments: argparse.Namespace) -> None:
    from hf_dense.data.engines import Engine
    from hf_dense.data.passage_corpus import Cutting, build_passage_corpus
    from hf_dense.errors import InputError

    columns = {role: getattr(arguments, f"{role}_column") for role in ("id", "title", "text")}
    cut = _named(arguments, "length", "tokenizer", "short")
    if arguments.whole and cut:
        raise InputError(
            f"--{next(iter(cut))} says how documents are cut, and --whole cuts none; leave one of them out."
        )
    build_passage_corpus(
        arguments.sources,
        output_of(arguments),
        Cutting(**{"length": None} if arguments.whole else cut, **_given(arguments, "titles", "repeats")),
        columns={role: name for role, name in columns.items() if name},
        split=arguments.split,
        code=arguments.code,
        engine=Engine(arguments.engine, arguments.processes, arguments.address),
    )


def _add_contexts(parser: argparse.ArgumentParser) -> None:
    _add_corpus(parser)
    parser.add_argument("--tokenizer", help="whose tokens are counted (default: words and punctuation marks)")
    parser.add_argument("--length", type=int, default=128, help="of an overlapping span, in tokens (default: 128)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        help="how many work side by side (default: one for each core)",
    )
    _add_dataset(parser)


def _contexts(arguments: argparse.Namespace) -> None:
    from hf_dense.data.contexts import write_contexts

    options = _given(arguments, "length", "tokenizer", "seed", "processes")
    write_contexts(arguments.corpus, output_of(arguments), **options)


def _add_keywords(parser: argparse.ArgumentParser) -> None:
    _add_corpus(parser)
    parser.add_argument("--tokenizer", required=True, help="of the pre-training: words are made of its tokens")
    add_output_arguments(parser)


def _keywords(arguments: argparse.Namespace) -> None:
    from hf_dense.pretraining.word_counts import build_word_counts

    build_word_counts(arguments.corpus, arguments.tokenizer, output_of(arguments))


def _add_negatives(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("collection", metavar="COLLECTION", help="corpus, queries and judgements")
    parser.add_argument("--split", default="train", help="of the judgements (default: train)")
    parser.add_argument("--depth", type=int, default=200, help="greatest number of negatives of a query (default: 200)")
    parser.add_argument(
        "--model", default="bm25", help="retriever that finds them: a directory or Hub id (default: bm25)"
    )
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of the highest hits (default: 0)")
    dense = parser.add_argument_group("with --model")
    dense.add_argument("--kind", choices=("exact", "flat", "ivfpq", "hnsw"), help="of search (default: exact)")
    dense.add_argument("--margin", type=read_number, help="leave out hits less than this below the best positive")
    dense.add_argument("--filter_by", metavar="MODEL", help="cross-encoder that takes false negatives out")
    dense.add_argument(
        "--filter_margin",
        type=read_number,
        help="keep hits that --filter_by scores so much below the positive (default: 0)",
    )
    add_encoding_arguments(dense)
    parser.set_defaults(precision=None, batch_size=None)  # so that one that is given can be told
    _add_dataset(parser)


def _negatives(arguments: argparse.Namespace) -> None:
    from hf_dense.errors import InputError
    from hf_dense.finetuning.mining import mine_negatives
    from hf_dense.finetuning.negatives import build_lexical_negatives
    from hf_dense.search.first_stage import BM25

    where = (arguments.collection, output_of(arguments), arguments.split)
    names = ("kind", "margin", "filter_by", "filter_margin", *_ENCODING, "ray")
    given, lexical = _named(arguments, *names), arguments.model == BM25
    if lexical and given:
        raise InputError(f"--{next(iter(given))} says nothing of BM25; name a retriever with --model, or leave it out.")
    options = _given(arguments, "depth", "skip")
    if lexical:
        build_lexical_negatives(*where, **options)
        return
    given.pop("ray", None)  # which is in force around this
    mine_negatives(arguments.model, *where, **options | given)


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("collection", metavar="COLLECTION", help="corpus, queries and judgements")
    parser.add_argument(
        "--splits",
        nargs="+",
        default=["train"],
        help="whose queries are judged, the others stay as they are (default: train; what is measured on queries that "
        "a model has chosen favours this model)",
    )
    parser.add_argument(
        "--within", type=int, metavar="K", help="keep queries that find a relevant passage among the first K"
    )
    parser.add_argument(
        "--by", nargs="+", metavar="MODEL", help="retrievers, or bm25, of which one must find it (default: bm25)"
    )
    parser.add_argument("--teacher", metavar="MODEL", help="cross-encoder that reads each query with its passage")
    parser.add_argument(
        "--least",
        type=read_number,
        metavar="SCORE",
        help="keep queries that --teacher gives this logit or more (default: 0)",
    )
    add_encoding_arguments(parser)
    _add_dataset(parser)


def _filter(arguments: argparse.Namespace) -> None:
    from hf_dense.errors import InputError
    from hf_dense.finetuning.filtering import filter_collection

    for name, needed in (("by", "within"), ("least", "teacher")):
        if getattr(arguments, name) is not None and getattr(arguments, needed) is None:
            raise InputError(f"--{name} says nothing without --{needed}; give both.")
    options = _given(arguments, "splits", "within", "teacher", *_ENCODING) | _named(arguments, "by", "least")
    filter_collection(arguments.collection, output_of(arguments), **options)


def _add_scores(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("collection", metavar="COLLECTION", help="with the texts of the passages")
    parser.add_argument(
        "--lists",
        nargs="+",
        metavar="DIR",
        help="training lists, such as mined negatives, of several directories joined (default: the collection's)",
    )
    parser.add_argument("--model", required=True, help="cross-encoder: a directory or Hub id; or bm25")
    parser.add_argument("--split", default="train", help="of the lists (default: train)")
    parser.add_argument("--depth", type=int, default=200, help="negatives of a list that are scored (default: 200)")
    add_encoding_arguments(parser, pairs=True)
    _add_dataset(parser)


def _scores(arguments: argparse.Namespace) -> None:
    from hf_dense.finetuning.scoring import score_lists

    where = (arguments.lists or arguments.collection, arguments.collection, output_of(arguments), arguments.split)
    score_lists(arguments.model, *where, **_given(arguments, "precision", "batch_size", "depth"))


def _add_generate(parser: argparse.ArgumentParser) -> None:
    _add_corpus(parser)
    parser.add_argument("--kind", choices=("queries", "continuation"), default="queries", help="(default: queries)")
    parser.add_argument("--model", required=True, help="language model: a directory or Hub id")
    parser.add_argument(
        "--template", default="{text}", help="prompt with {text}, and perhaps {title} (default: {text})"
    )
    parser.add_argument("--candidates", type=int, help="queries of a passage (default: 5)")
    parser.add_argument("--deduplicate", action="store_true", help="keep equal queries of a passage once")
    parser.add_argument("--top_k", type=int, default=25, help="tokens drawn from (default: 25)")
    parser.add_argument("--top_p", type=read_number, default=0.95, help="probability drawn from (default: 0.95)")
    parser.add_argument("--temperature", type=read_number, help="of the draws (default: the model's own)")
    parser.add_argument("--input_length", type=int, default=384, help="tokens of a prompt (default: 384)")
    parser.add_argument("--output_length", type=int, default=64, help="tokens generated at most (default: 64)")
    parser.add_argument("--batch_size", type=int, default=32, help="passages at once (default: 32)")
    parser.add_argument("--seed", type=int, default=42, help="of all draws (default: 42)")
    _add_dataset(parser)


def _generate(arguments: argparse.Namespace) -> None:
    from dataclasses import fields

    from hf_dense.data.corpus import load_passages
    from hf_dense.data.generation import TextGenerationConfig, generate
    from hf_dense.errors import InputError
    from hf_dense.storage.process_group import process_state

    several = [name for name in ("candidates", "deduplicate") if getattr(arguments, name)]
    if arguments.kind == "continuation" and several:
        raise InputError(f"--{several[0]} says nothing of continuations, one of each passage; leave it out.")
    config = TextGenerationConfig(**_named(arguments, *(field.name for field in fields(TextGenerationConfig))))
    with process_state().main_process_first():
        corpus = load_passages(arguments.corpus)
    generate(corpus, output_of(arguments), config, source=arguments.corpus, batch_size=arguments.batch_size)


def _add_train_generator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="COLLECTION",
        help="queries and passages to learn from; for --kind continuation any corpus of passages",
    )
    parser.add_argument("--kind", choices=("queries", "continuation"), default="queries", help="(default: queries)")
    parser.add_argument("--split", default="train", help="of a collection's judgements (default: train)")
    parser.add_argument(
        "--base", metavar="MODEL", help="language model to start from (default: a small one, untrained)"
    )
    parser.add_argument("--template", default="{text}", help="prompt; the same is to be used for generating")
    parser.add_argument("--max_steps", type=int, default=2000, help="(default: 2000)")
    parser.add_argument("--batch_size", type=int, default=16, help="(default: 16)")
    parser.add_argument("--learning_rate", type=read_number, default=1e-3, help="(default: 1e-3)")
    parser.add_argument("--seed", type=int, default=42, help="(default: 42)")
    add_output_arguments(parser)


def _train_generator(arguments: argparse.Namespace) -> None:
    from transformers import Seq2SeqTrainingArguments

    from hf_dense.data.collections import training_pairs
    from hf_dense.data.corpus import load_passages
    from hf_dense.data.generator_training import train_generator

    if arguments.kind == "queries":
        rows = training_pairs(arguments.source, arguments.split).select_columns(["passage", "query"])
    else:
        rows = load_passages(arguments.source).select_columns(["text"])
    training = Seq2SeqTrainingArguments(
        **_given(arguments, "max_steps", "learning_rate", "seed"),
        per_device_train_batch_size=arguments.batch_size,
        warmup_steps=0.1,
        logging_steps=50,
        save_steps=500,
        save_total_limit=1,
        report_to="none",
    )
    options = _given(arguments, "source", "base", "template")
    train_generator(rows, output_of(arguments), training, **options)


def _add_labels(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="file or folder of labelled queries")
    parser.add_argument(
        "--form",
        choices=("pairs", "dpr", "msmarco", "mind"),
        default="pairs",
        help="query, positive[, negatives] in .jsonl, .json, .csv, .tsv or .parquet; a file of DPR; a folder of MS "
        "MARCO or MIND (default: pairs)",
    )
    parser.add_argument(
        "--split",
        nargs="+",
        default=["train"],
        help="what the labels are for, msmarco takes several; or shares of the documents for train/dev/test, such as "
        "80/10/10 (default: train)",
    )
    parser.add_argument("--seed", type=int, default=42, help="of the shares (default: 42)")
    parser.add_argument(
        "--corpus",
        metavar="CORPUS",
        help="passages, or documents to cut, in place of the passages that come with the labels; these are found "
        "there, whole or in part",
    )
    _add_dataset(parser)


def _labels(arguments: argparse.Namespace) -> None:
    from hf_dense.data.supervision import build_collection

    given = _given(arguments, "form", "split", "corpus", "seed")
    build_collection(arguments.source, output_of(arguments), **given)


def _add_queries(parser: argparse.ArgumentParser) -> None:
    _add_corpus(parser)
    parser.add_argument(
        "--from",
        dest="kinds",
        nargs="+",
        required=True,
        choices=("headings", "sentences", "neighbours", "generated"),
        help="what queries are: headings, sentences with a rare word, neighbouring passages, or a model's words",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="passages that queries are made of (default: all)")
    parser.add_argument("--split", default="80/10/10", help="documents for train/dev/test (default: 80/10/10)")
    parser.add_argument("--seed", type=int, default=42, help="of all draws (default: 42)")
    made = parser.add_argument_group("generated")
    made.add_argument("--model", help="language model: a directory or Hub id, or a name that the endpoint knows")
    made.add_argument(
        "--style",
        nargs="+",
        choices=("question", "keywords", "title"),
        help="what an instruction model writes (default: all three)",
    )
    made.add_argument("--template", help="a prompt of your own in place of --style, with {text} and perhaps {title}")
    made.add_argument("--candidates", type=int, help="queries of each style for a passage (default: 1)")
    made.add_argument("--temperature", type=read_number, help="of the draws (default: 0.7)")
    made.add_argument("--output_length", type=int, help="tokens generated at most (default: 64)")
    made.add_argument("--batch_size", type=int, help="passages at once, of a model here (default: 32)")
    made.add_argument(
        "--endpoint", metavar="URL", help="OpenAI-compatible address; its key is OPENAI_API_KEY, or HF_TOKEN"
    )
    made.add_argument("--parallel", type=int, help="requests at once (default: 8)")
    made.add_argument("--price_in", type=read_number, help="price of a million tokens read, to show the cost")
    made.add_argument("--price_out", type=read_number, help="price of a million tokens written")
    _add_dataset(parser)


def _queries(arguments: argparse.Namespace) -> None:
    from hf_dense.data.queries.collection import build_queries
    from hf_dense.data.queries.endpoint import Endpoint
    from hf_dense.data.queries.generating import Generating
    from hf_dense.data.queries.prompts import STYLES
    from hf_dense.errors import InputError

    if arguments.style and arguments.template:
        raise InputError("--template stands in place of the styles; give one of the two.")
    if arguments.endpoint and not arguments.model:
        raise InputError("Name the model that the endpoint is to use with --model.")
    asked = _named(arguments, "parallel", "price_in", "price_out")
    drawn = _named(arguments, "candidates", "temperature", "output_length", "batch_size")
    for named, needed in ((asked, "endpoint"), (_named(arguments, "style", "template") | drawn, "model")):
        if named and not getattr(arguments, needed):
            raise InputError(f"--{next(iter(named))} says nothing without --{needed}; give both.")
    endpoint = generating = None
    if arguments.endpoint:
        endpoint = Endpoint(arguments.endpoint, arguments.model, **asked)
    if arguments.model:
        styles = tuple(arguments.style or STYLES)
        generating = Generating(arguments.model, endpoint, styles, arguments.template, **drawn)
    options = _given(arguments, "limit", "split", "seed")
    build_queries(arguments.corpus, output_of(arguments), arguments.kinds, **options, generating=generating)


DATA_VERBS: Final = {
    "passages": DataVerb("Cut documents into passages.", _add_passages, _passages),
    "contexts": DataVerb("Pair passages with other spans of their documents.", _add_contexts, _contexts),
    "keywords": DataVerb("Count the words of a corpus, for keyword masks.", _add_keywords, _keywords),
    "labels": DataVerb("Turn labelled queries into a collection.", _add_labels, _labels),
    "queries": DataVerb("Make queries of passages, where there are none.", _add_queries, _queries),
    "generate": DataVerb("Write queries or continuations with a language model.", _add_generate, _generate),
    "train-generator": DataVerb(
        "Train a language model that writes queries or continuations.", _add_train_generator, _train_generator
    ),
    "negatives": DataVerb("Find hard negatives for training queries.", _add_negatives, _negatives),
    "scores": DataVerb("Score training lists with a cross-encoder or BM25, to distil it.", _add_scores, _scores),
    "filter": DataVerb("Leave out queries that do not lead to their passage.", _add_filter, _filter),
}
