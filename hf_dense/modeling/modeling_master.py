"""MASTER: five shallow decoders, each with a task of its own, share one bottleneck encoder.

Zhou, Liu, Gong, Zhao, Jiang, Duan and Wen, "MASTER: Multi-task Pre-trained Bottlenecked Masked Autoencoders are Better
Dense Retrievers" (2022), arXiv:2212.07841.
"""

from __future__ import annotations

from .configuration_bottleneck import BottleneckConfig, Decoder, Encoder, View
from .modeling_bottleneck import model_classes


class MASTERConfig(BottleneckConfig):
    """Three views of the passage go through the encoder in one pass, five two-layer decoders read their bottlenecks.

    | decoder | encoder | rebuilds |
    |---|---|---|
    | `keywords` (MKP) | `encoder`, 30 % hidden | the passage, 50 % of it hidden, keywords first |
    | `queries` (DOR) | `encoder` | generated queries, 50 % hidden |
    | `continuation` (GOR) | `encoder` | a generated continuation, 50 % hidden |
    | `neighbour` (NPR) | `half`, 30 % of the first half hidden | the second half, 50 % hidden, keywords first |
    | `complement` (CMP) | `complement_encoder`, 50 % hidden | the passage, exactly the other tokens hidden |

    Defaults are the released code's where it differs from the paper, as the published checkpoints come from it. The
    paper's, by name:

    - keywords drawn by TF-IDF: `{"view": {"select": "keywords:tfidf"}}` for the decoders `keywords` and `neighbour`;
    - NPR rebuilds the next passage: `encoders={"half": {"view": {"sources": ["text"]}}}`,
      `decoders={"neighbour": {"view": {"sources": ["neighbour"]}}}`;
    - CMP hides 30 % from the encoder: `encoders={"complement_encoder": {"view": {"rate": 0.3}}}`;
    - one encoder is scored: `encoders={"half": {"weight": 0.0}, "complement_encoder": {"weight": 0.0}}`;
    - one decoder for all (Table 6): `decoders={name: {"shares": "keywords"}}` for the other four;
    - without a task (Table 6): `decoders={"queries": None}`, and `encoders={"half": None}` when nothing reads it.
    """

    model_type = "master"
    declared_encoders = {
        "encoder": Encoder(View(rate=0.30)),
        "half": Encoder(View(sources=("first_half",), rate=0.30)),
        "complement_encoder": Encoder(View(rate=0.50)),
    }
    declared_decoders = {
        "keywords": Decoder(View(select="keywords:inverse_count", rate=0.50)),
        "queries": Decoder(View(sources=("queries",), rate=0.50)),
        "continuation": Decoder(View(sources=("continuation",), rate=0.50)),
        "neighbour": Decoder(
            View(sources=("second_half",), select="keywords:inverse_count", rate=0.50), encoder="half"
        ),
        "complement": Decoder(View(select="complement"), encoder="complement_encoder"),
    }
    declared_crop = "random"


MASTERModel, MASTERForPreTraining = model_classes(MASTERConfig)
