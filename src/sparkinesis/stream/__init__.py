"""Kinesis streams: addresses, positions, shards, records, and the calls that read and write them.

The sub-folders are `calls` (the API), `reading` (polling), `fan_out` (subscriptions), `putting`
(writes) and `kpl` (aggregated records).
"""
