"""The state of a local Kinesis: streams, shards, consumers, subscriptions, limits. No I/O.

`stream` > `key_space` > `shard_log` > `records` hold each other. `sequence` and `tokens` are the
numbers and iterators that clients see, `limits` the quotas. A `registered_consumer` has a
subscription to each shard.
"""
