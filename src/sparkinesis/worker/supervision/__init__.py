"""Supervised workers: several of one application, as tasks of Spark or as processes.

Read `supervisor` first: one loop takes events, decides by `supervisor_state`, and has a launcher
act; it has the pages of all workers. Of the state, `roster` has the workers that there are and
should be, and `reconciling` finds the actions and counts restarts. `gathered_reports` keeps what
workers report, `unread` which streams and shards are not read.
`hosted_worker` runs one worker, and sends `control_messages`. What is launched is `supervised`: an
application with leases (``application.py``), or one of a queue (``queue/application.py``), which
can be sent to another process. `processes` begins workers in processes of this machine, which a
`process_launcher` makes and ends; a `worker_process` ends with the pipe to its supervisor. The
launcher of Spark is in `fleet`.
"""
