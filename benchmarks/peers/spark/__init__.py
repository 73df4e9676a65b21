"""Measures the Spark source beside awslabs' connector, format("aws-kinesis"), on the same Spark."""
