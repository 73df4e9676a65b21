"""Writing user records to a stream with PutRecords, with order and retries.

`putter` makes the calls; `put_queue` chooses what goes into each, and what is put again.
"""
