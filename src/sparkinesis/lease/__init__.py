"""Leases: which worker reads which shard, and how far it has come.

`table` holds the calls on the DynamoDB table, `rules` the pure decisions, and `leading` what fleets
with a leader need besides; the modules here run them for a worker.
"""
