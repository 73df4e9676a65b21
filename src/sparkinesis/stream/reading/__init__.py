"""Reading a shard: cursors, call budgets, ranges, retention checks, and Arrow batches."""
