"""The start of a batch, before any record is looked at."""
