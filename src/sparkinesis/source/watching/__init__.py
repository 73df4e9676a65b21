"""Watching streaming queries: their progress, as values and as metrics.

`watch` listens to a session, and serves metrics and lags; `query_progress` reads what the planner
wrote (`source/stream_report`), also as a lag, and `watched_query` makes metrics of it.
"""
