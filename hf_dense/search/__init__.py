"""Whatever finds passages."""
