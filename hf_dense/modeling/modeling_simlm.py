"""SimLM: replaced language modelling through a bottleneck, with an ELECTRA-style generator.

Wang, Yang, Huang, Jiao, Yang, Jiang, Majumder and Wei, "SimLM: Pre-training with Representation Bottleneck for Dense
Passage Retrieval" (ACL 2023), arXiv:2207.02578.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN

from .bottleneck_backbones import Shape
from .bottleneck_declaration import Decoder, Encoder, View
from .bottleneck_generator import Predictions, predict, runner_of
from .bottleneck_plan import DRAWN, Plan, Reading, read_view
from .bottleneck_precision import filled, single_dtype, unfilled
from .configuration_bottleneck import BottleneckConfig, Json, resolved
from .modeling_bottleneck import BottleneckForPreTraining, PreTrainingOutput, Views, model_classes


class SimLMConfig(BottleneckConfig):
    """30 % of the encoder's tokens and a superset, 50 % of the decoder's, are replaced by what a generator draws; both
    sides predict the original token everywhere. The two-layer decoder starts as a copy of the last two layers.

    Args:
        generator_config: configuration of the generator, a masked language model with the encoder's vocabulary.
        generator_weight: 0 keeps the generator as it is (the default of paper and code); otherwise it is trained too,
            its own loss (on the encoder's view, which it fills) having this weight; the released code has 0.2.

    A frozen generator is always in evaluation mode here; in the released code its dropout is active, as the Trainer
    switches the whole model to training mode. Draws are made in float32. The release reads title and text:
    `{"view": {"sources": ["titled"]}}` for encoder and decoder; the default needs no titles.

    The other objectives of the paper's Table 7, as changes to the views of encoder and decoder:

    - Enc-Dec MLM: `{"fill": "mask", "labels": "hidden"}` for both (no generator is used);
    - MLM: the same for the encoder, and `decoders={"decoder": None}`;
    - Enc-Dec RTD: `{"labels": "replaced"}` for both: which tokens did the generator replace?
    - AutoEncoder: `encoders={"encoder": {"weight": 0.0, "view": {"select": "none"}}}` and
      `decoders={"decoder": {"view": {"select": "random", "rate": 1.0, "fill": "mask"}}}`;
    - Condenser: the method `condenser` with rate 0.30.
    """

    model_type = "simlm"
    has_generator = True
    sub_configs: ClassVar[dict[str, type[AutoConfig]]] = {"backbone_config": AutoConfig, "generator_config": AutoConfig}
    declared_encoders = {"encoder": Encoder(View(rate=0.30, fill="generator", labels="every"))}
    declared_decoders = {
        "decoder": Decoder(View(select="superset", rate=0.50, fill="generator", labels="every"), init="last_layers")
    }

    generator_config: Json | PreTrainedConfig | None = None
    generator_weight: float = 0.0

    def __post_init__(self, **kwargs: object) -> None:
        if self.generator_config is not None:
            self.generator_config = self._part("generator_config", "electra")
        if not 0 <= self.generator_weight < math.inf:
            raise ValueError(f"generator_weight is {self.generator_weight}; a loss weight is finite and not negative.")
        super().__post_init__(**kwargs)

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss in the sum, by name; `generator` is there when it is trained."""
        return super().weights | ({"generator": self.generator_weight} if self.generator_weight else {})

    @resolved
    def needs_generator(self) -> bool:
        """Whether a view is filled by a generator."""
        return any(view.fill == "generator" and view.select != "none" for view in self.views.values())

    @resolved
    def teaching(self) -> list[str]:
        """The encoders whose views a generator fills, and is trained on where it has a weight."""
        filled = {name: spec.view for name, spec in self.encoder_specs.items() if spec.view.fill == "generator"}
        return [name for name, view in filled.items() if view.select != "none"]

    @resolved
    def detects(self) -> bool:
        """Whether replaced tokens are to be told from original ones."""
        return any(view.labels == "replaced" for view in self.views.values())


SimLMModel, _ = model_classes(SimLMConfig)


class Detector(nn.Module):
    """Scores how likely a token is to be a replacement (the head of ELECTRA's discriminator)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.hidden, shape.hidden)
        self.activation = ACT2FN[shape.head_activation]
        self.output = nn.Linear(shape.hidden, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """(n, dim) states -> (n,) log-odds."""
        odds: Tensor = self.output(self.activation(self.dense(filled(hidden))))
        return unfilled(odds.squeeze(-1), len(hidden))


class SimLMForPreTraining(BottleneckForPreTraining):
    """SimLM's encoder, head and decoder, and the generator that travels with them."""

    config: SimLMConfig
    config_class = SimLMConfig

    def __init__(self, config: SimLMConfig) -> None:
        super().__init__(config)
        self.teaching = config.teaching  # read here, as the compiled step cannot
        self.detector: Detector | None = None
        if config.detects:
            self.detector = Detector(self.family.shape(config.backbone))
        self.generator: PreTrainedModel | None = None
        if config.generator_config is not None:
            self.set_generator(AutoModelForMaskedLM.from_config(config.generator_config))
            self.post_init()  # type: ignore[no-untyped-call]

    def set_generator(self, generator: PreTrainedModel) -> None:
        """Use `generator`, a masked language model; what is not to be trained is frozen, which loading undoes.

        Raises:
            ValueError: its vocabulary is not the encoder's.
        """
        if generator.config.vocab_size != self.config.vocab_size:
            raise ValueError(
                f"The generator has {generator.config.vocab_size} tokens, the encoder {self.config.vocab_size}; they "
                "must share a tokenizer."
            )
        self.config.generator_config = generator.config
        self.generator = generator
        self.generator_runner = runner_of(generator)
        generator.requires_grad_(self.config.generator_weight > 0)
        self.head.requires_grad_(any(view.labels != "replaced" for view in self.config.views.values()))
        self.train(self.training)

    def train(self, mode: bool = True) -> SimLMForPreTraining:
        """Training mode for all but a frozen generator."""
        super().train(mode)
        if self.generator is not None and not self.config.generator_weight:
            self.generator.eval()
        return self

    def forward(
        self,
        views: Views,
        counts: Mapping[str, Tensor] | None = None,
        plan: Plan | None = None,
    ) -> PreTrainingOutput:
        """One pre-training step.

        Args:
            views: as for any method; a view with `uniform` (batch, length) holds [MASK] where the generator is to draw
                a token, by a number in [0, 1), and -1 elsewhere. Without it `input_ids` are read as they are.
            counts, plan: see `BottleneckForPreTraining.forward`.

        Returns:
            The loss, its parts by name, and the bottlenecks.

        Raises:
            ValueError: there is no generator to draw with.
        """
        counts = self.count_scored(views) if counts is None else counts
        plan = self.plan(views) if plan is None else plan
        filled, predicted = self._fill(views, plan)
        output = super().forward(filled, counts, plan)
        filled_in = [(name, plan.views[name].drawn) for name in self.teaching]
        drawn = {name: places for name, places in filled_in if places is not None}
        if self.config.generator_weight and drawn:
            assert output.loss is not None
            assert output.losses is not None
            labels = {name: views[name]["labels"].flatten().index_select(0, read.at) for name, read in drawn.items()}
            total = torch.stack([predicted[name].loss(targets) for name, targets in labels.items()]).sum()
            loss = total / counts["generator"].clamp(min=1e-6)
            output.losses["generator"] = loss
            output.loss = output.loss + self.config.generator_weight * loss
        return output

    def shown(self, views: Views, plan: Plan) -> Views:
        """The views with the tokens that the generator draws."""
        return self._fill(views, plan)[0]

    def _fill(self, views: Views, plan: Plan) -> tuple[Views, dict[str, Predictions]]:
        """The views with drawn tokens, and by view what the generator predicted."""
        filled, predicted = dict(views), {}
        for name, reading in plan.views.items():
            if reading.drawn is not None:
                predicted[name] = self.generate(views[name], reading)
                filled[name] = _filled(views[name], predicted[name], reading.drawn.at)
        return filled, predicted

    def start_decoders(self) -> list[str]:
        """Give decoders their first weights; returns the names of the parts that keep random ones."""
        return super().start_decoders() + (["detector"] if self.detector is not None else [])

    def score_view(self, name: str, hidden: Tensor, targets: Tensor, shown: Tensor, head: str) -> Tensor:
        """Summed loss of last states (n, dim) at the scored tokens of the view called `name`; a scalar.

        Where it asks which tokens were replaced: binary cross-entropy over all tokens but special ones (ELECTRA, Clark
        et al. 2020); a draw that hits the original token is none.
        """
        if self.detector is None or self.config.views[name].labels != "replaced":
            return super().score_view(name, hidden, targets, shown, head)
        odds = self.detector(hidden)
        single = single_dtype(odds.dtype)
        return F.binary_cross_entropy_with_logits(odds.to(single), (shown != targets).to(single), reduction="sum")

    def generate(self, view: Mapping[str, Tensor], reading: Reading | None = None) -> Predictions:
        """What the generator predicts at the positions of `view` where it is to draw; `reading` is the view's."""
        if self.generator is None:
            raise ValueError("SimLM replaces tokens by what a generator draws, and none was given.")
        with torch.set_grad_enabled(self.config.generator_weight > 0 and torch.is_grad_enabled()):
            reading = read_view(view) if reading is None else reading
            assert reading.drawn is not None
            return predict(self.generator, self.generator_runner, view, reading.places, reading.drawn)

    def count_scored(self, views: Views) -> dict[str, Tensor]:
        """What each summed loss is a mean over (scalars, float32, by loss name)."""
        counts = super().count_scored(views)
        drawn = [views[name]["uniform"] >= DRAWN for name in self.teaching if "uniform" in views[name]]
        if self.config.generator_weight and drawn:
            counts["generator"] = torch.stack([at.sum() for at in drawn]).sum().float()
        return counts


def _filled(view: Mapping[str, Tensor], predicted: Predictions, at: Tensor) -> dict[str, Tensor]:
    """`view` with a token drawn at each place where the generator predicted; the same number draws the same token."""
    ids, uniform = view["input_ids"], view["uniform"].flatten().index_select(0, at)
    return {**view, "input_ids": ids.flatten().index_copy(0, at, predicted.draw(uniform)).view_as(ids)}
