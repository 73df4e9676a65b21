"""The state of a local Kinesis: streams, shards, consumers, queues, limits. No I/O.

`stream` > `key_space` > `shard_log` > `records` hold each other. `sequence` and `tokens` are the
numbers and iterators that clients see, `limits` the quotas. A `registered_consumer` has a
subscription to each shard, and a `queue` delivers a stream's records one by one; both wait by an
`alarm`. `lifecycle` has the states of a stream and of a queue.
"""
