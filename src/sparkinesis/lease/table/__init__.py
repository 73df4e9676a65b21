"""The lease table in DynamoDB: its rows, conditional writes, batches, and its creation.

`table` makes the calls, by `calls` and `client`; `rows` reads rows, `requests` builds each
conditional write as an `update`; `write_conflict` tells a worker's own writes from those of others.
`batching` decides whether writes go together, `batch` sends them. `address` and `provisioning` find
and create the table; `row_table` has rows that are no leases; `explain` translates errors,
`measured_client` measures.
"""
