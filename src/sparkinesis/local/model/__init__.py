"""The state of a local Kinesis: streams, shards, consumers, queues, limits. No I/O.

`stream` > `shard_log` > `records` hold each other. `tokens` are the iterators that clients see,
`limits` the quotas. A `registered_consumer` has a subscription to each shard, and a `queue`
delivers a stream's records one by one; both wait by an alarm of `local/clock`.
"""
