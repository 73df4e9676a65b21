"""The programming interfaces of other Kinesis libraries, implemented on record processors."""
