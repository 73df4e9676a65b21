"""The state of each shard, read from the lease table and the stream.

One reader serves all commands that show an application.
"""
