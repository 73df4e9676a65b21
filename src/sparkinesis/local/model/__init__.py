"""The state of a local Kinesis: streams, shards, consumers, subscriptions, limits. No I/O."""
