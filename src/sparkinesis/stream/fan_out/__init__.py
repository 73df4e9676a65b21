"""Enhanced fan-out: registered consumers, and cursors over subscriptions.

`cursor` reads a shard and renews its subscription; `interruption` says why one ended and how long
to wait. `consumers` calls for the registered consumers, and registers that of all workers;
`socket_watch` waits for many sockets in one thread.
"""
