"""The streams whose leases may be deleted: they have left, and nobody reads them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from sparkinesis.lease.lease import Lease, leases_by_stream
from sparkinesis.stream.address import StreamIdentifier


def unread_former_streams(
    leases: Iterable[Lease],
    is_wanted: Callable[[StreamIdentifier], bool],
    expired: Collection[str] = (),
) -> frozenset[StreamIdentifier]:
    """Return the streams that have leases, that are not wanted, and that no live worker reads.

    ``is_wanted``: returns True for a stream of the application. ``expired``: keys of leases whose
    owners have not renewed them for a failover time.

    Another worker may read a stream that this one does not want, as during a deployment.
    """

    def is_read(lease: Lease) -> bool:
        has_owner = lease.actual_owner is not None and lease.key not in expired
        return has_owner and not lease.is_finished

    return frozenset(
        stream
        for stream, own in leases_by_stream(leases).items()
        if stream is not None and not is_wanted(stream) and not any(map(is_read, own))
    )


def observe_former(
    since: Mapping[StreamIdentifier, float], former: Collection[StreamIdentifier], now: float
) -> dict[StreamIdentifier, float]:
    """Return the time since which each stream is former and unread, after one more scan."""
    return {stream: since.get(stream, now) for stream in former}


def left_streams(
    since: Mapping[StreamIdentifier, float], now: float, grace: float
) -> frozenset[StreamIdentifier]:
    """Return the streams that no worker of the application wants any more.

    ``grace``: seconds in which a worker that wants a stream takes its leases, once these are free.
    The other workers' sets of streams are not known: a stream that none has taken in that time has
    left them all.
    """
    return frozenset(stream for stream, at in since.items() if now - at >= grace)


def deletable_streams(
    since: Mapping[StreamIdentifier, float],
    now: float,
    *,
    grace: float,
    delete_after: float | None,
    only: Collection[str] | None = None,
) -> list[StreamIdentifier]:
    """Return the streams whose leases are to be deleted now, in order.

    ``delete_after`` and ``only`` as in `sparkinesis.FormerStreams`; ``grace`` as above.
    """
    if delete_after is None:
        return []
    return sorted(
        stream
        for stream in left_streams(since, now, max(grace, delete_after))
        if only is None or stream.name in only or str(stream) in only
    )
