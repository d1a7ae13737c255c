"""Fine-tune a retriever, once or in stages; `hf-dense finetune`, for `accelerate launch`.

accelerate launch examples/finetune.py --model build/encoder --collection DIR --out OUT --max_steps 1500
accelerate launch examples/finetune.py --config simlm_msmarco --collection DIR --model MODEL --out OUT
"""

import sys

from hf_dense.commands.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "finetune")
    main()
