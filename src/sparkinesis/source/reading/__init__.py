"""Reading in Spark's tasks, with GetRecords or a subscription.

`read_task` shares a batch out to tasks and makes their rows; `shard_reader` reads one range, by
`stream/reading/range` over a cursor or a `subscribed_cursor`, within budgets that the machine's
processes share, and keeps a page's memory for the next page.
"""
