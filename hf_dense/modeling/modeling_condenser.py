"""Condenser: a head over early states and the late [CLS]; coCondenser adds contrast between spans of a document.

Gao and Callan, "Condenser: a Pre-training Architecture for Dense Retrieval" (EMNLP 2021), arXiv:2104.08253.
Gao and Callan, "Unsupervised Corpus Aware Language Model Pre-training for Dense Passage Retrieval" (ACL 2022),
arXiv:2108.05540.
"""

from __future__ import annotations

from .configuration_bottleneck import BottleneckConfig, Decoder, Encoder, View
from .modeling_bottleneck import model_classes

_HEAD = Decoder(view=None, inputs="hidden:half", layers=2)


class CondenserConfig(BottleneckConfig):
    """15 % of whole words are masked; a two-layer head sees the states half way up the encoder (layer 6 of 12, the
    paper's; the released code's default is layer 2) and the last state of [CLS], and predicts the same words again.

    The encoder's own loss (`late_mlm`, off by default in the released code and on in its instructions) has weight 1.
    """

    model_type = "condenser"
    declared_encoders = {"encoder": Encoder(View(rate=0.15))}
    declared_decoders = {"decoder": _HEAD}
    declared_crop = "random"


CondenserModel, CondenserForPreTraining = model_classes(CondenserConfig)


class CoCondenserConfig(BottleneckConfig):
    """Condenser on two spans of one document, drawn anew in every epoch, and contrast of their bottlenecks against the
    other spans of the batch.

    Token losses have weight 1 (the paper). The released code's gradient-cached path, with which its checkpoints were
    made, gives them weight 2 by counting documents where there are spans:
    `encoders={"encoder": {"weight": 2.0}}, decoders={"decoder": {"weight": 2.0}}`.
    """

    model_type = "cocondenser"
    declared_encoders = {"encoder": Encoder(View(rate=0.15), contrast=1.0)}
    declared_decoders = {"decoder": _HEAD}
    declared_crop = "random"


CoCondenserModel, CoCondenserForPreTraining = model_classes(CoCondenserConfig)
