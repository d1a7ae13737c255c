"""Comparisons, sweeps and the measuring of pipelines."""
