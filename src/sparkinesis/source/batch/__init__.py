"""The batch read: positions and pushed filters become shard ranges with fixed ends.

`batch_reader` is what Spark calls; `batch_planner` lists shards and fixes ends, `filters`
translates Spark's filters, `shard_reads` decides which part of each shard is read.
"""
