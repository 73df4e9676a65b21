"""Measures sparkinesis beside the other libraries that consume Kinesis from Python."""
