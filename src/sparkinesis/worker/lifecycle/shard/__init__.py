"""The consumer of one shard: its states, and the way of its pages to a record processor.

`consumer` runs the tasks that `states` allow. `starting` finds where to begin (`own_start`: where
the processor says). `intake` makes batches of pages, by `selection`; `delivery` hands them over,
`concurrent_delivery` several at a time by `open_records`; `reaction` decides after a failure,
`automatic_checkpoints` when to checkpoint. `last_calls` ends the processor. `standing` says how far
the shard is behind.
"""
