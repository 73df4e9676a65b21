"""Version 2 of amazon_kclpy's interface: ``shutdown`` reports shard ends and lost leases."""
