"""Fetching ahead of record processors, by polling or enhanced fan-out, within a memory budget.

`polling` and `fan_out` fetch; `ahead` decides whether a page is fetched, and puts it with those of
its shard that wait (`waiting_pages`). `batch_cutter` cuts a page where a batch ends. `step_pool`
runs the steps of all shards in few threads (`pool_threads`). `memory` is the process's budget,
`memory_estimates` what records take. `closed_shards` watches those that do not end.
"""
