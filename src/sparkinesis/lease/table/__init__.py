"""The lease table in DynamoDB: its rows, conditional writes, batches, and its creation."""
