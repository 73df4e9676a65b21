"""Commands on queues and their records.

`commands` has those on a queue as a whole, prints records, and puts all of them together; `options`
is what they share. `dead_letters` lists dead letters, restores, discards and exports
them. All receive by `holding`, which chooses among dead letters, as there is no call that only
looks.
"""
