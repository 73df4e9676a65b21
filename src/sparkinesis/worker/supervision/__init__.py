"""Supervised workers: several of one application, as tasks of Spark or as processes.

Read `supervisor` first: one loop takes events, decides by `supervisor_state`, and has a launcher
act. Of the state, `roster` has the workers that there are and should be, `reconciling` finds the
actions and counts restarts, `notes` are the texts. `gathered_reports` keeps what workers report,
`unread` which streams and shards are not read. `served` has the pages of all. `hosted_worker` runs
one worker, and sends `control_messages`. What is launched is `supervised`: an application with
leases (`supervised_application`), or one of a queue (``queue/application.py``). The launcher of
processes is in `processes`, that of Spark in `fleet`. `pickling` finds the part of an application
that cannot be sent.
"""
