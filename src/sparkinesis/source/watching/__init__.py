"""Watching streaming queries: their progress, as values and as metrics."""
