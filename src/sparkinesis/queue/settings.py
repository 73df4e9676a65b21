"""What the parts of a receiver share: the queue's calls, its time, and whom they tell."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import Metrics
from sparkinesis.queue.client import QueueClient
from sparkinesis.queue.hold_rules import Uniform
from sparkinesis.stream.timing import Timing
from sparkinesis.worker.reporting.event_log import EventPublisher


class ReceiverSettings(msgspec.Struct, frozen=True):
    """A receiver of a queue, as each of its parts knows it."""

    client: QueueClient
    timing: Timing
    uniform: Uniform
    metrics: Metrics
    publish: EventPublisher
    fail: Callable[[BaseException, str | None], None]
    """Takes the error that ends the receiver, and the operation, if it is that of a call."""

    @property
    def of(self) -> tuple[str, str]:
        """The first fields of an event of the queue: its short name, and where it is."""
        address = self.client.address
        return address.name_or_id, str(address)

    def count(self, metric: Metric, amount: float, *labels: str) -> None:
        """Add to a counter of the queue, whose further labels these are."""
        self.metrics.add(metric, (self.client.address.name_or_id, *labels), amount)
