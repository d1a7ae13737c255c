"""Adapt, pre-train and fine-tune, as functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from hf_dense.api.calls import Place, as_list, check_filled, checked, read_call, refuse_unknown
from hf_dense.api.results import Training
from hf_dense.commands.options import build_options, given_flags, read_options
from hf_dense.commands.output import command_line
from hf_dense.commands.pretrain import without_aside

if TYPE_CHECKING:
    from hf_dense.experiments.adaptation.report import Adaptation

Part = Mapping[str, Any] | str  # JSON


@checked
def adapt(
    docs: Place,
    *,
    out: Place,
    base: Place | None = None,
    queries: Place | None = None,
    budget: str | None = None,
    method: str | None = None,
    teacher: Place | None = None,
    keep: Place | None = None,
    length: int | None = None,
    precision: str | None = None,
    seed: int | None = None,
    overwrite: bool = False,
    license: str | None = None,
) -> Adaptation:
    """Find out whether pre-training on documents pays, and get the best retriever: `hf-dense adapt`.

    Args:
        docs: folder of documents, table of passages, or a collection with judgements.
        out: receives report, retriever and index; an adaptation that was stopped goes on there.
        base: ready embedder or encoder; None starts from scratch.
        queries: .jsonl, .json, .csv, .tsv or .parquet with query and positive; None makes queries.
        budget: time for all of it, such as `10m`; None is the flag's default here and everywhere.
        method: of pre-training, `auto`, or `none`.
        teacher: that the better model is distilled from: a cross-encoder, or `bm25`.
        keep: COLLECTION[:SPLIT] that shows what is forgotten; `none` measures none.
        length: longest text in tokens.
        precision: `fp32` or `bf16` of all; `auto` trains in bf16 where that is faster, and encodes in fp32.
        seed: of all draws.
        overwrite: whether what was made from other inputs or settings is replaced.
        license: of the weights, for the card.

    Returns:
        `verdict`, `table`, `path`, and `retriever`, the directory of the best one; its index is inside where the
        budget had time for it.

    Raises:
        InputError: see `hf_dense.experiments.adaptation.run.adapt`.
    """
    options = {name: value for name, value in locals().items() if name != "docs"}
    from hf_dense.experiments.adaptation.options import AdaptOptions

    arguments = read_call("adapt", [docs], options)
    chosen = build_options(AdaptOptions, {}, given_flags(arguments, AdaptOptions))
    from hf_dense.experiments.adaptation.run import adapt

    with _without_loading_bars():
        found = adapt(chosen, command_line(arguments))
    return replace(found, path=found.path.absolute())


@checked
def pretrain(
    *,
    out: Place | None = None,
    config: Place | Sequence[Place] | None = None,
    method: str | None = None,
    corpus: Place | None = None,
    backbone: Place | None = None,
    backbone_config: Part | None = None,
    tokenizer: Place | None = None,
    vocab_size: int | None = None,
    text_column: str | None = None,
    streaming: bool | None = None,
    queries_per_passage: int | None = None,
    max_length: int | None = None,
    held_out: float | None = None,
    encoders: Part | None = None,
    decoders: Part | None = None,
    bottleneck: str | None = None,
    keywords: Place | None = None,
    chunk: int | None = None,
    group_by_length: bool | None = None,
    generator: Part | None = None,
    generator_weight: float | None = None,
    decoder_learning_rate: float | None = None,
    muon_learning_rate: float | None = None,
    probe: str | None = None,
    probe_steps: int | None = None,
    probe_patience: int | None = None,
    probe_keep_best: bool | None = None,
    precision: str | None = None,
    float32_matmul_precision: str | None = None,
    overwrite: bool = False,
    license: str | None = None,
    **trainer: Any,
) -> Training:
    """Pre-train an encoder on passages: `hf-dense pretrain`, whose flags the arguments are.

    Args:
        out: directory to write, with checkpoints; where the same training is complete there, nothing is done.
        config: recipes or YAML files; arguments win over them, and None leaves it to them.
        method, corpus, backbone: such as `retromae`; passages; what to start from, None for a new `backbone_config`.
        encoders, decoders, generator and the like: of the method; probe: a collection that is searched while training.
        **trainer: all else of `transformers.TrainingArguments`. What is not named is as the flags have it.

    Returns:
        The checkpoint, with the losses that were logged last, and its `history`.

    Raises:
        InputError: see `hf_dense.pretraining.pretrain.pretrain`.
    """
    options = {name: value for name, value in locals().items() if name not in ("config", "trainer")}
    from transformers import TrainingArguments

    from hf_dense.pretraining.pretrain import PretrainingOptions, pretrain

    refuse_unknown(trainer, [*options, *_trainers(TrainingArguments)], "pretrain")
    call = read_call("pretrain", [], {**options, **trainer}, config)
    given, training = read_options(call, PretrainingOptions, TrainingArguments)
    made = pretrain(without_aside(call, given), training, command_line(call))
    return Training(made.path, "pre-training", _last_figures(made.history), made.history)


@checked
def finetune(
    *,
    out: Place | None = None,
    config: Place | Sequence[Place] | None = None,
    model: Place | None = None,
    collection: Place | None = None,
    split: str | None = None,
    seed: int | None = None,
    measure_on: str | None = None,
    keep: Place | None = None,
    fraction: float | None = None,
    lists: Place | Sequence[Place] | None = None,
    passages: int | None = None,
    depth: int | None = None,
    dev_split: str | None = None,
    dev_pairs: int | None = None,
    overwrite: bool = False,
    **trainer: Any,
) -> Training:
    """Train a retriever, or several in stages, and measure each: `hf-dense finetune`, whose flags the arguments are.

    Args:
        out: directory to write; stages that are done there are not done again.
        config: recipes or YAML files; arguments win over them, and None leaves it to them.
        model: encoder or retriever to start from.
        collection: corpus, queries and judgements.
        split: judgements that are trained on.
        seed, measure_on: of all draws; split that is measured on.
        keep: another collection that is measured too: COLLECTION[:SPLIT].
        fraction: share of the training queries, of stages.
        lists: training lists, such as those of `mine`, joined where several; None trains on in-batch negatives.
        passages: of a list, the positive included.
        depth: negatives of a list that are drawn from.
        dev_split: split whose loss is logged when `eval_strategy` is set.
        dev_pairs: how many pairs of it.
        overwrite: whether what was made from other inputs or settings is replaced.
        **trainer: every other option of the Trainer, such as `max_steps`, `temperature` or `matryoshka`.

    Returns:
        The model's directory as `path`, to be given to SentenceTransformer; of stages, the directory of all.

    Raises:
        InputError: see `hf_dense.finetuning.biencoder.finetune` and `hf_dense.finetuning.pipeline.run_pipeline`.
    """
    options = {name: value for name, value in locals().items() if name not in ("config", "trainer")}
    from hf_dense.commands.finetune import train
    from hf_dense.finetuning.biencoder import BiencoderTrainingArguments
    from hf_dense.storage.checkpoints import load_history

    refuse_unknown(trainer, [*options, *_trainers(BiencoderTrainingArguments)], "finetune")
    if lists is not None:
        options["lists"] = as_list(lists)
        check_filled(lists=options["lists"])
    tuned = train(read_call("finetune", [], {**options, **trainer}, config))
    if [*tuned.models] == ["model"]:
        history = load_history(tuned.out)
        path, figures = tuned.models["model"], _last_figures(history)
        return Training(path, "fine-tuned retriever", figures, history, tuned.models, tuned.said)
    shown = {name: str(path) for name, path in tuned.models.items()}
    return Training(tuned.out, "stages of fine-tuning", shown, (), tuned.models, tuned.said)


@contextmanager
def _without_loading_bars() -> Iterator[None]:
    """No progress bars of weights that are read and written, which takes no time here."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _trainers(kind: Any) -> list[str]:
    """The options of a Trainer, without the directory, which is `out`."""
    return [option.name for option in fields(kind) if option.name != "output_dir"]


def _last_figures(history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The number of steps, and every loss as it was logged last."""
    found: dict[str, float] = {}
    for entry in history:
        found |= {name: value for name, value in entry.items() if name == "step" or name.endswith("loss")}
    return found
