"""Enhanced fan-out: registered consumers, and cursors over subscriptions.

`cursor` reads a shard and renews its subscription; `interruption` says why one ended and how long
to wait. `registration` registers the consumer of all workers by the calls in `consumers`;
`socket_watch` waits for many sockets in one thread.
"""
