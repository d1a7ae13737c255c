"""The command line: one module for each verb, all with `SUMMARY`, `add_arguments` and `run`."""
