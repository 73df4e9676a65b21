"""A leader that assigns the leases of all workers, as in KCL 3.x.

`membership` is a worker's part in it: it publishes its load, follows the mode, and is a candidate
for leader; `standing` is the result of a scan. Rows: `worker_stats` (with `cpu`), `leader_lock`,
`client_version`, which `coordination` finds, reads and writes. The leader's decisions: `members` as
it sees them, then `by_load` or `by_count`, which return `moves`. Without being leader, a worker
reads only its own rows: `brief_look` decides when, `own_rows` reads. Tests:
tests/integration/lease/test_led.py.
"""
