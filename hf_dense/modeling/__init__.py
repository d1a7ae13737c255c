"""The models: copied beside every checkpoint, so these files import only torch, transformers and each other."""
