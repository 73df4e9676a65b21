"""Fetching ahead of record processors, by polling or enhanced fan-out, within a memory budget.

`ahead` decides whether a page is fetched; `polling` and `fan_out` fetch. `step_pool` runs the steps
of all shards in few threads, which `pool_growth` adds. `memory` is the process's budget,
`shard_accounts` a shard's part, `memory_estimates` what records take. `closed_shards` watches those
that do not end.
"""
