"""Enhanced fan-out: registered consumers, and cursors over subscriptions.

`cursor` reads a shard, over one `current_subscription` after the other; `interruption` says why one
ended, and when the next one is made. One thread waits for the sockets of all of them.
`registered_consumers` has their calls, and registers the one that all workers share.
"""
