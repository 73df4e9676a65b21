"""Watching streaming queries: their progress, as values and as metrics.

`watch` listens to a session; `progress` reads what the planner wrote (`source/stream_report`),
`watched_query` makes metrics of it, `query_lag` is a lag as value, `endpoint` serves them.
"""
