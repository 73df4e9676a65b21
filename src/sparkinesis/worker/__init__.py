"""Record processors: workers that share a stream's shards by leases and hand over records."""
