"""Finds out, with few and cheap calls, which records a shard has, and where a batch ends.

`shard_prober` makes the calls: its `shard_front` is the first records (`records_in_hand`), its
`samples` are later ones; `survey` weighs both, with `arrival_density` as estimate. `end_in_shard`
finds the last record up to the instant. `look_period` is the pause between probes, `carried` what
tasks need not fetch.
"""
