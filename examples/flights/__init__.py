"""The demo: a year of real flights through a local Kinesis and Spark, every event exactly once."""
