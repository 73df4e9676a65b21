"""Streaming queries as a subject: the source's own planner and readers, driven by a model of Spark.

The model is `engine` (micro-batches), `cluster` (tasks) and `checkpoint`, with a sink. `expected`
computes what the sink must hold in the end, which rows may be missing, and why; `invariants`
compare. `world` installs the source's clients and clocks.
"""
