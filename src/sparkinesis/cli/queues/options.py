"""What commands on queues share: the name of a queue, its client, and the objects they print."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from sparkinesis.monitor.lease_report import instant_text
from sparkinesis.stream.address import CredentialSource

if TYPE_CHECKING:
    from sparkinesis.queue.client import QueueClient, Received, RecordCalls
    from sparkinesis.queue.finding import Queues

Queue: TypeAlias = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue: a name or an ARN.")
]


def queues_at(region: str | None, endpoint: str | None, profile: str | None) -> Queues:
    """Return the queues of a place."""
    from sparkinesis.queue.finding import Queues  # noqa: PLC0415 - slow to import

    return Queues(region, endpoint, CredentialSource(profile))


def client_of(
    queue: str,
    region: str | None,
    endpoint: str | None,
    profile: str | None,
    calls: RecordCalls | None = None,
) -> QueueClient:
    """Return the client of a queue of a place, by its name or ARN. calls: see `QueueClient`."""
    from sparkinesis.queue.client import RECORDS, QueueClient  # noqa: PLC0415 - slow to import

    address = queues_at(region, endpoint, profile).locate(queue)
    return QueueClient(address, calls=calls or RECORDS)


def time_text(seconds: Any) -> str | None:
    """Return epoch seconds as text, in UTC; None if there are none."""
    at = None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
    return instant_text(at)


def received_object(one: Received) -> dict[str, Any]:
    """Return the object of a record that a queue has delivered, without its data and its keys."""
    return {
        "record_id": one.record_id,
        "receive_count": one.receive_count,
        "arrived_at": time_text(one.arrived_at),
        "first_received_at": time_text(one.first_received_at),
    }
