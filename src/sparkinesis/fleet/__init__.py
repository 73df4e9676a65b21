"""Fleets: an application's workers on Spark executors, supervised by the Spark driver.

Read `fleet` first, the handle of the user; `driver` is the thread behind it, which gets messages,
decides by `knowledge` and acts: it submits `jobs`, whose tasks run an `executor_worker`, a
`worker/crew/hosted_worker`. Messages go through `channel`. `options` are the user's; `view` is the
live view on a terminal; `own_session` makes a Spark session where a command has none.
"""
