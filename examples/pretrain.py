"""Pre-train a dense encoder on a corpus of passages; `hf-dense pretrain`, for `accelerate launch`.

    accelerate launch examples/pretrain.py --config retromae --config demo --corpus DIR
    accelerate launch examples/pretrain.py --method cotmae --corpus DIR --out OUT --max_steps 1000

Several CPU processes: `accelerate launch --multi_gpu --num_processes 2 examples/pretrain.py ... --use_cpu true`.
"""

import sys

from hf_dense.commands.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "pretrain")
    main()
