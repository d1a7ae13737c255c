"""Language understanding: an encoder fine-tuned on tasks of GLUE, to see that pre-training for retrieval kept it."""

from __future__ import annotations

import math
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from datasets import Dataset, Value, load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)

from hf_dense.data.corpus import open_files
from hf_dense.errors import InputError, as_sentence
from hf_dense.evaluation.glue_metrics import score_task
from hf_dense.evaluation.result import RESULT_FILE, RetrievalResult
from hf_dense.evaluation.runner import measure_once
from hf_dense.hub.fingerprints import encoder_fingerprint
from hf_dense.hub.loading import load_encoder, load_tokenizer, longest_text, plain_loading
from hf_dense.storage.files import write_text
from hf_dense.storage.fingerprints import fingerprint_rows, fingerprint_values
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.staged import Staged
from hf_dense.storage.training_values import check_training

HUB_NAME: Final = "nyu-mll/glue"
SCHEDULE: Final[dict[str, Any]] = {
    "num_train_epochs": 3,
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 64,
    "warmup_steps": 0.1,  # of all
    "weight_decay": 0.01,
    "save_strategy": "no",
    "report_to": "none",
}


@dataclass(frozen=True)
class Task:
    """A task of GLUE.

    Args:
        texts: columns that are read together.
        classes: how many labels there are; 1 where the label is a number.
        validation: splits that are measured; the metrics of `validation_<end>` are named `<metric>_<end>`.
    """

    texts: tuple[str, ...]
    classes: int = 2
    validation: tuple[str, ...] = ("validation",)


TASKS: Final = {
    "cola": Task(("sentence",)),
    "mrpc": Task(("sentence1", "sentence2")),
    "stsb": Task(("sentence1", "sentence2"), classes=1),
    "qqp": Task(("question1", "question2")),
    "mnli": Task(("premise", "hypothesis"), classes=3, validation=("validation_matched", "validation_mismatched")),
    "qnli": Task(("question", "sentence")),
    "sst2": Task(("sentence",)),
}


@dataclass(frozen=True)
class Run:
    """One training on a task.

    Args:
        rate: its learning rate.
        seed: its seed.
        result: metrics on the validation set.
    """

    rate: float
    seed: int
    result: RetrievalResult


def evaluate_glue(
    checkpoint: str | Path,
    tasks: Sequence[str],
    *,
    name: str,
    out: str | os.PathLike[str] | Output,
    data_dir: str | Path | None = None,
    max_length: int = 128,
    learning_rates: Sequence[float] = (2e-5,),
    seeds: Sequence[int] = (0,),
    arguments: Mapping[str, Any] | None = None,
) -> RetrievalResult:
    """Fine-tune an encoder on tasks of GLUE, each from the same start, and measure it on their validation sets.

    Source: SEED-Encoder, appendix A.2, on the schedule of BERT (Devlin et al., 2019): `SCHEDULE`, and of several
    learning rates (BERT's are 5e-5, 4e-5, 3e-5 and 2e-5) the best on the validation set, which is that reported.

    Args:
        checkpoint: directory or Hub id of an hf_dense checkpoint, or of a plain encoder; its tokenizer is beside it.
        tasks: of `TASKS`.
        name: of the encoder, in results and tables.
        out: receives `<task>/<learning rate>-seed<seed>/result.json` of each training, complete or not at all, and
            `result.json` of all tasks that were asked for; the error of a task that failed is `<task>-error.txt`.
        data_dir: where the Hub's data cannot be had: a folder `<task>` with `train` and `validation` (of MNLI
            `validation_matched` and `validation_mismatched`), `.parquet` or `.jsonl`, columns as GLUE names them.
        max_length: longest input in tokens; longer ones are cut.
        learning_rates: peak ones, of which each task takes that whose first metric is best, as the mean over seeds.
        seeds: of the head's weights and the order of the examples.
        arguments: of `TrainingArguments`, in place of the schedule's.

    Returns:
        `<task>/<metric>` on the split `validation`, means over the seeds; `origin["runs"]` has every training by task.
        Most of these are no means over examples: `per_query` is empty.

    Raises:
        InputError: an unknown task or argument, nothing to load, `out` is not ours or is of another encoder or of other
            arguments, or tasks failed; the others are done by then.
    """
    if not tasks or not TASKS.keys() >= {*tasks}:
        raise InputError(f"The tasks are {', '.join(tasks) or 'none'}; choose some of {', '.join(TASKS)}.")
    output, encoder, tokenizer = Output.of(out), load_encoder(checkpoint), load_tokenizer(checkpoint)
    _check_length(max_length, longest_text(encoder.config))
    schedule = {**SCHEDULE, **(arguments or {})}
    settings = {"max_length": max_length, "arguments": schedule}
    source = Source(str(checkpoint), encoder_fingerprint(encoder, tokenizer))
    with tempfile.TemporaryDirectory() as scratch:
        trainings = _trainings(f"{scratch}/training", schedule, learning_rates, seeds)
        start = Path(scratch) / "encoder"
        encoder.float().save_pretrained(start)
        tokenizer.save_pretrained(start)
        del encoder

        grid = _Grid(start, name, data_dir, max_length, settings, source, trainings, output)
        claims = [RESULT_FILE, *(f"{task}-error.txt" for task in TASKS)]
        with output.occupy("glue", settings, {"encoder": source}, claims=claims, again=True) as folder:
            result = _measure_all(tasks, grid.measure, name, output.path)
            folder.complete()
    return result


