"""Planning of micro-batches on the driver: probing shards and deciding where a batch ends.

In the order of a plan: `source_planner` plans for Spark; `aligned_batch` is the course of one plan
over all streams; each `stream_planner` begins (`batch_start`, for a KCL application by
`application_position`) and makes a `stream_plan`, which probes its shards (`probing`);
`batch_instant` chooses the instant for all; `batch_end` assembles the offset. docs/how-it-flows.md
has the steps.

Around it: `stream_tools` has a stream's client and budgets, `kept` its shards and what saves calls
from plan to plan, `probe_threads` are the threads.
"""
