"""Fine-tuning of a bi-encoder, on pairs or on lists of passages, by contrast and by distillation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    SimilarityFunction,
)
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch import Tensor, nn
from transformers import EarlyStoppingCallback, TrainerCallback, set_seed
from transformers.training_args import OptimizerNames

from hf_dense.errors import InputError
from hf_dense.finetuning.batches import ListCollator, ListSampler, PairSampler, SharedBatches
from hf_dense.finetuning.embedding import Features, embed
from hf_dense.finetuning.lamb import lamb
from hf_dense.finetuning.lists import GIVEN, PassageLists
from hf_dense.finetuning.losses import (
    CONTRASTS,
    DISTILLATIONS,
    contrastive_loss,
    cut_vectors,
    distillation_loss,
    keeping_loss,
    own_scores,
    relevant_passages,
)
from hf_dense.finetuning.training import (
    CarefulTraining,
    Epochs,
    SharedDefaults,
    check_evaluates,
    check_tuning,
    evaluator_sources,
    train_model,
)
from hf_dense.hub.dimensions import check_dimensions, dimensions_in_words
from hf_dense.hub.hybrid import save_hybrid
from hf_dense.hub.hybrid_head import HybridHead
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.retriever_settings import ROLES, length_of, settings_of
from hf_dense.hub.towers import check_tunable, project, two_encoders, untie
from hf_dense.search.fingerprints import retriever_source
from hf_dense.storage.batch_size import find_batch_size, is_auto
from hf_dense.storage.fingerprints import fingerprint_rows
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

_COLUMNS = ["query", "passage"]
_TASKS: Any = {"query": "query", "passage": "document"}  # of the columns
_JUDGED = ("numbers", "relevant")  # of a batch, beside its texts
_WITHOUT_DUPLICATES = ("no_duplicates", "no_duplicates_hashed")  # batch samplers of pairs
_LONG = 512  # tokens of a text, where a model takes any length
_TEMPERATURES = {SimilarityFunction.COSINE.value: 0.05, SimilarityFunction.DOT_PRODUCT.value: 1.0}


def _listed(choices: Mapping[str, str]) -> str:
    return "; ".join(f"{name}, {meaning}" for name, meaning in choices.items())


@dataclass
class BiencoderTrainingArguments(SharedDefaults, SentenceTransformerTrainingArguments):
    """Everything Sentence-Transformers' trainer takes, with defaults for in-batch negatives and a few more fields.

    `output_dir` receives the checkpoints, `trainer_state.json` (the loss history) and, at the end, `model/`.
    """

    temperature: float | None = field(
        default=None,
        metadata={
            "help": "Similarities are divided by this before the softmax; default 0.05 for cosines, 1 for dot products."
        },
    )
    contrast: str = field(default="in_batch", metadata={"help": f"Contrastive loss: {_listed(CONTRASTS)}."})
    distillation: str = field(default="none", metadata={"help": f"Loss beside it: {_listed(DISTILLATIONS)}."})
    contrast_weight: float | None = field(
        default=None, metadata={"help": "Weight of the contrastive loss; default 1, and 0.2 beside a distillation."}
    )
    keep_similarities: float = field(
        default=0.0,
        metadata={
            "help": "Weight of a loss against forgetting: a batch's texts stay as similar as the start model has them."
        },
    )
    matryoshka: list[int] | None = field(
        default=None,
        metadata={"help": "Numbers of first dimensions that vectors can be cut to: each is trained beside the whole."},
    )
    chunk: int | None = field(
        default=None,
        metadata={"help": "Texts embedded at once, for batches that memory cannot hold; gradients stay exact."},
    )
    patience: int | None = field(
        default=None, metadata={"help": "Stop after so many evaluations without a better one; needs an evaluator."}
    )
    untied: bool = field(
        default=False,
        metadata={"help": "Two encoders that share no weights, for queries and passages, both begun from the model."},
    )
    projection: bool = field(
        default=False, metadata={"help": "A new linear layer and norm behind the pooling, as SEED-Encoder's have."}
    )
    batch_sampler: str = field(
        default="no_duplicates",
        metadata={"help": "Of pairs: no_duplicates puts no text twice into a batch, no second pair of a query either."},
    )
    per_device_train_batch_size: int = field(
        default=64, metadata={"help": "Queries per device and step; auto finds how many the memory holds."}
    )
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Pairs per device in evaluation."})
    learning_rate: float = field(default=5e-5, metadata={"help": "Peak learning rate of AdamW, or of what optim says."})
    lamb: bool = field(
        default=False,
        metadata={"help": "LAMB in place of AdamW: steps in proportion to each matrix's norm, for large batches."},
    )
    dataloader_drop_last: bool = field(default=True, metadata={"help": "Drop a last batch with fewer negatives."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature is not None and not self.temperature > 0:
            raise InputError(f"temperature is {self.temperature}; it must be above 0.")
        for name, allowed in (("contrast", CONTRASTS), ("distillation", DISTILLATIONS)):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} is {getattr(self, name)!r}; allowed: {', '.join(allowed)}.")
        for name in ("keep_similarities", "contrast_weight"):
            if (weight := getattr(self, name)) is not None and not weight >= 0:
                raise InputError(f"{name} is {weight}; it is a weight, 0 or more.")
        if not all(isinstance(each, int) for each in self.matryoshka or ()):
            raise InputError(f"matryoshka is {self.matryoshka}; it is a list of whole numbers.")
        if self.lamb and (optim := OptimizerNames(self.optim).value) not in ("adamw_torch", "adamw_torch_fused"):
            raise InputError(f"lamb takes the place of AdamW, and optim is {optim}; leave one of them out.")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"patience is {self.patience}; at least one evaluation is waited for.")
        if self.patience is not None and (self.eval_strategy == "no" or self.metric_for_best_model is None):
            raise InputError(
                "patience counts evaluations without a better one; it needs eval_strategy, and load_best_model_at_end "
                "or metric_for_best_model."
            )
        if self.chunk is not None and self.chunk < 1:
            raise InputError(f"chunk is {self.chunk}; at least one text is embedded at once.")
        _given_prompts(self)


def finetune(
    model: str | Path | SentenceTransformer,
    data: Dataset | PassageLists,
    arguments: BiencoderTrainingArguments,
    *,
    origin: str = GIVEN,
    dev_pairs: Dataset | None = None,
    dev_origin: str = GIVEN,
    evaluator: BaseEvaluator | list[BaseEvaluator] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    output: Output | None = None,
) -> Path:
    """Train `model` so that a query is closer to its passage than to others.

    The similarity is the model's own (`similarity_fn_name`: dot or cosine). A training that is complete is not done
    again; one that was killed goes on from its newest checkpoint, and ends with the same weights.

    Args:
        model: an exported directory, a pre-training checkpoint, which is pooled where its bottleneck is, a Hub id of
            either, or a loaded model (which is then trained in place). Two encoders stay two.
        data: lists of passages, with the scores of a teacher where one is distilled; or pairs, one row per positive,
            columns `query` and `passage`. No two rows of a batch share a query or a positive passage.
        arguments: batch size, steps or epochs, learning rate, losses, seed, precision, ...: see the class. `prompts`, a
            text or those by `query` and `document` (or `passage`), take the place of the model's own, and are saved.
        origin, dev_origin: where pairs are from, for the card, such as `COLLECTION:SPLIT`; lists know it.
        dev_pairs: held-out pairs whose loss is logged when `eval_strategy` is `steps` or `epoch`.
        evaluator: of Sentence-Transformers, run then too; `load_best_model_at_end` keeps the best checkpoint by them.
        callbacks: of the Trainer; their `settings`, where they have any, are what they depend on.
        output: the directory, where the arguments do not say all of it.

    Returns:
        `output_dir/model`, complete or absent; the loss history is in `output_dir/trainer_state.json`.

    Raises:
        InputError: a column is absent, fewer pairs or texts than one batch, a loss whose negatives or scores are not
            there, nothing to load, dimensions that do not fit, a loss that is no number, or something else is there.
    """
    check_tuning(arguments)
    arguments = copy(arguments)  # some of them are set below, by the model
    lists, rows = data if isinstance(data, PassageLists) else None, training_rows(data, arguments)
    held_out = None if dev_pairs is None else _held_out(dev_pairs, arguments)
    check_evaluates(arguments, held_out is not None or bool(evaluator))
    set_seed(arguments.seed)
    start = load_retriever(model).float()  # steps are smaller than numbers of 16 bits are apart
    sources = {"model": retriever_source(start, model)}
    retriever = _retriever(start, arguments)
    loss = ListLoss(retriever, arguments)

    def make(chosen: BiencoderTrainingArguments = arguments) -> _BiencoderTrainer:
        given = {"train_dataset": rows, "eval_dataset": held_out, "evaluator": evaluator}
        return _BiencoderTrainer(lists, retriever, chosen, callbacks, loss=loss, **given)

    fit = partial(_batch_size, make, arguments, lists or rows, retriever, loss.chunk)
    settings = {type(callback).__name__: getattr(callback, "settings", {}) for callback in callbacks}
    settings |= lists.settings() if lists else {}
    sources |= lists.sources() if lists else {"pairs": _source(rows, origin)}
    sources |= ({"held-out pairs": _source(held_out, dev_origin)} if held_out else {}) | evaluator_sources(evaluator)
    form = "hybrid retriever" if isinstance(retriever[-1], HybridHead) else "retriever"
    made = settings, sources, make, partial(_save, retriever, arguments), fit
    return train_model(output, arguments, retriever, "fine-tuning", form, *made)


def _retriever(start: SentenceTransformer, arguments: BiencoderTrainingArguments) -> SentenceTransformer:
    """What is trained, from what is started from; the arguments take from it what they leave open."""
    check_tunable(start)
    retriever = shape(start, arguments)
    check_dimensions(arguments.matryoshka or (), retriever)
    retriever.prompts.update(_given_prompts(arguments))
    arguments.prompts = _prompts(retriever)
    arguments.router_mapping = _TASKS
    arguments.temperature = temperature_of(arguments, retriever)
    return retriever


def shape(model: SentenceTransformer, arguments: BiencoderTrainingArguments) -> SentenceTransformer:
    """The retriever that is trained: one's own, with a projection or as two encoders where these are wanted.

    Raises:
        InputError: it gives hybrid vectors.
    """
    if isinstance(model[-1], HybridHead) and (arguments.untied or arguments.projection):
        raise InputError("Hybrid vectors come of one encoder with a head of its own; leave untied and projection out.")
    if arguments.projection:
        model = project(model, arguments.seed)
    return untie(model) if arguments.untied else model


class _BiencoderTrainer(CarefulTraining, SentenceTransformerTrainer):
    """The trainer of Sentence-Transformers, with batches of lists."""

    def __init__(
        self,
        lists: PassageLists | None,
        model: SentenceTransformer,
        args: BiencoderTrainingArguments,
        callbacks: Sequence[TrainerCallback],
        **named: Any,
    ) -> None:
        self.lists = lists
        more: list[TrainerCallback] = [Epochs(lists)] if lists else []
        if args.patience is not None:
            more.append(EarlyStoppingCallback(early_stopping_patience=args.patience))
        pairs = [
            each for each in (named["train_dataset"], named["eval_dataset"]) if each and "passage" in each.column_names
        ]
        named["data_collator"] = ListCollator(
            preprocess_fn=model.preprocess, prompts=args.prompts, router_mapping=_TASKS, pairs=pairs
        )
        super().__init__(model=model, args=args, callbacks=[*more, *callbacks], **named)

    def get_optimizer_cls_and_kwargs(  # type: ignore[override]  # a method of Sentence-Transformers' trainer
        self, args: Any, model: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """The optimiser that is chosen, and its options."""
        kind, options = super().get_optimizer_cls_and_kwargs(args, model)
        return lamb(options) if args.lamb else (kind, options)

    def get_batch_sampler(self, dataset: Any, batch_size: int, drop_last: bool, *given: Any, **named: Any) -> Any:
        """Batches of lists without a query or a positive in common; of pairs, what `batch_sampler` says of a step."""
        processes = self.args.world_size if dataset is self.train_dataset else 1
        if self.lists is not None and dataset is self.train_dataset:
            return ListSampler(self.lists, batch_size, processes)
        make = PairSampler if self.args.batch_sampler in _WITHOUT_DUPLICATES else super().get_batch_sampler
        steps = make(dataset, batch_size * processes, drop_last, *given, **named)
        return steps if processes == 1 else SharedBatches(cast(DefaultBatchSampler, steps), batch_size)


class ListLoss(nn.Module):
    """The losses that were chosen, on the vectors of queries and of their passages.

    Vectors are those that the model makes: a `truncate_dim` of its own cuts them. With `matryoshka` each loss is the
    mean over these and those that are cut further. Source: Kusupati et al. 2022 (arXiv:2205.13147), equation 1 with all
    weights 1, over the number of dimensions.

    Args:
        model: the retriever.
        arguments: `contrast`, `distillation`, `contrast_weight`, `keep_similarities`, `matryoshka`, `temperature`,
            `chunk`.
    """

    def __init__(self, model: SentenceTransformer, arguments: BiencoderTrainingArguments) -> None:
        super().__init__()
        name = model.similarity_fn_name
        if name not in (SimilarityFunction.DOT_PRODUCT.value, SimilarityFunction.COSINE.value):
            raise InputError(f"The model's similarity is {name!r}; fine-tuning needs dot or cosine.")
        self.model = model
        self.cosine = name == SimilarityFunction.COSINE.value
        self.scale = 1.0 / temperature_of(arguments, model)
        self.contrast, self.distillation, self.chunk = arguments.contrast, arguments.distillation, arguments.chunk
        weight = arguments.contrast_weight
        self.weight = (1.0 if self.distillation == "none" else 0.2) if weight is None else weight
        self.keeping = arguments.keep_similarities
        self.dimensions = (model.truncate_dim, *(arguments.matryoshka or ()))
        # In a tuple it is no part of this module, whose parts are trained and wrapped for several processes.
        self.start: tuple[SentenceTransformer, ...] = (
            (deepcopy(model).eval().requires_grad_(False),) if self.keeping else ()
        )

    def forward(self, features: Sequence[Features], teacher: Tensor | None = None) -> dict[str, Tensor] | Tensor:
        """The loss.

        Args:
            features: token ids and masks of B queries, and of B x N passages, those of a query together and its
                positive first; of lists beside them `relevant` and `numbers` (see `relevant_passages`).
            teacher: (B, N) scores, where a teacher is distilled.

        Returns:
            The contrastive loss, or all losses by name, weighted; their sum is trained on.
        """
        queries, passages = self._embed_both(self.model, features)
        before = self._embed_before(features, queries.device) if self.keeping else None
        numbers = features[1].get("numbers")
        relevant = None if numbers is None else relevant_passages(numbers, features[0]["relevant"])
        cut = partial(cut_vectors, unit=self.cosine)
        found = [
            self._losses(cut(queries, kept), cut(passages, kept), teacher, before, relevant) for kept in self.dimensions
        ]
        losses = {name: torch.stack([losses[name] for losses in found]).mean() for name in found[0]}
        return losses if len(losses) > 1 else losses["contrast_loss"]

    def _losses(
        self,
        queries: Tensor,
        passages: Tensor,
        teacher: Tensor | None,
        before: Tensor | None,
        relevant: Tensor | None,
    ) -> dict[str, Tensor]:
        """All losses of vectors by name, weighted."""
        contrast = contrastive_loss(self.contrast, queries, passages, self.scale, relevant)
        losses = {"contrast_loss": self.weight * contrast}
        if self.distillation != "none":
            assert teacher is not None
            scores = own_scores(queries, passages, self.scale)
            losses["distillation_loss"] = distillation_loss(self.distillation, scores, teacher.to(scores.device))
        if before is not None:
            losses["keeping_loss"] = self.keeping * keeping_loss(_together(queries, passages), before)
        return losses

    @torch.no_grad()
    def _embed_before(self, features: Sequence[Features], device: torch.device) -> Tensor:
        """(R, D) vectors of all texts, by the model that training started from."""
        texts = _together(*self._embed_both(self.start[0].to(device), features))
        return cut_vectors(texts, self.dimensions[0], self.cosine)

    def _embed_both(self, model: SentenceTransformer, features: Sequence[Features]) -> tuple[Tensor, Tensor]:
        """(B, D) vectors of queries, and (B, N, D) of their passages."""
        texts = [{key: value for key, value in each.items() if key not in _JUDGED} for each in features]
        queries, passages = (
            embed(model, each, task, self.chunk) for each, task in zip(texts, ("query", "document"), strict=True)
        )
        return queries, passages.view(len(queries), -1, passages.shape[1])


def _together(queries: Tensor, passages: Tensor) -> Tensor:
    """(B + B N, D): queries, then passages."""
    return torch.cat([queries, passages.flatten(0, 1)])


def temperature_of(arguments: BiencoderTrainingArguments, model: SentenceTransformer) -> float:
    """The temperature that was chosen, or that suits the model's similarity.

    A softmax over cosines, which lie between -1 and 1, hardly tells passages apart at temperature 1.
    """
    return arguments.temperature or _TEMPERATURES.get(str(model.similarity_fn_name), 1.0)


def _given_prompts(arguments: BiencoderTrainingArguments) -> dict[str, str]:
    """The prompts of the arguments by their role, `query` or `document`, which `passage` is another name of.

    Raises:
        InputError: one is of nothing that is read here, or is no text.
    """
    given = arguments.prompts or {}
    if isinstance(given, str):
        return dict.fromkeys(ROLES, given)
    for name, prompt in given.items():
        if name not in (*ROLES, *_TASKS) or not isinstance(prompt, str):
            raise InputError(f"prompts has {name!r}: {prompt!r}; give the texts before each 'query' and 'document'.")
    if {"passage", "document"} <= given.keys():
        raise InputError("prompts has 'passage' and 'document', which are the same; leave one of them out.")
    return {_TASKS.get(name, name): str(prompt) for name, prompt in given.items()}


def _prompts(model: SentenceTransformer) -> dict[str, str]:
    """The model's prompts by the columns that they belong to."""
    return {column: model.prompts[role] or "" for column, role in _TASKS.items() if model.prompts.get(role)}


