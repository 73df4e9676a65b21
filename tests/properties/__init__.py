"""P1 to P10, by the source's planner and readers on a local Kinesis, without Spark."""
