"""Supervised workers: several of one application, under a fleet's driver or a parent process.

`hosted_worker` runs one and sends `messages`, by `reporter`; the supervisor's end gathers them
(`gathering`) and serves the pages of all (`served`). `processes` is the supervisor of processes;
that of Spark is `fleet`. `pickling` finds the part of an application that cannot be sent.
"""
