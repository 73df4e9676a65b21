"""Writing user records to a stream with PutRecords, with order and retries."""
