"""Finds out, with few and cheap calls, which records a shard has, and where a batch ends.

`shard_prober` conducts. `shard_calls` makes the calls: the first records, which become
`records_in_hand`, and samples of later ones. `survey` weighs both, and estimates the rest.
`end_in_shard` finds the last record up to the instant.
"""
