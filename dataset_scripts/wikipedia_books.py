"""Wikipedia and books in passages of 512 tokens, as RetroMAE's first stage and SEED-Encoder are trained on.

python dataset_scripts/wikipedia_books.py BOOKS --out DIR [--push_to_hub REPO]

A passage has at most 510 tokens of bert-base-uncased, which are 512 with [CLS] and [SEP]; `--tokenizer NAME` counts
another's. BookCorpus is no longer given out by its makers: BOOKS is a folder or file of books that you have, or a Hub
dataset.
"""

import sys

from hf_dense.commands.main import main

if __name__ == "__main__":
    cut = ["--length", "510", "--tokenizer", "bert-base-uncased"]
    sys.argv[1:1] = ["data", "passages", *cut, "wikimedia/wikipedia:20231101.en"]
    main()
