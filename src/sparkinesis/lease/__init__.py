"""Leases: which worker reads which shard, and how far it has come.

`lease` is a row, `extended_sequence_number` its checkpoint. `coordinator` leads each row through a
scan: `observer` scans the table, `lease/rules/taker` decides, `acquisitions` takes, and `renewer`
holds the leases taken and renews them; `scan_schedule` says when the next scan comes. A `held`
lease writes to its row, for its `term`.

Folders, each with a map of its own: `rules` has the pure decisions, `table` the calls on DynamoDB,
`assignment` what a leader needs that assigns leases, `shards` what creates and deletes leases,
`moving` what an operator does. docs/how-it-flows.md follows a row to its consumer;
docs/lease-protocol.md is the specification.
"""
