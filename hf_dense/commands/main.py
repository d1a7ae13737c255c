"""The command `hf-dense`: each verb is one call into the package."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from hf_dense.commands.analyse import add_analyse_arguments, run_analyse
from hf_dense.commands.data import add_data_arguments, run_data
from hf_dense.commands.evaluate import add_evaluate_arguments, run_evaluate
from hf_dense.commands.export import add_export_arguments, run_export
from hf_dense.commands.report import add_report_arguments, run_report
from hf_dense.errors import InputError, run_main
from hf_dense.version import __version__


@dataclass(frozen=True)
class Verb:
    """One verb: its help line, its arguments, what it runs. Heavy imports belong inside `run`."""

    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; a user's mistake is one line on standard error and exit code 2."""
    arguments = build_parser().parse_args(argv)
    run_main(lambda: VERBS[arguments.verb].run(arguments))


def build_parser() -> argparse.ArgumentParser:
    """Make the parser of every verb in `VERBS`."""
    parser = argparse.ArgumentParser(prog="hf-dense", description="Dense retrieval, from your documents to answers.")
    parser.add_argument("--version", action="version", version=f"hf-dense {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, verb in VERBS.items():
        verb.add_arguments(verbs.add_parser(name, help=verb.summary, description=verb.summary))
    return parser


def _add_search_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="directory or Hub id of a Sentence-Transformers retriever")
    parser.add_argument("question", help="what to look for, in plain words")
    parser.add_argument("--corpus", metavar="DIR", help="dataset directory to index, where no index exists yet")
    parser.add_argument("--index", metavar="DIR", help="where the index is, or is built (default: MODEL/index)")
    parser.add_argument("--top_k", type=int, default=5, help="passages to show (default: 5)")


def _search(arguments: argparse.Namespace) -> None:
    started = time.perf_counter()
    index_dir = _index_directory(arguments)
    build = not index_dir.is_dir()
    if build and arguments.corpus is None:
        raise InputError(f"There is no index in {index_dir}; name a corpus to build it from with --corpus DIR.")
    from transformers.utils.logging import disable_progress_bar

    from hf_dense.data.collections import load_corpus
    from hf_dense.hub.loading import load_retriever
    from hf_dense.search.index import SearchIndex, build_index

    disable_progress_bar()
    retriever = load_retriever(arguments.model)
    if build:
        build_index(retriever, load_corpus(arguments.corpus), index_dir)
    index = SearchIndex.load(index_dir, retriever)
    loaded = time.perf_counter()
    hits = index.search(arguments.question, arguments.top_k)
    found = time.perf_counter()
    for rank, hit in enumerate(hits, start=1):
        print(f"{rank:2d}. {hit.score:.3f}  {hit.title or hit.id}")
        print(fill(hit.text, width=100, initial_indent="    ", subsequent_indent="    "))
    verb = "indexed and loaded" if build else "loaded"
    print(f"\n{len(index):,} passages {verb} in {loaded - started:.2f} s, searched in {found - loaded:.3f} s")


def _index_directory(arguments: argparse.Namespace) -> Path:
    if arguments.index is not None:
        return Path(arguments.index)
    if not Path(arguments.model).is_dir():
        raise InputError(f"{arguments.model} is not a directory; say where its index belongs with --index DIR.")
    return Path(arguments.model) / "index"


def _add_finetune_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="PIPELINE.yaml", help="the stages; see examples/configs/finetuning")
    for name in ("collection", "encoder", "output_dir"):
        parser.add_argument(f"--{name}", help=f"in place of the file's {name}")
    parser.add_argument("--fraction", type=float, help="share of the training queries that is used")
    parser.add_argument("--measure_on", default="dev", help="split that every stage is measured on (default: dev)")


def _finetune(arguments: argparse.Namespace) -> None:
    import logging

    from hf_dense.commands.options import read_yaml
    from hf_dense.experiments.pipeline_results import measure_stages
    from hf_dense.finetuning.pipeline import Pipeline, run_pipeline
    from hf_dense.storage.process_group import process_state

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("hf_dense").setLevel(logging.INFO)
    given = {name: getattr(arguments, name) for name in ("collection", "encoder", "output_dir", "fraction")}
    changes = {name: value for name, value in given.items() if value is not None}
    pipeline = Pipeline.of({**read_yaml(Path(arguments.config)), **changes})
    models = run_pipeline(pipeline)
    if process_state().is_main_process:
        print(measure_stages(pipeline, models, arguments.measure_on))


def _add_glue_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", help="encoder or pre-training checkpoint: a directory or Hub id")
    parser.add_argument("--out", required=True, metavar="DIR", help="receives results; tasks that are there are kept")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="of cola, mrpc, stsb, qqp, mnli, qnli, sst2 (all)")
    parser.add_argument("--data_dir", metavar="DIR", help="<task>/train.parquet ... (default: the Hub's)")
    parser.add_argument("--max_length", type=int, default=128, help="tokens of an example (default: 128)")


def _glue(arguments: argparse.Namespace) -> None:
    from hf_dense.evaluation.nlu import TASKS, evaluate_glue
    from hf_dense.evaluation.tables import format_glue

    result = evaluate_glue(
        arguments.checkpoint,
        arguments.tasks or list(TASKS),
        name=Path(arguments.checkpoint).name,
        output_dir=arguments.out,
        data_dir=arguments.data_dir,
        max_length=arguments.max_length,
    )
    print(format_glue(result))


VERBS = {
    "analyse": Verb("Draw the papers' analyses.", add_analyse_arguments, run_analyse),
    "export": Verb("Write a model in the form others load.", add_export_arguments, run_export),
    "data": Verb("Build corpora, contexts, word counts and negatives.", add_data_arguments, run_data),
    "evaluate": Verb("Measure retrievers on tasks.", add_evaluate_arguments, run_evaluate),
    "report": Verb("Compare evaluations on one page.", add_report_arguments, run_report),
    "glue": Verb("Fine-tune and measure an encoder on GLUE.", _add_glue_arguments, _glue),
    "finetune": Verb("Train retrievers, stage after stage, and measure each.", _add_finetune_arguments, _finetune),
    "search": Verb("Find the passages that answer a question.", _add_search_arguments, _search),
}

if __name__ == "__main__":
    main()
