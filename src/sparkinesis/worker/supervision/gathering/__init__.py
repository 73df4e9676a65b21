"""What a supervisor knows of its workers by their reports. Pure.

`reports` makes the status of all; `series` adds up metrics, `streams` says which stream cannot be
read where, `unread` which shards nobody reads.
"""
