"""Supervised workers: several of one application, as tasks of Spark or as processes.

Read `supervisor` first: one loop, which is told what happens, decides by `supervisor_state` and has
a launcher act. Of the state, `roster` has the workers that there are and should be, `reconciling`
finds the actions, `restarts` counts, `notes` are the texts, and `gathering` keeps what workers
report. `served` has the pages of all. `hosted_worker` runs one worker and sends `messages`, by
`reporter`. The launcher of processes is in `processes`, that of Spark in `fleet`. `pickling` finds
the part of an application that cannot be sent.
"""
