"""Turn a pre-training checkpoint into a Sentence-Transformers directory that needs neither hf_dense nor remote code.

python examples/export.py --checkpoint runs/retromae --output_dir runs/retriever --max_length 64
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hf_dense.errors import run_main
from hf_dense.hub import export_sentence_transformer
from hf_dense.options import parse_options


@dataclass(frozen=True)
class ExportOptions:
    """What to export, and how texts become vectors."""

    checkpoint: str = field(metadata={"help": "Directory or Hub id of a pre-training checkpoint or a plain encoder."})
    output_dir: str = field(metadata={"help": "Directory that receives the model."})
    max_length: int = field(metadata={"help": "Longest input in tokens; longer texts are cut."})
    pooling: str = field(default="cls", metadata={"help": "cls (the bottleneck) or mean.", "choices": ["cls", "mean"]})
    similarity: str = field(default="dot", metadata={"help": "dot or cosine.", "choices": ["dot", "cosine"]})
    normalize: bool = field(default=False, metadata={"help": "Scale every vector to length 1 inside the model."})


def main() -> None:
    options = parse_options(ExportOptions)[0]
    path = export_sentence_transformer(**vars(options))
    print(f"exported to {path}")


if __name__ == "__main__":
    run_main(main)
