"""The models between two others: base + w (tuned - base), weight by weight, in float32.

Source: WiSE-FT (Wortsman et al., 2109.01903), which keeps what fine-tuning forgets; of the difference that training
made to another model of the same start, task arithmetic (Ilharco et al., 2212.04089).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_dense.errors import InputError
from hf_dense.hub.fingerprints import encoder_fingerprint, making_of
from hf_dense.hub.hybrid_head import HybridHead
from hf_dense.hub.lineage import joined, lineage_of
from hf_dense.hub.loading import load_encoder, load_retriever, load_tokenizer
from hf_dense.hub.towers import two_encoders
from hf_dense.search.fingerprints import retriever_source
from hf_dense.storage.fingerprints import fingerprint_tokenizer
from hf_dense.storage.manifest import difference
from hf_dense.storage.places import Source

State = Mapping[str, Tensor]


class Between:
    """The retrievers between two of one shape.

    Args:
        base: a retriever, directory or Hub id: the one at weight 0.
        tuned: another, or a pre-training checkpoint, that makes vectors in the same way: the one at weight 1. With
            `start` any encoder or checkpoint.
        start: the encoder that `tuned` was trained from; base + tuned - start is at weight 1 then.

    Attributes:
        sources: the models, by these names.

    Raises:
        InputError: nothing to load, or the models do not go together.
    """

    def __init__(self, base: str, tuned: str, start: str | None = None) -> None:
        self.base, self.tuned, self.start = base, tuned, start
        self._model = load_retriever(base)
        self._encoder: Any = self._model.transformers_model
        if isinstance(self._model[-1], HybridHead):
            raise InputError(f"{base} gives hybrid vectors; only retrievers of dense vectors are merged.")
        if two_encoders(self._model):
            raise InputError(f"{base} has two encoders; only retrievers of one are merged.")
        self.sources = {"base": retriever_source(self._model, base)}
        self._first = {name: tensor.clone() for name, tensor in self._model.float().state_dict().items()}
        self._second = self._weights_of_tuned() if start is None else self._moved_weights(start)

    def __str__(self) -> str:
        """What the weights are, as a formula of w."""
        return f"{self.base} + w ({self.tuned} - {self.base if self.start is None else self.start})"

    def at(self, weight: float) -> SentenceTransformer:
        """The retriever at a weight; the same object every time, with other values."""
        self._model.load_state_dict(
            {
                name: torch.lerp(first, self._second[name], weight) if first.is_floating_point() else first
                for name, first in self._first.items()
            }
        )
        return self._model

    def lineage(self) -> tuple[list[dict[str, Any]], list[str]]:
        """The steps that made the models, those of the base first, and their licences; see `joined`."""
        return joined(*map(lineage_of, filter(None, (self.base, self.start, self.tuned))))

    def _weights_of_tuned(self) -> State:
        tuned = load_retriever(self.tuned)
        if two_encoders(tuned):
            raise InputError(f"{self.tuned} has two encoders; only retrievers of one are merged.")
        self.sources["tuned"] = retriever_source(tuned, self.tuned)
        self._check_alike(self.tuned, tuned.transformers_model, tuned.tokenizer)
        if other := difference(making_of(self._model), making_of(tuned)):
            raise InputError(
                f"{self.tuned} makes its vectors otherwise than {self.base}: it has {other}; merge models that make "
                "them in the same way, or, with --delta START, what training changed in an encoder."
            )
        return self._check_shapes(self.tuned, tuned.float().state_dict())

    def _moved_weights(self, start: str) -> State:
        """The base's weights, the encoder's among them moved as training moved those of another."""
        if self._encoder is None:
            raise InputError(f"{self.base} has no encoder of transformers that could be moved; leave --delta out.")
        prefix = next(name for name, module in self._model.named_modules() if module is self._encoder)
        states = []
        for role, name in (("tuned", self.tuned), ("start", start)):
            encoder, tokenizer = load_encoder(name), load_tokenizer(name)
            self.sources[role] = Source(name, encoder_fingerprint(encoder, tokenizer))
            self._check_alike(name, encoder, tokenizer)
            rest = {key: value for key, value in self._first.items() if not key.startswith(f"{prefix}.")}
            own = {f"{prefix}.{key}": value for key, value in encoder.float().state_dict().items()}
            states.append(self._check_shapes(name, {**rest, **own}))
        return {key: first + (states[0][key] - states[1][key]) for key, first in self._first.items()}

    def _check_alike(self, name: str, encoder: Any, tokenizer: PreTrainedTokenizerBase) -> None:
        """Pass when a model has the base's tokens and kind of encoder."""
        if fingerprint_tokenizer(tokenizer) != fingerprint_tokenizer(self._model.tokenizer):
            raise InputError(f"{self.base} and {name} have different tokenizers; models of one vocabulary are merged.")
        configs = [getattr(one, "config", None) for one in (self._encoder, encoder)]
        kinds = [
            tuple(getattr(config, name, None) for name in ("model_type", "num_attention_heads")) for config in configs
        ]
        if kinds[0] != kinds[1]:
            shown = " and ".join(f"{kind} with {heads} heads" for kind, heads in kinds)
            raise InputError(f"{self.base} and {name} are different encoders ({shown}); those of one kind are merged.")

    def _check_shapes(self, name: str, state: State) -> State:
        """Weights with the names and shapes of the base's, where the base's are."""
        for key in dict.fromkeys([*self._first, *state]):
            shapes = [tuple(one[key].shape) if key in one else "none" for one in (self._first, state)]
            if shapes[0] != shapes[1]:
                raise InputError(
                    f"{self.base} and {name} have different shapes ({key}: {shapes[0]} and {shapes[1]}); models of one "
                    "shape are merged."
                )
        return {key: tensor.to(self._first[key].device) for key, tensor in state.items()}
