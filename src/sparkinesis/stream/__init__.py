"""Kinesis streams: addresses, positions, shards, records, and the calls that read and write them.

Values: `address`, `shard`, `position`, `page`, `put_entry`, `routing` (hash keys to shards).
`credentials` says where they come from, never what they are. `service_time` is the service's clock;
`timing` is the machine's clock and randomness, which the simulation replaces.

`putting` writes records with PutRecords.

Folders: `calls` (the API), `reading` (polling), `fan_out` (subscriptions) and `kpl` (aggregated
records).
"""
