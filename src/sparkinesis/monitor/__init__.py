"""The state of each shard, read from the lease table and the stream.

One reader serves all commands that show an application. `lease_monitor` reads again and again:
`watched` compares scans of the table, `lags` are asked for. `application_snapshot` has
each fact once; `lease_report` makes views, objects and texts of it, `metrics_exporter` gauges.

For commands: `chosen_streams` names the streams of a table, and reads ``--stream``;
`reset_arguments` parses a position, and requires that streams can be moved. Folder: `doctor`.
"""
