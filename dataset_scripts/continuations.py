"""Passages with a continuation that GPT-2 wrote, for MASTER; the paper does not say how its own were drawn.

python dataset_scripts/continuations.py CORPUS --out DIR [--model MODEL] [--push_to_hub REPO]
"""

import sys

from hf_dense.commands.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "generate", "--kind", "continuation", "--model", "gpt2", "--output_length", "126"]
    main()
