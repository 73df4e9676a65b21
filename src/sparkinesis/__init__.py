"""sparkinesis: a Kinesis Client Library for PySpark."""
