"""Checkpoints in forms that others can use."""
