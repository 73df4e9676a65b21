"""Reading of one shard range by a Spark task, with GetRecords or a subscription.

`read_task` reads by `stream/reading/range`, over a cursor or a `subscribed_cursor`, and yields
`record_rows`. It keeps a page's memory for the next page.
"""
