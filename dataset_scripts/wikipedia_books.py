"""Wikipedia and books in passages of 512 tokens, as RetroMAE's first stage and SEED-Encoder are trained on.

python dataset_scripts/wikipedia_books.py BOOKS --out DIR [--push_to_hub REPO]

BookCorpus is no longer given out by its makers: BOOKS is a folder or file of books that you have, or a Hub dataset.
"""

import sys

from hf_dense.commands.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "passages", "--length", "510", "wikimedia/wikipedia:20231101.en"]
    main()
