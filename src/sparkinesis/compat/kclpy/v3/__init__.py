"""Version 3 of amazon_kclpy's interface, with ``lease_lost`` and ``shard_ended``."""
