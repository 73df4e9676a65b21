"""Leases: which worker reads which shard, and how far it has come.

`lease` is a row, `extended_sequence_number` its checkpoint. `coordinator` runs everything for a
worker: it scans the table, acquires leases (`acquisitions`), and hands them to `renewer`, which
renews each `held` lease and notices a lost one. `stream_leases` reads and creates the leases of a
stream, `shard_syncer` compares them with the shards at the start and in audits, `shard_ends`
creates the children's at the end of a shard; `row_problems` logs broken rows.

Folders: `rules` has the pure decisions, `table` the calls on DynamoDB, `leading` what a leader
needs that assigns leases, `moving` what an operator does. docs/how-it-flows.md follows a row to its
consumer; docs/lease-protocol.md is the specification.
"""
