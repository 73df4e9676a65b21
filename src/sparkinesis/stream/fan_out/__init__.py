"""Enhanced fan-out: registered consumers, and cursors over subscriptions.

`cursor` reads a shard, over one `current_subscription` after the other; `interruption` says why one
ended, and when the next one is made. `consumers` calls for the registered consumers, and registers that of all workers;
`socket_watch` waits for many sockets in one thread.
"""
