"""Applications that consume a queue: the service delivers records one by one, and again.

- `QueueApplication`: a queue, and the handler of its records; `QueueWorker` is one that runs
- `QueueRecord`: what a handler gets
- `QueueOptions`: how long records are held, how many wait in hand, how long a shutdown takes
- `NewQueue`: how a queue is made that is not there yet
"""

# In this folder, in the order in which a record passes: `address` and `finding` say which queue it
# is, or make it; `client` makes the calls on it, and says what errors mean. `receiving` polls, for
# as many records as there is room for. `handling` calls the handler with a `record`, and decides
# what follows from an error. `holds` extends, acknowledges and returns, in calls of `lanes`. The
# rules of all of these are in `hold_rules`, and what they share in `settings`. `worker` puts them
# together, and ends them in order. An `application` has a worker, with `options`.

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkinesis.queue.application import QueueApplication
    from sparkinesis.queue.finding import NewQueue
    from sparkinesis.queue.options import QueueOptions
    from sparkinesis.queue.record import QueueRecord
    from sparkinesis.queue.worker import QueueWorker

__all__ = ["NewQueue", "QueueApplication", "QueueOptions", "QueueRecord", "QueueWorker"]

_HOMES = {
    "NewQueue": "finding",
    "QueueApplication": "application",
    "QueueOptions": "options",
    "QueueRecord": "record",
    "QueueWorker": "worker",
}
"""Inner modules of the names. Imported lazily: each module of the folder imports this one first."""


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"sparkinesis.queue.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
