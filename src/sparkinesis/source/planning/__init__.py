"""Planning of micro-batches on the driver: probing shards and deciding where a batch ends.

`source_planner` plans for Spark; `aligned_batch` is the course of one plan over all streams: each
`stream_planner` begins (`start`) and makes a `stream_plan`, which probes its shards (`probing`),
`batch_instant` chooses the instant for all, `batch_end` assembles the offset. docs/how-it-flows.md
has the steps.

Around it: `shard_listing` lists shards, `stream_tools` has a stream's client and budgets,
`probe_threads` are the threads; `kept` saves calls and changes no plan; `lag_trend` warns;
`read_tasks` shares a batch out to tasks.
"""
