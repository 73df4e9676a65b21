"""What a worker reports: its events, failures, measurements, gauges and health.

`teller` publishes each event once: to `event_log`, to ``on_event`` (`callback`) and the counters.
`shard_reporter` makes the events of a shard, `failures` counts errors. `measures` and `gauges` feed
the metrics, `cloudwatch` sends some; `health` answers for the worker, `progress` logs a line a
minute, `log_context` names the shard on log lines.
"""
