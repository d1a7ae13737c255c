"""Passages with generated queries, as query-as-context draws them: top-k 25, top-p 0.95, five for each passage.

python dataset_scripts/generated_queries.py CORPUS --out DIR [--candidates 20] [--push_to_hub REPO]
"""

import sys

from hf_dense.commands.main import main

WRITER = ["--model", "doc2query/all-with_prefix-t5-base-v1", "--template", "text2query: {text}"]

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "generate", "--kind", "queries", *WRITER]
    main()
