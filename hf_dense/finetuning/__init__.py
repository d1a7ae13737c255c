"""From an exported encoder to a retriever, by the trainer of Sentence-Transformers."""
