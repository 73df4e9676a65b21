"""Reading of one shard range by a Spark task, with GetRecords or a subscription."""
