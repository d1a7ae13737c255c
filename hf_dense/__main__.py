"""`python -m hf_dense`, which is `hf-dense`."""

from hf_dense.commands.main import main

if __name__ == "__main__":
    main()
