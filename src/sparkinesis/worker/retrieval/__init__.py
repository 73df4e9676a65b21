"""Fetching ahead of record processors, by polling or enhanced fan-out, within a memory budget.

`polling` and `fan_out` fetch; `ahead` decides whether a page is fetched, and puts it with those of
its shard that wait (`waiting_pages`). `batch_cutter` cuts the part of a page that a batch has
memory for. `step_pool` runs the steps of all shards in few threads (`pool_threads`). `memory` is
the process's budget, and estimates what records take.
"""
