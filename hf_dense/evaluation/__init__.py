"""Measuring retrievers: metrics through MTEB, significance, plots and where a number comes from."""
