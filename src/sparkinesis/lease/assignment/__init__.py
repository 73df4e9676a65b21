"""A leader that assigns the leases of all workers, as in KCL 3.x.

`assignment` is a worker's part in it, after each scan. It asks, in this order: `coordination`,
which finds, reads and writes the rows (`client_version`, whether there is a leader; `leader_lock`;
`worker_stats`), and `load_report`, which measures and reports this worker's load.

The leader's decisions: `members` are the workers as it knows them; `assigner` plans by `by_load` or
`by_count`, with what both need in `moves`. While the leader lives, the other workers read only
their own rows: `partial_scan`. Tests: tests/integration/lease/test_assignment.py.
"""
