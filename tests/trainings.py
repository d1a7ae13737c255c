"""Pre-trainings one after the other in the same processes: starting them takes longer than a short training.

accelerate launch tests/trainings.py WORDS.json     # the words of each, after `hf-dense pretrain`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hf_dense.commands.main import main

if __name__ == "__main__":
    for words in json.loads(Path(sys.argv[1]).read_text()):
        main(["pretrain", *words])
