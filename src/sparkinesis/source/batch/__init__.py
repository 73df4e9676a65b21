"""The batch read: positions and pushed filters become shard ranges with fixed ends.

`batch_reader` is what Spark calls; `batch_planner` lists shards and fixes ends, `shard_reads`
decides by the options and Spark's filters which part of each shard is read.
"""
