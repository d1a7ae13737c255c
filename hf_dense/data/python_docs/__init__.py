"""The documentation of the Python environment as a retrieval collection."""
