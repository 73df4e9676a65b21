"""Figures of how the project is built: how large its rooms are, and what stands in them twice."""
