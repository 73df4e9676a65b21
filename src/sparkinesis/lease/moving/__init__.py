"""Moves an application: to another position, or to the other kind of lease table.

`application_reset` acts by `lease/rules/reset`; `checkpoint_search` finds a record to checkpoint.
`application_restart` restarts `stopped_shards`. `conversion` plans, and `table_conversion` writes
the other kind of rows.
"""
