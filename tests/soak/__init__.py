"""Everything real at once, under faults: ``make soak MINUTES=20``.

`soak` runs a local Kinesis with its limits, and faults for a quarter of each minute (`weather`); a
`producer`; two Spark drivers with a `query` each, one of which also hosts a fleet; and three
workers, by polling and by enhanced fan-out. Between a calm phase at the start and one at the end
(`course`), shards are split and merged, and processes are killed, stopped for longer than the
failover time, and shut down.

At the end, code of other projects reads the stream (`stored`). Both queries must have returned its
records exactly once, and the workers must have processed all of them, each key in order. Each
repeated record must be explained by a fault of a worker (`accounting`). Processes that live
throughout must not grow (`growth`): a table shows their memory, threads, sockets and files every
minute. Starting and settling take some minutes more than ``MINUTES``. A soak that fails keeps its
logs. ``make test`` tests only the conclusions that a soak draws (`test_soak`).
"""
