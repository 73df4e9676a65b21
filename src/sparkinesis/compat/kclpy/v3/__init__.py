"""The interface with ``lease_lost`` and ``shard_ended``."""
