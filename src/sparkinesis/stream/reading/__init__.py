"""Reading a shard: cursors, call budgets, ranges, retention checks, and Arrow batches.

`cursor` reads pages by GetRecords, within a `budget` (`machine_budget` across processes); `range`
reads exactly (start, end], `following` all shards of a stream as they come. `arrow` makes columns,
`split_page` halves a page.

What a page may hide: `early_records` from before the position, `retention` and `read_progress` lost
ones, `shard_end` an end without children, `missing_end` an end that never comes. `service_clock`
asks for the service's time once for many threads.
"""
