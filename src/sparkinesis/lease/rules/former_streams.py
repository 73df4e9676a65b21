"""The streams whose leases may go: they have left the application, and nobody reads them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from sparkinesis.lease.lease import Lease
from sparkinesis.stream.identifier import StreamIdentifier


def unread_former_streams(
    leases: Iterable[Lease],
    wanted: Collection[StreamIdentifier],
    unknown_names: Collection[str] = (),
    expired: Collection[str] = (),
) -> frozenset[StreamIdentifier]:
    """Return the streams that have leases, that are not wanted, and that no live worker reads.

    ``wanted``: the streams of the application. ``unknown_names``: names of streams of the
    application whose identifiers are not known now: all leases of these names are kept.
    ``expired``: keys of leases whose owners have not renewed them for a failover time.

    Another worker may read a stream that this one does not want, as during a deployment.
    """
    former: dict[StreamIdentifier, bool] = {}
    for lease in leases:
        stream = lease.stream
        if stream is None or stream in wanted or stream.name in unknown_names:
            continue
        is_read = (
            lease.actual_owner is not None and lease.key not in expired and not lease.is_finished
        )
        former[stream] = former.get(stream, False) or is_read
    return frozenset(stream for stream, is_read in former.items() if not is_read)


def observe_former(
    since: Mapping[StreamIdentifier, float], former: Collection[StreamIdentifier], now: float
) -> dict[StreamIdentifier, float]:
    """Return the time since which each stream is former and unread, after one more look."""
    return {stream: since.get(stream, now) for stream in former}


def deletable_streams(
    since: Mapping[StreamIdentifier, float],
    now: float,
    delete_after: float | None,
    only: Collection[str] | None = None,
) -> list[StreamIdentifier]:
    """Return the streams whose leases are to be deleted now, in order.

    ``delete_after`` and ``only`` as in `sparkinesis.FormerStreams`.
    """
    if delete_after is None:
        return []
    return sorted(
        stream
        for stream, at in since.items()
        if now - at >= delete_after and (only is None or stream.name in only or str(stream) in only)
    )
