"""Reading a shard: cursors, call budgets, ranges, retention checks, and Arrow batches.

`shard_cursor` reads pages by GetRecords, within a `budget`; `range` reads exactly (start, end],
`following` all shards of a stream as they come. `arrow` makes columns.

What a page may hide: `early_records` from before the position, `retention` lost ones, `shard_end`
an end without children, or an end that never comes.
"""
