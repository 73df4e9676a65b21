"""What a user writes to process records, in its different ways, and the calls of it."""
