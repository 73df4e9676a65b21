"""The interface with ``shutdown(shutdown_input)`` for the end of a shard and for a lost lease."""
