"""Version 2 of amazon_kclpy's interface: ``shutdown`` reports shard ends and lost leases.

`processor` has the base class, and the adapter for processors of version 1.
"""
