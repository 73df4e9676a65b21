"""Finds out, with few and cheap calls, which records a shard has, and where a batch ends."""
