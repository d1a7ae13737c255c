"""Queries where there are none: made of the passages of a corpus, for everything that trains on queries."""
