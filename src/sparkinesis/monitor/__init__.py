"""The state of each shard, read from the lease table and the stream.

One reader serves all commands that show an application. `lease_monitor` reads again and again:
`watched` compares scans of the table, `lag_watch` asks for the `lags` of the streams that
`lag_streams` finds. `seen` is the snapshot, each fact once; `application_view` makes a view and an
object of it, `lease_report` rows and texts.

For commands: `streams` names the streams of a table, `chosen_streams` reads ``--stream``,
`readable_streams` requires that streams can be moved, `target` parses a position. Folders:
`doctor`, `exporting`.
"""
