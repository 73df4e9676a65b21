"""The streams that a worker reads: found, opened, left and, if several, kept apart."""
