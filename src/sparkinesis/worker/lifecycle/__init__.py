"""The worker and its loops; and the shard consumers, from a page to ``process_records``.

`new_worker` makes a `worker`, whose threads are `loops` for leases and `consumer_loop` for shards
and reports, and share `worker_state` and `settings`. `signals` end it. Other ways to run:
`batch_loop` (a loop of the user's), `run_async`, `replay` (a range again).

Folders: `shard` is one shard's consumer, `streams` the streams that are read.
"""
