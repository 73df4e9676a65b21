"""The decisions about leases, as pure functions: which to create, take, steal, reset and delete.

Read `observations` first: what a worker concludes from scans; then `taker`, which leases it adopts,
takes or requests. `other_workers` says what other workers can do.

Leases follow the shards: `shard_sync` (with `lease_start`) creates, `children` orders the ends of
shards, `audit` names the worker that audits, and finds holes and the leases and streams to delete.
`row_streams` says whose a row is, `reset_plan` plans an application reset.
"""
