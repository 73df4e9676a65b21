"""The consumer of one shard: its states, and the way of its pages to a record processor."""
