"""DupMAE: RetroMAE, and the passage's bag of words from the encoder's ordinary states.

Liu, Xiao, Shao and Cao, "RetroMAE-2: Duplex Masked Auto-Encoder For Pre-Training Retrieval-Oriented Language Models"
(ACL 2023), arXiv:2305.02564.
"""

from __future__ import annotations

from .bottleneck_declaration import Bag, Decoder, Encoder, View
from .configuration_bottleneck import BottleneckConfig
from .modeling_bottleneck import model_classes


class DupMAEConfig(BottleneckConfig):
    """As RetroMAE, with the decoder's query through the embedding block, and the bag-of-words loss at weight 0.1.

    The defaults are the released code's, which the published checkpoints come from. The paper's: weight 1, no score
    from masked positions and a projection of its own,
    `encoders={"encoder": {"bag": {"weight": 1.0, "masked": False, "head": "own"}}}`; its equation 8 as printed, a sum,
    is `{"bag": {"target": "sum", "weight": 1.0}}` and outweighs the other losses by far.
    """

    model_type = "dupmae"
    declared_encoders = {"encoder": Encoder(View(rate=0.30), bag=Bag())}
    declared_decoders = {
        "decoder": Decoder(
            View(select="none", labels="every"), layers=1, stream="bottleneck_embedded", attention="sampled:0.5"
        )
    }


DupMAEModel, DupMAEForPreTraining = model_classes(DupMAEConfig)
