"""The worker and its loops; and the shard consumers, from a page to `process_records`."""
