"""Fleets: an application's workers on Spark executors, supervised by the Spark driver.

Read `fleet` first, the handle of the user, and `worker/supervision`, which decides. Here is what is
Spark's: `spark_launcher` submits jobs, whose tasks run an `executor_worker`, and hears them at its
`control_server`. Both ends speak `channel`, over `channel_tls`. `fleet_options` are the user's;
`terminal_view` is the live view. `running` is what ``run`` of an application does with several
workers, on executors or not, and makes a Spark session where a command has none.
"""
