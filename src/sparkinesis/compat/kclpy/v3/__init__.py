"""Version 3 of amazon_kclpy's interface, with ``lease_lost`` and ``shard_ended``.

`processor` has the base class, and the adapter for processors of version 2.
"""
