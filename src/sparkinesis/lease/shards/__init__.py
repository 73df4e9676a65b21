"""The leases of a stream follow its shards: this creates, audits and deletes them.

Read `stream_leases` first: it reads and creates the leases of one stream, in a table that may have
those of a thousand, and decides whose the rows are. `creation` creates many at once.
`shard_syncer` compares them with the shards at the start, in audits and in cleanups; `shard_ends`
creates the leases of children at the end of a shard. The decisions are in lease/rules.
"""
