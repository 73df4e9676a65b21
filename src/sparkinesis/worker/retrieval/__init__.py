"""Fetching ahead of record processors, by polling or enhanced fan-out, within a memory budget."""
