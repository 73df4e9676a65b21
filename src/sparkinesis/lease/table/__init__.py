"""The lease table in DynamoDB: its rows, conditional writes, batches, and its creation.

`table` makes the calls, by `calls` and `client`, where a table's address is, too; `provisioning`
creates it. `rows` reads rows, `requests` builds each conditional write as an `update`, `fencing`
numbers acquisitions; `write_conflict` tells a worker's own writes from those of others. `batching`
decides whether writes go together, `statements` sends them. `calls` has rows that are no leases,
too, and what errors mean.
"""
