"""Readers of text files, one module for each library: what each finds are the blocks that a page is built from."""
