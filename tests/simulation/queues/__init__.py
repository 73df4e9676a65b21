"""Applications that consume a queue, as a subject.

A `history` happens to a `world`, in which whole `QueueWorker`s run. Their calls go to the queue of
a local Kinesis through `service`, which notes each delivery and what became of it; `handler` notes
each call of the application's handler. `invariants` compare the two.
"""
