"""The consumer of one shard: its states, and the way of its pages to a record processor.

`consumer` runs the tasks that `states` allow. A page's way, in order: `fetching` keeps a fetcher
running, `batcher` makes batches of its pages (`starting` is where the shard begins, `selection`
what is delivered), `processing` hands them on step by step, and `delivery` to the processor, or
`concurrent_delivery` several records at a time. `reaction` decides after a failure,
`automatic_checkpoints` when to checkpoint. `processor_lifecycle` makes the processor's first and
last calls. `lag` is what the consumer's thread publishes for others: its calls, its task, and how
far the shard is behind; `shard_view` makes a status of that.
"""
