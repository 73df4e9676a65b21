"""The worker and its loops; and the shard consumers, from a page to ``process_records``.

`worker` comes first: its threads are `loops` for leases and `consumer_loop` for shards, and share
`worker_state` and `settings`. `signals` end it. Other ways to run: `batch_loop` (a loop of the
user's), `run_async`, `replay` (a range again). `named_shards` finds the lease of a shard that a
program names.

Folders: `shard` is one shard's consumer, `streams` the streams that are read.
"""
