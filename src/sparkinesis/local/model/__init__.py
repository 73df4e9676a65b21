"""The state of a local Kinesis: streams, shards, consumers, subscriptions, limits. No I/O.

`account` > `stream` > `shard` > `record_log` hold each other; a log holds each `stored_record`, a
read returns a `record_page`. `sequence` and `tokens` are the numbers and iterators that clients
see, `limits` the quotas. A `consumer` has a `subscription` to each shard.
"""
