"""A page to ask two retrievers side by side, and to judge what they find."""
