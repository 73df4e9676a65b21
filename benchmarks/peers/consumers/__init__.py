"""One program for each peer: it consumes a stream in the peer's own environment.

    python -m benchmarks.peers.consumers.NAME TASK

These modules import only the peer and the standard library: they run in its environment.
"""
