"""How queries are generated: by which model, with which prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from hf_dense.data.generation import TextGenerationConfig, check_at_once
from hf_dense.data.queries.endpoint import Endpoint
from hf_dense.data.queries.prompts import STYLES, UNTITLED, prompts

_PROMPT: Final = 512  # tokens of a prompt that a model here reads


@dataclass(frozen=True)
class Generating:
    """How queries are generated.

    Args:
        model: a sequence-to-sequence or causal language model (a directory or Hub id), or the name of an endpoint's.
        endpoint: where it is asked, in place of a model here.
        styles: what is written about each passage, of `STYLES`.
        template: one's own prompt in their place, with `{text}` and perhaps `{title}`; models such as docTTTTTquery's
            take that of their training.
        candidates: queries of each style for a passage.
        temperature: of the draws.
        output_length: greatest number of tokens written.
        batch_size: passages worked on at once by a model here.

    Raises:
        InputError: a value outside its range.
    """

    model: str
    endpoint: Endpoint | None = None
    styles: tuple[str, ...] = tuple(STYLES)
    template: str | None = None
    candidates: int = 1
    temperature: float = 0.7
    output_length: int = 64
    batch_size: int = 32

    def __post_init__(self) -> None:
        for prompt in prompts(self.styles, self.template).values():
            self.config(prompt, 0)
        check_at_once(self.batch_size)

    @property
    def untitled(self) -> str:
        """What a prompt calls a passage without a title."""
        return "" if self.template is not None else UNTITLED

    def config(self, prompt: str, seed: int) -> TextGenerationConfig:
        """What a model here is told for one prompt."""
        return TextGenerationConfig(
            "queries",
            self.model,
            prompt,
            self.candidates,
            temperature=self.temperature,
            input_length=_PROMPT,
            output_length=self.output_length,
            seed=seed,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """What decides on the queries."""
        names = ("candidates", "temperature", "output_length")
        return {"prompts": dict(prompts(self.styles, self.template))} | {name: getattr(self, name) for name in names}
