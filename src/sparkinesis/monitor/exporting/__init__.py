"""Gauges of an application by its lease table and streams, for when no worker lives."""
