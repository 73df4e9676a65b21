"""Record processors: workers that share a stream's shards by leases and hand over records.

What a user touches: `options` (and `aws_options`), `on_error`, `checkpointer` (by
`checkpoint_rules`), and in folders `processors` and `batches`. `application_settings` checks it.

`lifecycle` makes and runs a worker and its shard consumers, `retrieval` fetches, `sink` and
`dead_letters` store, `reporting` reports, `supervision` leads several workers.
docs/how-it-flows.md follows a page to ``process_records``.
"""
