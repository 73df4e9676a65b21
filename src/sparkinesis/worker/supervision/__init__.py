"""Supervised workers: several of one application, as tasks of Spark or as processes.

Read `supervisor` first: one loop takes events, decides by `supervisor_state`, and has a launcher
act; it has the pages of all workers. Of the state, `roster` has the workers that there are and
should be, `reconciling` finds the actions and counts restarts, `notes` are the texts.
`gathered_reports` keeps what workers report, `unread` which streams and shards are not read.
`hosted_worker` runs one worker, and sends `control_messages`. What is launched is `supervised`: an
application with leases (``application.py``), or one of a queue (``queue/application.py``), which
can be sent to another process. The launcher of processes is in `processes`, that of Spark in
`fleet`.
"""
