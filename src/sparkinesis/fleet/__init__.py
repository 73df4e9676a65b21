"""Fleets: an application's workers on Spark executors, managed by the Spark driver."""
