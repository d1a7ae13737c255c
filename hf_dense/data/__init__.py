"""Documents, passages, contexts, queries and labels."""