def _check_length(max_length: int, positions: float) -> None:
    if not 3 <= max_length <= positions:
        range_of = "3 or more" if math.isinf(positions) else f"from 3 to {positions:.0f}"
        raise InputError(f"max_length is {max_length} tokens; the encoder takes {range_of}.")


@dataclass(frozen=True)
class _Grid:
    """Trainings of one encoder that are the same for every task."""

    start: Path
    name: str
    data_dir: str | Path | None
    max_length: int
    settings: Mapping[str, Any]
    encoder: Source
    trainings: Mapping[tuple[float, int], TrainingArguments]
    output: Output

    def measure(self, task: str) -> list[Run]:
        """Train with every rate and seed, and measure each, unless it was done before."""
        data, runs = load_task(task, self.data_dir), []
        content = {split: fingerprint_rows(rows, rows.column_names) for split, rows in data.items()}
        origin = Source(str(self.data_dir or HUB_NAME), fingerprint_values(content))
        sources = {"encoder": self.encoder, "data": origin}
        for (rate, seed), training in self.trainings.items():
            given = {"protocol": "glue", "task": task, **self.settings, "learning_rate": rate, "seed": seed}
            run = partial(_run_task, self.start, task, self.name, data, self.max_length, training)
            place = self.output.at(task, f"{rate:g}-seed{seed}")
            runs.append(Run(rate, seed, measure_once(place, given, sources, self.name, run, resumable=False)))
        return runs


def _measure_all(tasks: Sequence[str], measure: Callable[[str], list[Run]], name: str, target: Path) -> RetrievalResult:
    """Measure every task, whichever fails, and write what all of them found."""
    done: dict[str, list[Run]] = {}
    failed: dict[str, str] = {}
    (target / RESULT_FILE).unlink(missing_ok=True)
    for task in dict.fromkeys(tasks):
        error_file = target / f"{task}-error.txt"
        try:
            done[task] = measure(task)
            error_file.unlink(missing_ok=True)
        except Exception as error:  # whatever it is, the other tasks go on
            failed[task] = (str(error) or type(error).__name__).strip().splitlines()[0].rstrip(".")
            write_text(error_file, traceback.format_exc())
    if failed:
        reasons = "; ".join(f"{task} ({reason})" for task, reason in failed.items())
        raise InputError(f"{len(failed)} of {len(failed) + len(done)} tasks failed, what is done is kept: {reasons}.")
    metrics = {f"{task}/{metric}": value for task, runs in done.items() for metric, value in best(runs).items()}
    described = {
        task: [{"learning_rate": run.rate, "seed": run.seed, **run.result.metrics} for run in runs]
        for task, runs in done.items()
    }
    seconds = sum(run.result.seconds for runs in done.values() for run in runs)
    result = RetrievalResult(name, "validation", metrics, {}, seconds, {"runs": described})
    result.save(target)
    return result


def best(runs: Sequence[Run]) -> dict[str, float]:
    """The metrics, means over seeds, of the learning rate whose first metric is greatest; one that is no number loses.

    Args:
        runs: of one task, every learning rate with the same seeds.
    """
    by_rate: dict[float, list[RetrievalResult]] = {}
    for run in runs:
        by_rate.setdefault(run.rate, []).append(run.result)
    means = [
        {metric: fmean(result.metrics[metric] for result in results) for metric in results[0].metrics}
        for results in by_rate.values()
    ]
    return max(means, key=lambda found: -math.inf if math.isnan(first := next(iter(found.values()))) else first)


