"""Parquet files that a record processor writes, stored before each checkpoint.

`sink` takes rows and flushes before `worker/checkpointer` writes; `plan` has the schema and the
directories, `storage` makes files durable.
"""
