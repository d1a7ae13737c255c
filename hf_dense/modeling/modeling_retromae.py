"""RetroMAE: a one-layer decoder with two streams and position-specific visibility.

Xiao, Liu, Shao and Cao, "RetroMAE: Pre-Training Retrieval-oriented Language Models Via Masked Auto-Encoder" (2022),
arXiv:2205.12035.
"""

from __future__ import annotations

from .configuration_bottleneck import BottleneckConfig, Decoder, Encoder, View
from .modeling_bottleneck import model_classes


class RetroMAEConfig(BottleneckConfig):
    """Encoder: 30 % of whole words masked. Decoder: one layer; the query stream is bottleneck + position, keys and
    values are the unmasked text, of which every position sees its own sample of about half, never itself; every token
    is scored.

    The query stream is raw as in the released RetroMAE code; `decoders={"decoder": {"stream": "bottleneck_embedded"}}`
    sends it through the embedding block, as the later DupMAE code does.
    """

    model_type = "retromae"
    declared_encoders = {"encoder": Encoder(View(rate=0.30))}
    declared_decoders = {
        "decoder": Decoder(View(select="none", labels="every"), layers=1, stream="bottleneck", attention="sampled:0.5")
    }


RetroMAEModel, RetroMAEForPreTraining = model_classes(RetroMAEConfig)
