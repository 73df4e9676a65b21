"""Commands that move an application.

`reset` moves it to another position, `restart` has stopped shards read again, and `convert_leases`
changes between the rows of one stream and those of several. Each asks and reports; `lease/moving`
plans and writes.
"""
