"""MS MARCO's 8.8 million passages with their titles, as SimLM, RetroMAE and MASTER pre-train on them.

python dataset_scripts/msmarco_passages.py --out DIR [--push_to_hub REPO]
"""

import sys

from hf_dense.commands.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "passages", "Tevatron/msmarco-passage-corpus", "--whole", "--repeats", "keep"]
    main()
