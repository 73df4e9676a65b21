"""The state of each shard, read from the lease table and the stream.

One reader serves all commands that show an application. `lease_monitor` reads again and again:
`watched` compares scans of the table, `lag_watch` asks for the `lags`. `seen` is the snapshot, each
fact once; `lease_report` makes views, objects and texts of it. `exporter` makes gauges.

For commands: `streams` names the streams of a table, `chosen_streams` reads ``--stream``,
`reset_arguments` parses a position, and requires that streams can be moved. Folder: `doctor`.
"""
