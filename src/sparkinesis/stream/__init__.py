"""Kinesis streams: addresses, positions, shards, records, and the calls that read and write them.

Values: `address` (with the source of credentials, never the credentials), `shard` (lineage and hash
keys), `position`, `page`, `put_entry`. `timing` is the machine's clock and randomness, which the
simulation replaces, and the service's clock.

`putting` writes records with PutRecords.

Folders: `calls` (the API), `reading` (polling), `fan_out` (subscriptions) and `kpl` (aggregated
records).
"""
