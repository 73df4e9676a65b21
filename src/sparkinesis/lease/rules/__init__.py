"""The decisions about leases, as pure functions: which to create, take, steal, reset and delete.

Read `observations` first: what a worker concludes from scans; then `taker`, which leases it adopts,
takes or requests. `legacy_workers` and `worker_ids` say what other workers can do, `fencing`
numbers acquisitions.

Leases follow the shards: `shard_sync` (with `lease_start`) creates, `children` orders the ends of
shards, `audit` finds holes, `cleanup` and `former_streams` delete, and `leader` is the worker that
audits. `row_streams` says whose a row is, `reset` plans an application reset.
"""