def _source(pairs: Dataset, origin: str) -> Source:
    return Source(origin, fingerprint_rows(pairs, _COLUMNS))


def _save(model: SentenceTransformer, arguments: BiencoderTrainingArguments, directory: Path) -> dict[str, Any]:
    if isinstance(model[-1], HybridHead):
        save_hybrid(model, directory)
        return settings_of(model).facts()
    model.save_pretrained(str(directory), create_model_card=False)
    facts = settings_of(model).facts()
    if two_encoders(model):
        facts["remarks"].append("Queries and passages are encoded by two encoders that share no weights.")
    if arguments.matryoshka and (full := model.get_embedding_dimension()):
        facts["dimensions"] = [full, *arguments.matryoshka]
        facts["remarks"].append(dimensions_in_words(arguments.matryoshka, full))
    return facts


def training_rows(data: Dataset | PassageLists, arguments: BiencoderTrainingArguments) -> Dataset:
    """What is trained on, when it has what the losses need and fills a batch.

    Args:
        data: columns `query` and `passage`, or lists.
        arguments: the losses, and the rows of a batch.

    Returns:
        The two columns, or the rows of the lists.

    Raises:
        InputError: it has not, or fills none.
    """
    option = "per_device_train_batch_size"
    size = 1 if is_auto(arguments) else arguments.per_device_train_batch_size * arguments.world_size
    if not is_auto(arguments) and size * getattr(data, "passages", 1) == 1:
        raise InputError(
            f"{option} is 1, and a step has one passage, which is to be told from no other; raise it, or give lists "
            "with negatives."
        )
    if not isinstance(data, PassageLists):
        check_losses(arguments, passages=1, scored=False)
        return _check_pairs(data, "pairs", arguments, size, option)
    check_losses(arguments, data.passages, data.scored)
    check_lists(arguments)
    if len(data) < size:
        raise InputError(f"There are {len(data)} lists, fewer than one batch of {size}; lower {option}.")
    return data.dataset(numbered=True)


