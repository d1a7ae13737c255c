"""What is on disk: complete or absent, ours or not, made from what."""
