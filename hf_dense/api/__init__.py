"""The verbs of `hf-dense` as functions: keyword arguments with the names of the flags, results as objects."""
