"""Tells each event once to everybody: to the log, to the counters and to ``on_event``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from sparkinesis import events as of
from sparkinesis.events import Event, Listener
from sparkinesis.lease.lease import parse_lease_key
from sparkinesis.metrics.catalogue import (
    BATCHES_FAILED,
    DATA_LOSS,
    DEAD_LETTERS,
    LEASES_CREATED,
    LEASES_DELETED,
    LEASES_LOST,
    LEASES_RELEASED,
    LEASES_REQUESTED,
    LEASES_TAKEN,
    RECORDS_SKIPPED,
    STREAMS_DELETED,
)
from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import OFF, Labels, Metrics
from sparkinesis.worker.reporting.callback import EventCallback
from sparkinesis.worker.reporting.event_log import EventLog
from sparkinesis.worker.reporting.log_context import LogPlace


class Teller:
    """Takes the events of a worker, from any thread. The base class discards them.

    It returns at once, and raises nothing.
    """

    def __call__(self, event: Event, cause: BaseException | None = None) -> None:
        """Tell an event. ``cause``: the error whose traceback the log line shows."""

    def close(self) -> None:
        """Tell what is left to be told, for a few seconds at most."""


TELL_NOBODY = Teller()


class EventTeller(Teller):
    """Tells each event once to everybody, so that logs, metrics and callbacks agree.

    stream: the name of the application's stream; empty if it reads several.
    """

    def __init__(
        self,
        place: LogPlace,
        stream: str,
        metrics: Metrics = OFF,
        on_event: Listener | None = None,
    ) -> None:
        self._log = EventLog(place.application, place.worker)
        self._stream = stream
        self._metrics = metrics
        self._callback = None if on_event is None else EventCallback(on_event, place, metrics)

    def __call__(self, event: Event, cause: BaseException | None = None) -> None:
        self._log(event, cause)
        if self._metrics is not OFF and (count := count_of(event, self._stream)) is not None:
            self._metrics.add(*count)
        if self._callback is not None:
            self._callback.put(event)

    def close(self) -> None:
        if self._callback is not None:
            self._callback.close()


class Count(NamedTuple):
    """An amount to add to a counter."""

    metric: Metric
    labels: Labels
    amount: float


_COUNTERS: Mapping[type[Event], Metric] = {
    of.LeaseTaken: LEASES_TAKEN,
    of.HandoffRequested: LEASES_REQUESTED,
    of.LeaseCreated: LEASES_CREATED,
    of.LeaseDeleted: LEASES_DELETED,
    of.BatchFailed: BATCHES_FAILED,
    of.RecordsSkipped: RECORDS_SKIPPED,
    of.DeadLettersStored: DEAD_LETTERS,
    of.DataLost: DATA_LOSS,
    of.ParentsLost: DATA_LOSS,
    of.FormerStreamDeleted: STREAMS_DELETED,
}
"""The counter of each kind of event that counts, and whose labels are named like its fields."""


def count_of(event: Event, only_stream: str) -> Count | None:
    """Return what an event adds to which counter; None if it adds nothing. Pure.

    only_stream: the name of the application's stream, if it reads one: its leases name no stream.
    """
    metric = _COUNTERS.get(type(event))
    if isinstance(event, of.LeaseEnded):
        metric = LEASES_RELEASED if event.reason.is_planned else LEASES_LOST
    if metric is None:
        return None
    amount = event.records if isinstance(event, of.RecordsSkipped | of.DeadLettersStored) else 1.0
    return Count(metric, tuple(_label(event, name, only_stream) for name in metric.labels), amount)


def _label(event: Event, label: str, only_stream: str) -> str:
    field = "shard_id" if label == "shard" else label
    value = getattr(event, field, None)
    if value is None and isinstance(event, of.LeaseEvent):
        stream, _ = parse_lease_key(event.lease)
        return only_stream if stream is None else stream.name
    return str(value.value if isinstance(value, Enum) else value)
