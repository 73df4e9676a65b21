"""A leader that assigns the leases of all workers, as in KCL 3.x.

`assignment` is a worker's part in it, after each scan. It asks, in this order: `coordination`,
which finds, reads and writes the rows (`coordinator_state`, whether there is a leader, and its
lock; `worker_stats`), and `load_report`, which measures and reports this worker's load.

The leader's decisions: `assigner` plans for the live workers by `by_load` or `by_count`, with what
both need in `moves`. While the leader lives, the other workers read only
their own rows: `partial_scan`. Tests: tests/integration/lease/test_assignment.py.
"""
