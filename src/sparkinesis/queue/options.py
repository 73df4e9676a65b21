"""The options of an application that consumes a queue, and what those of leases are here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

from sparkinesis.errors import Check, OptionError, check_all
from sparkinesis.events import Event
from sparkinesis.metrics.health.http_address import parse_address
from sparkinesis.metrics.metrics import MetricsExporter
from sparkinesis.public import public_queue
from sparkinesis.queue.address import LONGEST_VISIBILITY, check_whole
from sparkinesis.worker.aws_options import require_listener

LONGEST_POLL = 20
"""The longest wait of a receive in seconds; the shortest is 1 (API reference)."""
_MIB = 1_048_576
_NO_SHARDS = "a queue has no shards, and nothing is shared out: start as many processes as you like"
_NO_CHECKPOINTS = "a queue has no checkpoints: a handler that returns has acknowledged its record"
_OF_LEASES: Mapping[str, str] = {
    "stream": "create=NewQueue(stream=...) makes a queue of a stream; else the queue knows its own",
    "streams": "a queue has one stream: make a QueueApplication for each",
    "processor": "handler is the function that takes a record",
    "initial_position": "create=NewQueue(stream, starting_position=...) says it, once for all",
    "table_name": "a queue has no lease table",
    "dynamodb_endpoint": "a queue has no lease table",
    "checkpoint_seconds": _NO_CHECKPOINTS,
    "checkpoint_records": _NO_CHECKPOINTS,
    "failover_time": "visibility_timeout is the time after which the records of a killed process "
    "come again",
    "max_leases": _NO_SHARDS,
    "parents_first": _NO_SHARDS,
    "retrieval": "a queue's records are received, neither polled nor pushed by shard",
    "fan_out": "a queue's records are received, neither polled nor pushed by shard",
    "max_records": "batch_size of the QueueApplication is the most records of a call",
    "idle_time": "wait_time is how long a receive waits",
    "skip_older_than": "let the handler return at once, by record.approximate_arrival_timestamp",
    "processing_time_limit": "time_limit ends the hold of a record",
}
"""Words of applications with leases that mean nothing here, and what serves instead."""

_C = TypeVar("_C", bound=type)


def refuses_words_of_leases(cls: _C) -> _C:
    """Have a class raise `OptionError` for words of applications with leases, saying what serves.

    A decorator. Python's own error for any other word is clear.
    """
    made: Any = cls
    own = made.__init__

    @wraps(own)
    def checked(self: object, *given: Any, **named: Any) -> None:
        for word in named:
            if word in _OF_LEASES:
                raise OptionError(
                    f"{word} is for applications with leases, and not for {cls.__name__}: "
                    f"{_OF_LEASES[word]}."
                )
        if len(given) > 2 and (callable(given[2]) or ":" in str(given[2])):
            raise OptionError(
                f"{cls.__name__} was given {len(given)} arguments by position, the third a "
                "processor, as applications with leases take name, stream and processor. It takes "
                f"queue and handler: {_OF_LEASES['stream']}. Give name=... for logs and metrics."
            )
        own(self, *given, **named)

    made.__init__ = checked
    return cls


@public_queue
@refuses_words_of_leases
@dataclass(frozen=True, slots=True)
class QueueOptions:
    """The options of a `QueueApplication`. Durations are in seconds.

    Raises `OptionError` for a value that cannot be used.
    """

    wait_time: int = 9
    """Default: 9 s, the service's. How long a receive waits for records, 1 to 20, but no longer
    than half of a hold. An idle process makes one call in this time; a shutdown waits for the
    receive that is under way."""
    visibility_timeout: int | None = None
    """Default: None, the queue's. How long a received record is held before it is extended, 2 to
    43,200 s. Shorter: the records of a killed process come again sooner; longer: fewer calls."""
    extend: bool = True
    """Default: True. Records in hand are extended, those that wait and those that run."""
    time_limit: float = 3_600.0
    """Default: one hour. The longest time for which a record is held, extensions included. After it
    the handler is told (`QueueRecord.is_held`; a coroutine is cancelled), and the record comes
    again: a handler that hangs would keep its record for ever."""
    acknowledge_within: float = 0.005
    """Default: 5 ms. How long an acknowledgement waits for others: up to ten share a call."""
    max_held_bytes: int = 128 * _MIB
    """Default: 128 MiB. The most bytes of data in hand. One receive may bring 100 MiB."""
    shutdown_timeout: float = 30.0
    """Default: 30 s. The time that running handlers have at a shutdown, counted from the end of the
    receive that is under way."""
    http: str | None = None
    """Default: None. The address at which the worker serves health and metrics, such as
    ``":9400"``: see ``docs/health.md``."""
    metrics: tuple[MetricsExporter, ...] = ()
    """Default: (). The systems that metrics are published to."""
    on_event: Callable[[Event], object] | None = None
    """Default: None. A function that gets each event, such as `HandlerFailed`, as a value. It is
    called in a thread of its own, so it may be slow and may raise. While 1,000 events wait for it,
    further ones are dropped."""

    def __post_init__(self) -> None:
        check_all(self._checks())

    def _checks(self) -> Iterator[Check]:
        for name, least, most in (
            ("wait_time", 1, LONGEST_POLL),
            ("visibility_timeout", 2, LONGEST_VISIBILITY),
            ("max_held_bytes", _MIB, 1 << 40),
        ):
            value = getattr(self, name)
            if value is not None or name != "visibility_timeout":
                yield (name,), partial(check_whole, name, value, least, most)
        yield ("time_limit",), partial(self._seconds, "time_limit", 1.0)
        yield ("acknowledge_within",), partial(self._seconds, "acknowledge_within", 0.0, 1.0)
        yield ("shutdown_timeout",), partial(self._seconds, "shutdown_timeout", 0.0)
        if self.http is not None:
            yield ("http",), partial(parse_address, "http", self.http)
        yield ("on_event",), partial(require_listener, self.on_event)

    def _seconds(self, name: str, least: float, most: float = float(LONGEST_VISIBILITY)) -> None:
        value = getattr(self, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            raise OptionError(
                f"{name} is {value!r}; it must be a number of seconds from {least:g} to {most:g}."
            )


DEFAULT_QUEUE_OPTIONS = QueueOptions()
