"""The 21 million Wikipedia passages of Natural Questions, from DPR's psgs_w100.tsv(.gz).

python dataset_scripts/wikipedia_nq.py psgs_w100.tsv.gz --out DIR [--push_to_hub REPO]
"""

import sys

from hf_dense.commands.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "passages", "--whole", "--repeats", "keep", "--license", "cc-by-sa-3.0"]
    main()
