"""The programming interfaces of other Kinesis libraries, on record processors of sparkinesis."""
