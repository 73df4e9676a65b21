"""A worker's failures, counted, and the application, worker and shard in its log lines."""
