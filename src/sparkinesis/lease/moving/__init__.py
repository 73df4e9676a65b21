"""Moves an application: to another position, or to the other kind of lease table.

`application_reset` acts by `lease/rules/reset_plan`, and `checkpoint_search` finds the records to
checkpoint. `stopped_shards` restarts the shards that ``on_error`` has stopped. `conversion` gives a
table the rows of the other kind.
"""
