"""Passages of your own documents: a folder of texts, Markdown, HTML or PDF files, or tables.

python dataset_scripts/my_documents.py FOLDER --out DIR [--length 128] [--push_to_hub REPO]
"""

import sys

from hf_dense.commands.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "passages", "--repeats", "near"]
    main()
