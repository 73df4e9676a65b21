"""The state of a local Kinesis: streams, shards, consumers, subscriptions, limits. No I/O.

`stream` > `shard` > `records` hold each other. `sequence` and `tokens` are the numbers and
iterators that clients see, `limits` the quotas. A `consumer` has a subscription to each shard.
"""
