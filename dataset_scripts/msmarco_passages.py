"""MS MARCO's 8.8 million passages with their titles, as SimLM, RetroMAE and MASTER pre-train on them.

python dataset_scripts/msmarco_passages.py --out DIR [--push_to_hub REPO]
"""

import sys

from hf_dense.commands.main import main

if __name__ == "__main__":
    main(["data", "passages", "Tevatron/msmarco-passage-corpus", "--whole", "--repeats", "keep", *sys.argv[1:]])
