"""Query-as-context: a generated query in place of a neighbouring span, on coCondenser and on CoT-MAE.

Wu, Ma, Qian, Lin and Hu, "Query-as-context Pre-training for Dense Passage Retrieval" (EMNLP 2023),
arXiv:2212.09598. One of a passage's generated queries is drawn in every epoch.
"""

from __future__ import annotations

from .configuration_bottleneck import BottleneckConfig, Decoder, Encoder, View
from .modeling_bottleneck import model_classes


class QueryCoCondenserConfig(BottleneckConfig):
    """coCondenser on a passage and a query: both are masked at 15 %, and their bottlenecks contrasted.

    The paper weighs all losses 1; the released, gradient-cached code weighs token losses 2 (see `CoCondenserConfig`).
    """

    model_type = "query_cocondenser"
    declared_encoders = {"encoder": Encoder(View(sources=("text", "query"), rate=0.15), contrast=1.0)}
    declared_decoders = {"decoder": Decoder(view=None, inputs="hidden:half", layers=2)}
    declared_crop = "random"


QueryCoCondenserModel, QueryCoCondenserForPreTraining = model_classes(QueryCoCondenserConfig)


class QueryCoTMAEConfig(BottleneckConfig):
    """The passage goes through the encoder with 30 % masked, a decoder rebuilds the query; one direction only.

    Here the decoder is the paper's: CoT-MAE's two bidirectional layers, 45 % of the query masked. The released command
    has one causal layer that sees three tokens and predicts the next:
    `decoders={"decoder": {"layers": 1, "attention": "causal:3", "norm": "gpt2", "view": {"select": "none",
    "labels": "next"}}}`. Mixed contexts: `{"view": {"sources": ["query:2+neighbour:1"]}}`.
    """

    model_type = "query_cotmae"
    declared_encoders = {"encoder": Encoder(View(rate=0.30))}
    declared_decoders = {"decoder": Decoder(View(sources=("query",), rate=0.45), layers=2)}
    declared_crop = "random"


QueryCoTMAEModel, QueryCoTMAEForPreTraining = model_classes(QueryCoTMAEConfig)
