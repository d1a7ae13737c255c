"""SEED-Encoder: an autoregressive decoder that sees two tokens back and the bottleneck.

Lu, He, Xiong, Ke, Malik, Dou, Bennett, Liu and Overwijk, "Less is More: Pre-train a Strong Text Encoder for Dense
Retrieval Using a Weak Decoder" (EMNLP 2021), arXiv:2102.09206.
"""

from __future__ import annotations

from .configuration_bottleneck import BottleneckConfig, Decoder, Encoder, View
from .modeling_bottleneck import model_classes


class SEEDConfig(BottleneckConfig):
    """Encoder: 15 % of tokens masked. Decoder: three pre-norm layers that see the previous two tokens and position 0,
    read the bottleneck by cross-attention, and predict the next token of the unmasked text.

    The paper gives neither whole-word masking nor the token that heads the shifted input; here whole words are masked
    and [CLS] heads it, so x1 ... xn [SEP] are predicted. `decoders={"decoder": {"attention": "causal", "layers": 5}}`
    gives the strong decoder of the paper's ablation, which sees the whole text so far, as Optimus' does; `causal:k` and
    `layers` are free.
    """

    model_type = "seed_encoder"
    declared_encoders = {"encoder": Encoder(View(rate=0.15))}
    declared_decoders = {
        "decoder": Decoder(
            View(select="none", labels="next"),
            layers=3,
            inputs="own_embeddings",
            attention="causal:2",
            entry="cross_attention",
            norm="pre",
            head="tied",
        )
    }


SEEDModel, SEEDForPreTraining = model_classes(SEEDConfig)