def _batch_size(
    make: Callable[..., _BiencoderTrainer],
    arguments: BiencoderTrainingArguments,
    data: Dataset | PassageLists,
    retriever: SentenceTransformer,
    chunk: int | None,
) -> int:
    """The rows of a batch that fit, found by trying it with the longest ones."""
    longest, most = _longest_rows(data, retriever)
    return find_batch_size(make, arguments, longest, most // arguments.gradient_accumulation_steps, chunk)


def _longest_rows(
    data: Dataset | PassageLists, retriever: SentenceTransformer
) -> tuple[Callable[[int], list[dict[str, Any]]], int]:
    """Rows of the longest query and of passages that fill the model's length, as many as wanted; the largest batch.

    A batch of pairs has no query and no passage twice.
    """
    text = "a " * (length_of(retriever) or _LONG)
    if isinstance(data, PassageLists):
        row: dict[str, Any] = {"query": max((entry.query for entry in data.entries), key=len)}
        row["passages"] = [text] * data.passages
        row |= {"label": [0.0] * data.passages} if data.scored else {}
        return lambda size: [row] * size, len(data)
    queries, passages = (set(data[name]) for name in _COLUMNS)
    pair = {"query": max(queries, key=len), "passage": text}
    return lambda size: [pair] * size, min(len(queries), len(passages))


def check_losses(arguments: BiencoderTrainingArguments, passages: int, scored: bool) -> None:
    """Pass when lists of so many passages, with or without a teacher's scores, have what the losses need.

    Raises:
        InputError: they have not.
    """
    if arguments.contrast in ("own", "hinge") and passages < 2:
        raise InputError(f"contrast {arguments.contrast!r} compares a query's own passages; give lists with negatives.")
    if arguments.distillation != "none" and not scored:
        raise InputError(f"distillation {arguments.distillation!r} needs a teacher's scores; give scored lists.")


def check_lists(arguments: BiencoderTrainingArguments) -> None:
    """Raise `InputError` for what lists of passages cannot have."""
    if arguments.dataloader_num_workers:
        raise InputError("Lists are drawn by the training process; set dataloader_num_workers to 0.")
    if not arguments.dataloader_drop_last:
        raise InputError("Of lists only whole batches are trained on; leave dataloader_drop_last out.")


def _held_out(pairs: Dataset, arguments: BiencoderTrainingArguments) -> Dataset:
    """Pairs whose loss can be had."""
    try:
        check_losses(arguments, passages=1, scored=False)
    except InputError as error:
        raise InputError(f"Held-out pairs have no such loss; leave eval_strategy out. {error}") from error
    option = "per_device_eval_batch_size"
    return _check_pairs(pairs, "dev_pairs", arguments, getattr(arguments, option), option)


def _check_pairs(pairs: Dataset, name: str, arguments: BiencoderTrainingArguments, size: int, option: str) -> Dataset:
    """The two columns of pairs, when they fill a batch, which `no_duplicates` fills with different texts."""
    if not isinstance(pairs, Dataset):
        raise InputError(f"{name} is of the type {type(pairs).__name__}; give a Dataset, as from Dataset.from_list.")
    missing = [column for column in _COLUMNS if column not in pairs.column_names]
    if missing:
        raise InputError(f"{name} has no column {missing[0]!r}; its columns are {', '.join(pairs.column_names)}.")
    if len(pairs) < size:
        raise InputError(f"{name} has {len(pairs)} rows, fewer than one batch of {size}; lower {option}.")
    if arguments.dataloader_drop_last and arguments.batch_sampler in _WITHOUT_DUPLICATES:
        for column, plural in zip(_COLUMNS, ("queries", "passages"), strict=True):
            if (found := _count_different(pairs[column], size)) < size:
                raise InputError(
                    f"{name} has {found} different {plural}, and a batch of {size} has none twice; lower {option}."
                )
    return pairs.select_columns(_COLUMNS)


def _count_different(texts: Iterable[str], most: int) -> int:
    """How many texts differ, as far as `most`; no more are read than it takes."""
    seen = set[str]()
    for text in texts:
        seen.add(text)
        if len(seen) == most:
            break
    return len(seen)