def load_task(task: str, data_dir: str | Path | None = None) -> dict[str, Dataset]:
    """The splits of a task that are trained and measured on, from `data_dir` where one is named, else from the Hub.

    Raises:
        InputError: they are not there, or a column is missing.
    """
    spec = TASKS[task]
    splits = ("train", *spec.validation)
    if data_dir is not None:
        data = {split: _read_split(task, split, data_dir) for split in splits}
    else:
        try:
            data = dict(zip(splits, load_dataset(HUB_NAME, task, split=list(splits)), strict=True))
        except (OSError, ValueError) as error:  # the Hub cannot be reached, or does not have it in the cache
            raise InputError(
                f"The data of {task} cannot be had from the Hub ({HUB_NAME}); name a data_dir that has it."
            ) from error
    for split, rows in data.items():
        if missing := [column for column in (*spec.texts, "label") if column not in rows.column_names]:
            raise InputError(f"The {split} split of {task} has no column {missing[0]!r}.")
    return data


def _run_task(
    start: Path,
    task: str,
    name: str,
    data: Mapping[str, Dataset],
    max_length: int,
    training: TrainingArguments,
    work: Staged,
) -> RetrievalResult:
    """Fine-tune on a task, and measure that."""
    clock = time.perf_counter()
    spec, tokenizer = TASKS[task], load_tokenizer(start)

    def encode(rows: Mapping[str, list[str]]) -> Any:
        return tokenizer(*(rows[column] for column in spec.texts), truncation=True, max_length=max_length)

    kind = Value("float32" if spec.classes == 1 else "int64")
    encoded = {
        split: rows.select_columns([*spec.texts, "label"])
        .cast_column("label", kind)
        .map(encode, batched=True, remove_columns=list(spec.texts))
        for split, rows in data.items()
    }
    set_seed(training.seed)  # of the head's weights
    with plain_loading("an encoder", start):
        model = AutoModelForSequenceClassification.from_pretrained(
            start,
            num_labels=spec.classes,
            output_hidden_states=False,  # as a configuration may say; they would be read as predictions
            output_attentions=False,
            trust_remote_code=False,
        )
    trainer = Trainer(
        model,
        training,
        train_dataset=encoded["train"],
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    trainer.train()
    metrics: dict[str, float] = {}
    for split in spec.validation:
        found = trainer.predict(encoded[split])
        logits: Any = found.predictions
        predictions = logits[:, 0] if spec.classes == 1 else logits.argmax(-1)
        scores = score_task(task, predictions.tolist(), encoded[split]["label"][:])
        metrics |= {metric + split.removeprefix("validation"): value for metric, value in scores.items()}
    result = RetrievalResult(name, "validation", metrics, {}, time.perf_counter() - clock)
    result.save(work.result)
    return result


def _read_split(task: str, split: str, data_dir: str | Path) -> Dataset:
    for suffix in (".parquet", ".jsonl"):
        file = Path(data_dir) / task / f"{split}{suffix}"
        if file.is_file():
            with as_sentence(f"{file} cannot be read"):
                return open_files([file])
    raise InputError(f"{Path(data_dir) / task} has no {split}.parquet or {split}.jsonl.")


def _training_arguments(output_dir: str, schedule: Mapping[str, Any]) -> TrainingArguments:
    try:
        arguments = TrainingArguments(output_dir, **schedule)
    except (TypeError, ValueError) as error:
        raise InputError(f"The arguments cannot be used: {str(error).splitlines()[0].rstrip('.')}.") from error
    check_training(arguments)
    return arguments


def _trainings(
    place: str, schedule: Mapping[str, Any], rates: Sequence[float], seeds: Sequence[int]
) -> dict[tuple[float, int], TrainingArguments]:
    """The arguments of a training with each rate and seed."""
    for given, values in (("learning_rates", rates), ("seeds", seeds)):
        if not values or len({*values}) < len(values):
            raise InputError(f"The {given} are {', '.join(map(str, values)) or 'none'}; name some, each once.")
    if not all(0 < rate < math.inf for rate in rates):
        raise InputError(f"A learning rate is {min(rates)}; it must be above 0.")
    if named := next((name for name in ("learning_rate", "seed") if name in schedule), None):
        raise InputError(f"{named} is no argument of one training here; give {named}s.")
    return {
        (rate, seed): _training_arguments(place, {**schedule, "learning_rate": rate, "seed": seed})
        for rate, seed in product(rates, seeds)
    }
