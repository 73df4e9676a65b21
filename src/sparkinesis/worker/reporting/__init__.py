"""What a worker reports: its events, failures, measurements, gauges and health.

`teller` publishes each event once: to `event_log`, to ``on_event`` and the counters.
`shard_reporter` makes the events of a shard and measures it, `failures` counts errors. `gauges`
feed the metrics, `cloudwatch` sends some; `health` answers for the worker, `progress` logs a line a
minute, `log_context` names the shard on log lines.
"""
