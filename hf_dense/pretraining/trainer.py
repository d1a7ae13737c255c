"""`Trainer` for every method: exact token means, each loss logged on its own, masks that survive a resume."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import send_to_device
from datasets import Dataset
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import EvalLoopOutput

from hf_dense.errors import InputError
from hf_dense.modeling.bottleneck_layout import counted
from hf_dense.modeling.bottleneck_losses import IGNORED
from hf_dense.modeling.bottleneck_plan import Plan
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.pretraining.collator import ViewCollator, Views, cut, size_of
from hf_dense.pretraining.gap import BottleneckGap, is_due
from hf_dense.pretraining.muon import Muon, matrices_of
from hf_dense.pretraining.sampler import PassageSampler, SiblingSampler
from hf_dense.pretraining.sharding import choose_layers, open_shards
from hf_dense.pretraining.soundness import STEP_FILE, Soundness, check_weights, write_step
from hf_dense.pretraining.stream import PassageStream, StreamCollator
from hf_dense.pretraining.throughput import Throughput
from hf_dense.storage.batch_size import is_auto
from hf_dense.storage.steady_draws import SteadyDraws
from hf_dense.storage.training_values import PlainRefusals, check_meant

Batch = dict[str, Any]  # what `ViewCollator` gives
Counts = Mapping[str, Tensor]
RandomState = tuple[Tensor, list[Tensor]]

_UNREAD = ("compute_metrics", "preprocess_logits_for_metrics", "compute_loss_func")  # of the Trainer's arguments
_EVALUATION_EPOCH = -1  # held-out texts are masked the same way at every evaluation


class PreTrainer(SteadyDraws, PlainRefusals, Trainer):
    """Trains a `BottleneckForPreTraining` on rows of token ids.

    Every token loss is divided by the number of scored tokens in the whole step (all processes, all accumulated
    batches), so the same step gives the same loss and gradient however it is cut up.

    Args:
        model: the model.
        args: `TrainingArguments`; `remove_unused_columns` must be False.
        collator: renders the views.
        train_dataset: rows with one array of token ids per source, and `length`; or a stream.
        eval_dataset: held-out rows, or None.
        chunk: texts that a contrasting method reads at once: a larger batch is cut into such chunks, with the gradients
            of the whole (gradient caching), so that one device can train with thousands of texts.
        decoder_learning_rate: peak rate of all parameters but the encoder's; by default that of `args`.
        muon_learning_rate: peak rate of the matrices of layers, where `Muon` is to move them, and AdamW all else.
        group_by_length: whether the rows of a step have similar lengths (a stream decides on its own).
        kwargs: passed on to `Trainer`.

    Raises:
        InputError: settings that would give silently wrong results.
    """

    model: BottleneckForPreTraining
    loss_is_scaled_for_ga = True  # `get_batch_samples` counts over all accumulated batches

    def __init__(
        self,
        model: BottleneckForPreTraining,
        args: TrainingArguments,
        collator: ViewCollator,
        train_dataset: Dataset | PassageStream,
        eval_dataset: Dataset | None = None,
        chunk: int | None = None,
        decoder_learning_rate: float | None = None,
        muon_learning_rate: float | None = None,
        group_by_length: bool = True,
        **kwargs: Any,
    ) -> None:
        check_arguments(model, args, chunk, isinstance(train_dataset, PassageStream))
        _check_rows(train_dataset, model)
        if unread := [name for name in _UNREAD if kwargs.get(name) is not None]:
            raise InputError(
                f"{unread[0]} does nothing here: the loss is the model's own, and there are no predictions."
            )
        args.logging_nan_inf_filter = False  # a loss that is no number ends the training; to look for it is to wait
        if muon_learning_rate is not None:
            kwargs["optimizer_cls_and_kwargs"] = Muon, self.get_optimizer_cls_and_kwargs(args)[1]
        compiled = {"backend": args.torch_compile_backend, "mode": args.torch_compile_mode}
        args.torch_compile_backend = args.torch_compile_mode = None  # accelerate would compile whole steps, ever anew
        super().__init__(
            model=model,
            args=args,
            data_collator=collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            **kwargs,
        )
        args.torch_compile_backend, args.torch_compile_mode = compiled.values()
        if args.torch_compile:
            model.compile_parts(**compiled)
        choose_layers(self, model, chunk, muon_learning_rate is not None)
        self.accelerator.dataloader_config.non_blocking = args.dataloader_pin_memory
        self.collator = collator
        self.collator.chunk = chunk
        self.chunk = chunk
        self.decoder_learning_rate = decoder_learning_rate
        self.muon_learning_rate = muon_learning_rate
        self.group_by_length = group_by_length
        self.sampler: PassageSampler | None = None
        self._shares: defaultdict[str, float | Tensor] = defaultdict(float)
        self._evaluated: defaultdict[str, Tensor] = defaultdict(lambda: torch.zeros(2, device=args.device))
        self._logged_step = 0
        self._soundness = Soundness(args.device)
        self._gap = BottleneckGap()
        self._throughput = Throughput(list(model.config.encoder_specs), args.device)
        self.add_callback(_EpochCallback(self))
        self.add_callback(self._throughput)

    def train(self, *given: Any, **named: Any) -> Any:
        """The Trainer's; a stream passes over what was read itself, without tokenizing it."""
        check_contrast(self.model, self.args)
        self.args.ignore_data_skip = isinstance(self.train_dataset, PassageStream)
        try:
            return super().train(*given, **named)
        finally:
            self.args.ignore_data_skip = False

    def create_optimizer(self, *given: Any) -> Optimizer:
        """The Trainer's, with rates of their own for what is not the encoder, or for what Muon moves, where chosen."""
        optimizer: Optimizer = super().create_optimizer(*given)
        if self.decoder_learning_rate is not None:
            encoder = {id(parameter) for parameter in self.model.encoder.parameters()}  # with what is tied to it
            others = [parameter for parameter in self.model.parameters() if id(parameter) not in encoder]
            set_apart(optimizer, others, lr=self.decoder_learning_rate)
        if self.muon_learning_rate is not None:
            set_apart(optimizer, matrices_of(self.model), lr=self.muon_learning_rate, muon=True)
        return optimizer

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches of texts in a random order, of similar length where that is wanted."""
        per_device = self.args.train_batch_size
        step = per_device * self.args.world_size * self.args.gradient_accumulation_steps
        rows: Any = self.train_dataset
        if isinstance(rows, PassageStream):
            rows.cut(per_device, step, self.args.process_index, self.args.world_size)
            tokenizer: Any = self.processing_class
            render: Any = StreamCollator(self.collator, tokenizer)
            return DataLoader(
                rows,
                batch_size=None,
                collate_fn=render,
                num_workers=self.args.dataloader_num_workers,
                pin_memory=self.args.dataloader_pin_memory,
                generator=torch.Generator(),  # its own, as a resumed run begins to read with dropout's draws restored
            )
        self.sampler = self._sampler(rows, step)
        loader: DataLoader[Any] = DataLoader(
            rows.select_columns(self.model.config.sources),
            batch_size=per_device,
            sampler=self.sampler,
            collate_fn=self.collator,
            drop_last=self.args.dataloader_drop_last,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )
        return self.accelerator.prepare(loader)  # type: ignore[no-any-return]

    def _sampler(self, rows: Dataset, step: int) -> PassageSampler:
        """The order of the rows, `step` to a step."""
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        if not self.model.config.siblings:
            return PassageSampler(rows["length"][:], step, seed, self.group_by_length)
        sampler = SiblingSampler(rows["length"][:], rows["document"][:], step, seed, self.group_by_length)
        if len(sampler) == 0:
            raise InputError(
                f"{self.model.config.model_type} reads {step // 2} documents of several passages in a step, and the "
                "corpus has fewer; lower per_device_train_batch_size or give longer documents."
            )
        return sampler

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Held-out batches, masked the same way at every evaluation."""
        self.data_collator = copy(self.collator)
        self.data_collator.epoch, self.data_collator.chunk = _EVALUATION_EPOCH, None
        rows: Any = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(rows, Dataset):
            if self.model.config.siblings:
                rows = rows.select(list(SiblingSampler(rows["length"][:], rows["document"][:], 2, self.args.seed)))
            rows = rows.select_columns(self.model.config.sources)
        dropping, self.args.dataloader_drop_last = self.args.dataloader_drop_last, False  # which is of training alone
        try:
            return super().get_eval_dataloader(rows)
        finally:
            self.data_collator, self.args.dataloader_drop_last = self.collator, dropping

    def get_batch_samples(
        self, epoch_iterator: Iterator[Batch], num_batches: int, device: torch.device
    ) -> tuple[list[Batch], Any]:
        """The batches of a step, and each loss's scored tokens over all of them and all processes, per process."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches:
            return batches, None
        batches = send_to_device(batches, device, non_blocking=self.accelerator.non_blocking)  # a stream's are not yet
        size = self.args.train_batch_size
        if self.sampler is not None and not self.args.dataloader_drop_last:
            left = len(self.sampler) % (size * self.accelerator.num_processes)
            if self._repeats(left):
                batches[-1] = self.collator.planned(self._without_repeats(batches[-1]["views"], size, left))
        counted = [self.model.count_scored(batch["views"]) for batch in batches]
        names = list(counted[0])
        total = torch.stack([torch.stack([count[name] for count in counted]).sum() for name in names]).to(device)
        share = self.accelerator.reduce(total, "mean").clamp(min=1 / self.args.world_size)
        return batches, dict(zip(names, share, strict=True))

    def training_step(self, *given: Any, **named: Any) -> Tensor:
        """One step; a loss that is no number ends the training: on a GPU, which is not waited for, at the next log."""
        loss = super().training_step(*given, **named)
        self._soundness.watch(loss, self.state.global_step + 1)
        if loss.device.type == "cpu":
            self._end_unless_sound()
        return loss

    def save_model(self, *given: Any, **named: Any) -> None:
        """The Trainer's, of numbers only."""
        self._end_unless_sound()
        check_weights(self.model, self.state.global_step)
        super().save_model(*given, **named)

    def _end_unless_sound(self) -> None:
        """Raise `InputError`, with what was read in a file, where a loss was no number."""
        if step := self._soundness.first_step:
            reason = f"The loss is no number at step {step}; lower learning_rate, and train anew."
            if isinstance(self.train_dataset, Dataset) and self.sampler is not None:
                path = Path(str(self.args.output_dir)) / STEP_FILE
                loader: Any = self.callback_handler.train_dataloader
                steps = -(-len(loader) // self.args.gradient_accumulation_steps)
                write_step(path, step, steps, self.train_dataset, self.sampler, cast(Any, self.processing_class))
                reason += f" What that step read is in {path}."
            raise InputError(reason)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The loss of a batch; its parts are kept for the log."""
        views: Views = inputs["views"]
        if model.training:
            self._throughput.read(views)
            self._gap.read(inputs, self.chunk)
        if model.training and self.chunk is not None and size_of(views) > self.chunk:
            return self._chunked_loss(model, views, inputs["chunks"], num_items_in_batch)
        output = model(views, counts=num_items_in_batch, plan=inputs["plan"])
        if model.training:
            self._remember(output.losses)
        return (output.loss, output) if return_outputs else output.loss

    def _remember(self, losses: Mapping[str, Tensor]) -> None:
        for name, value in losses.items():
            self._shares[name] += value.detach()

    def _chunked_loss(self, model: nn.Module, views: Views, plans: Sequence[Plan], counts: Counts | None) -> Tensor:
        """The loss of a batch that is read in chunks; contrast is over the whole batch, with exact gradients.

        A first pass without gradient gives all bottlenecks, the contrastive loss on them the gradient of each. A second
        pass, with the same dropout, sends that gradient on through every chunk, together with the chunk's token losses.
        All chunks but the last, which the Trainer takes backwards, are taken backwards here. Source: Gao, Zhang, Han
        and Callan, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup" (2021), arXiv:2101.06983.
        """
        assert self.chunk is not None
        counts = self.model.count_scored(views) if counts is None else counts
        chunks = cut(views, self.chunk)
        states, bottlenecks = self._read_ahead(chunks, plans)
        pulls, total = self._contrast(bottlenecks, views, counts)
        done = 0
        for chunk, plan, state in zip(chunks[:-1], plans, states, strict=False):
            with torch.random.fork_rng(), self.accelerator.no_sync(model):
                _set_random_state(state)
                loss, value = self._chunk_loss(model, chunk, plan, counts, pulls, done)
                self.accelerator.backward(loss)
            total = total + value
            done += len(chunk[next(iter(pulls))]["labels"])
        with torch.random.fork_rng():
            _set_random_state(states[-1])
            loss, value = self._chunk_loss(model, chunks[-1], plans[-1], counts, pulls, done)
        return loss + (total + value - loss.detach())  # the whole batch's value, this chunk's gradient

    @torch.no_grad()
    def _read_ahead(
        self, chunks: Sequence[Views], plans: Sequence[Plan]
    ) -> tuple[list[RandomState], dict[str, Tensor]]:
        """The random state before each chunk, and by encoder the bottlenecks of all texts, (batch, dim)."""
        states, parts = [], []
        for chunk, plan in zip(chunks, plans, strict=True):
            states.append(_random_state())
            parts.append(self.model.read_bottlenecks(chunk, plan))
        return states, {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _contrast(
        self, bottlenecks: Mapping[str, Tensor], views: Views, counts: Counts
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The gradients of the contrastive losses by encoder, (batch, dim), and these losses' weighted sum."""
        pulls: dict[str, Tensor] = {}
        total = torch.zeros((), device=self.args.device)
        for name, encoder in self.model.config.contrasts.items():
            whole, weight = bottlenecks[encoder].requires_grad_(), self.model.config.weights[name]
            loss = self.model.contrast(whole, counted(views[encoder])) / counts[name]
            (gradient,) = torch.autograd.grad(weight * loss, whole)
            pulls[encoder] = pulls.get(encoder, 0) + gradient
            self._remember({name: loss})
            total = total + weight * loss.detach()
        return pulls, total

    def _chunk_loss(
        self,
        model: nn.Module,
        chunk: Views,
        plan: Plan,
        counts: Counts,
        pulls: Mapping[str, Tensor],
        done: int,
    ) -> tuple[Tensor, Tensor]:
        """What is taken backwards of a chunk, the `done`-th text first: its gradient is exact; its token losses."""
        output = model(chunk, counts=counts, plan=plan)
        weights, contrasts = self.model.config.weights, self.model.config.contrasts
        tokens = {name: value for name, value in output.losses.items() if name not in contrasts}
        self._remember(tokens)
        loss = torch.stack([weights[name] * value for name, value in tokens.items()]).sum()
        value = loss.detach()
        for encoder, pull in pulls.items():
            rows = output.bottlenecks[encoder]
            loss = loss + (rows * pull[done : done + len(rows)]).sum()
        return loss, value

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        """Batches to predict on: held-out ones."""
        return self.get_eval_dataloader(test_dataset)

    def evaluation_loop(self, *given: Any, **named: Any) -> EvalLoopOutput:
        """The Trainer's, with every loss on its own and the exact token means of all."""
        self._evaluated.clear()  # of an evaluation that was stopped
        output: EvalLoopOutput = super().evaluation_loop(*given, **named)
        prefix = named.get("metric_key_prefix", "eval")
        losses = {}
        for name in sorted(self._evaluated):
            total, count = self.accelerator.reduce(self._evaluated[name], "sum").tolist()
            losses[name] = total / max(count, 1)
        if output.metrics is not None and losses:
            weights = self.model.config.weights
            output.metrics[f"{prefix}_loss"] = sum(weights[name] * loss for name, loss in losses.items())
            output.metrics.update({f"{prefix}_{name}_loss": loss for name, loss in losses.items()})
        return output

    def prediction_step(
        self, model: nn.Module, inputs: Batch, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The loss of a held-out batch; sums and counts are kept so that the evaluation's token means are exact."""
        with torch.no_grad(), self.compute_loss_context_manager():
            views, plan, left = inputs["views"], inputs["plan"], self.accelerator.gradient_state.remainder
            if self._repeats(left):
                views, plan = self._without_repeats(views, self.args.eval_batch_size, left), None
            output = model(views, plan=plan)
        for name, count in self.model.count_scored(views).items():
            self._evaluated[name] += torch.stack([output.losses[name] * count, count]).to(self.args.device)
        return output.loss.detach(), None, None

    def _repeats(self, left: int) -> bool:
        """Whether the batch that was read last has rows that are in another one too: accelerate repeats some so that
        every process has a full last batch, where `left` rows are left for it on all processes."""
        several = self.accelerator.num_processes > 1
        return several and left > 0 and self.accelerator.gradient_state.end_of_dataloader

    def _without_repeats(self, views: Views, size: int, left: int) -> Views:
        """Do not count the rows that are repeated in a last batch of `size` rows, of which `left` are left for all."""
        real = min(max(left - self.accelerator.process_index * size, 0), size)
        for view in views.values():
            texts = torch.arange(len(view["labels"]), device=view["labels"].device)
            view["counted"] = texts < real * len(texts) // size
            view["labels"].masked_fill_(~view["counted"][:, None], IGNORED)
            if "uniform" in view:
                view["uniform"].masked_fill_(~view["counted"][:, None], -1.0)  # where nothing is drawn
        return views

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add every loss on its own, averaged over processes and the steps since the last log, their speed, and the
        bottleneck gap of every decoder."""
        self._end_unless_sound()
        if "loss" in logs:
            steps = max(self.state.global_step - self._logged_step, 1)
            for name in sorted(self._shares):
                share = torch.as_tensor(self._shares[name], device=self.args.device)
                logs[f"{name}_loss"] = self.accelerator.reduce(share, "mean").item() / steps
            if is_due(self._logged_step, self.state.global_step):
                logs |= self._gap.measure(self)
            logs |= self._throughput.rates(self.accelerator)
            self._shares.clear()
            self._logged_step = self.state.global_step
        super().log(logs, start_time)

    def floating_point_ops(self, inputs: Batch) -> int:
        """Operations of a step, at most: 6 per encoder parameter and position of its views, padding among them, as to
        leave it out a GPU would have to be waited for."""
        parameters: int = self.model.encoder.num_parameters(exclude_embeddings=True)
        tokens: int = sum(inputs["views"][name]["input_ids"].numel() for name in self.model.config.encoder_specs)
        return 6 * tokens * parameters


def check_arguments(
    model: BottleneckForPreTraining, args: TrainingArguments, chunk: int | None, streaming: bool
) -> None:
    """Raise `InputError` for settings that would give silently wrong results, or that a stream cannot have."""
    name, contrasts = model.config.model_type, model.config.contrasts
    if not any(model.config.weights.values()):
        raise InputError("All losses have the weight 0, so nothing would be learnt; give one a weight above 0.")
    if args.n_gpu > 1:
        raise InputError("One process would drive several GPUs; start with `accelerate launch`, one process per GPU.")
    if args.dataloader_persistent_workers:
        raise InputError("dataloader_persistent_workers would freeze the masks of the first epoch; leave it off.")
    check_meant(args)
    if args.auto_find_batch_size:
        raise InputError(
            "auto_find_batch_size would try the same batch again and again; say --per_device_train_batch_size auto."
        )
    if args.use_liger_kernel:
        raise InputError("use_liger_kernel knows none of the models here; leave it off.")
    if args.train_sampling_strategy != "random":
        raise InputError(
            f"train_sampling_strategy is {args.train_sampling_strategy!r}, but texts are read in random orders here; "
            "say --group_by_length true or false for batches of texts of similar or of all lengths."
        )
    if contrasts and args.gradient_accumulation_steps > 1:
        raise InputError(
            f"{name} contrasts the texts of a batch, which gradient_accumulation_steps would cut up; leave it at 1, "
            "set per_device_train_batch_size, and let --chunk bound what is read at once."
        )
    odd = (not is_auto(args) and args.per_device_train_batch_size % 2) or args.per_device_eval_batch_size % 2
    if model.config.siblings and odd:
        raise InputError(f"{name} reads texts in pairs; batch sizes must be even.")
    if chunk is not None and (not contrasts or chunk < 2 or chunk % 2):
        which = "" if contrasts else f", which {name} does not"
        raise InputError(f"chunk is {chunk}: it is an even number of texts, for methods that contrast them{which}.")
    if chunk is not None and len({len(view.sources) for view in model.config.views.values()}) > 1:
        raise InputError("chunk cuts all views of a batch alike, and some read more sources than others; leave it out.")
    if streaming:
        _check_streaming(model, args)


def check_contrast(model: BottleneckForPreTraining, args: TrainingArguments) -> None:
    """Raise `InputError` where a step has one pair, whose contrast is 0."""
    size = args.per_device_train_batch_size
    if model.config.contrasts and not is_auto(args) and size * args.world_size == 1 + model.config.siblings:
        raise InputError(
            f"{model.config.model_type} contrasts the texts of a step, and with per_device_train_batch_size {size} a "
            "text has its partner alone, and nothing to be told from; raise it."
        )


def _check_rows(rows: Any, model: BottleneckForPreTraining) -> None:
    """Raise `InputError` unless what is trained on is rows with all columns that are read, or a stream."""
    if isinstance(rows, PassageStream):
        return
    if not isinstance(rows, Dataset):
        found = f"it is of the type {type(rows).__name__}"
    else:
        read = [*model.config.sources, "length", *(["document"] if model.config.siblings else [])]
        missing = [column for column in read if column not in rows.column_names]
        if not missing:
            return
        found = f"it has no column {missing[0]!r}, but {', '.join(rows.column_names)}"
    raise InputError(
        f"train_dataset is to be what `tokenize` of hf_dense.pretraining.corpus makes, or a PassageStream: {found}."
    )


def _check_streaming(model: BottleneckForPreTraining, args: TrainingArguments) -> None:
    """Raise `InputError` for what a stream cannot give."""
    if model.config.siblings:
        raise InputError(
            f"{model.config.model_type} draws two passages of a document, from anywhere in the corpus; leave out "
            "--streaming."
        )
    if args.max_steps <= 0:
        raise InputError("A streamed corpus has no length that is known; say --max_steps.")
    if args.dataloader_num_workers > 1:
        raise InputError("A streamed corpus is read in one order; set dataloader_num_workers to 0 or 1.")


def _random_state() -> RandomState:
    """State of the random generators that dropout draws from."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def _set_random_state(state: RandomState) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])


def set_apart(optimizer: Optimizer, parameters: Sequence[nn.Parameter], **settings: Any) -> None:
    """Give some parameters of an optimiser groups of their own.

    Args:
        optimizer: before its first step.
        parameters: some of its.
        settings: of their groups; all others stay as they were.
    """
    chosen = {id(parameter) for parameter in parameters}
    for group in list(optimizer.param_groups):
        apart = [parameter for parameter in group["params"] if id(parameter) in chosen]
        if apart and len(apart) < len(group["params"]):
            group["params"] = [parameter for parameter in group["params"] if id(parameter) not in chosen]
            optimizer.add_param_group({**group, "params": apart, **settings})
        elif apart:
            group.update(settings)


class _EpochCallback(TrainerCallback):
    """Tells the collator and the sampler which epoch begins (also when a run is resumed)."""

    def __init__(self, trainer: PreTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.trainer._logged_step = state.global_step
        open_shards(self.trainer.model)
        if isinstance(self.trainer.train_dataset, PassageStream):
            self.trainer.train_dataset.skip = state.global_step * args.gradient_accumulation_steps

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if isinstance(self.trainer.train_dataset, PassageStream):  # it has no end: the share of the run
            state.epoch = state.global_step / state.max_steps

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        epoch = int((state.epoch or 0) + 1e-6)
        self.trainer.collator.epoch = epoch
        if self.trainer.sampler is not None:
            self.trainer.sampler.set_epoch(epoch)
