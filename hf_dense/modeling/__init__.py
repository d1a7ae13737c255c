"""The models. This folder is copied beside every checkpoint, so its files import only torch, transformers and each other."""
