"""What a worker reports: its events, failures, measurements, gauges and health.

`event_log` publishes each event once: to the log, to ``on_event`` and the counters.
`shard_reporter` makes the events of a shard and measures it, `failures` counts errors. `gauges`
feed the metrics, `cloudwatch` sends some; `health` answers for the worker. `log_context` names the
place of a line in the log.
"""
