"""Commands against a local Kinesis, and in a real shell."""
