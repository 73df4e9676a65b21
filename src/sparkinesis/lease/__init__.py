"""Leases: which worker reads which shard, and how far it has come.

`table` holds the calls on the DynamoDB table and `rules` the pure decisions; the modules here run
them for a worker.
"""
