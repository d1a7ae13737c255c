"""CoT-MAE: a two-layer decoder rebuilds the neighbouring span, in both directions.

Wu, Ma, Lin, Lin, Wang and Hu, "ConTextual Masked Auto-Encoder for Dense Passage Retrieval" (2022), arXiv:2208.07670.
"""

from __future__ import annotations

from .configuration_bottleneck import BottleneckConfig, Decoder, Encoder, View
from .modeling_bottleneck import model_classes


class CoTMAEConfig(BottleneckConfig):
    """Both spans go through the encoder with 30 % of whole words masked; a two-layer decoder rebuilds each from the
    other's bottleneck with 45 % masked, drawn independently.
    """

    model_type = "cotmae"
    declared_encoders = {"encoder": Encoder(View(sources=("text", "neighbour"), rate=0.30))}
    declared_decoders = {"decoder": Decoder(View(sources=("neighbour", "text"), rate=0.45), layers=2)}
    declared_crop = "random"


CoTMAEModel, CoTMAEForPreTraining = model_classes(CoTMAEConfig)
