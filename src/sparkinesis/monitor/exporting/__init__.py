"""Gauges of an application by its lease table and streams, for when no worker lives.

`loop` reads and serves, `gauges` makes the values.
"""
