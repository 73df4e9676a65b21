"""The leases and consumers of streams that have left an application of several."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from sparkinesis.errors import OptionError
from sparkinesis.events import FormerStreamDeleted, FormerStreamKept
from sparkinesis.lease.lease import Lease, leases_by_stream
from sparkinesis.lease.rules.audit import (
    deletable_streams,
    left_streams,
    observe_former,
    unread_former_streams,
)
from sparkinesis.lease.rules.observations import Snapshot
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.metrics.catalogue import LEASES_DELETED
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.worker.lifecycle.settings import WorkerSettings
from sparkinesis.worker.lifecycle.streams.background import Background, LastingProblem
from sparkinesis.worker.lifecycle.streams.open_stream import OpenStream
from sparkinesis.worker.lifecycle.streams.stream_config import FormerStreams
from sparkinesis.worker.reporting.log_context import LogPlace


class FormerLeases:
    """Ends what streams that have left still have, when it is time. For one thread."""

    def __init__(self, table: LeaseTable, former: FormerStreams, settings: WorkerSettings) -> None:
        self._metrics = settings.metrics
        self._publish = settings.publish
        self._table = table
        self._former = former
        self._grace = 2 * settings.options.failover_time
        """Seconds; see `left_streams`."""
        self._clock = settings.clock
        self._problem = LastingProblem(
            settings, "Deleting the leases of former streams fails", "will be retried"
        )
        place = LogPlace(settings.application, settings.worker_id)
        self._farewells = Background[None]("leave-stream", 1, place)
        self._since: dict[StreamIdentifier, float] = {}
        """The time since which a stream of the table is former, and nobody reads it."""

    @property
    def count(self) -> int:
        """The streams with leases that nobody reads or wants. For any thread."""
        return len(self._since)

    def observe(self, seen: Snapshot, is_wanted: Callable[[StreamIdentifier], bool]) -> None:
        """Note the streams that nobody reads, by a scan of the table."""
        former = unread_former_streams(seen.leases, is_wanted, seen.expired)
        self._since = observe_former(self._since, former, self._clock())

    def left(self, is_wanted: Callable[[StreamIdentifier], bool]) -> frozenset[StreamIdentifier]:
        """Return the streams with leases that no worker of the application wants any more."""
        self._since = {key: at for key, at in self._since.items() if not is_wanted(key)}
        return left_streams(self._since, self._clock(), self._grace)

    def finish(self, read: Mapping[StreamIdentifier, OpenStream]) -> None:
        """Deregister the consumers of streams that this worker has read, in the background."""
        for stream, one in read.items():
            self._farewells.start(stream, partial(one.retrieval.finish, lambda: True))
        self._farewells.collect()

    def delete(
        self,
        seen: Snapshot,
        is_wanted: Callable[[StreamIdentifier], bool],
        is_ending: Callable[[], bool],
    ) -> None:
        """Delete the leases that are due. For the elected worker."""
        try:
            self._delete_due(seen, is_wanted, is_ending)
        except Exception as error:  # noqa: BLE001 - of the user's function, or of the table
            self._problem.note(error)
        else:
            self._problem.end()

    def _delete_due(
        self,
        seen: Snapshot,
        is_wanted: Callable[[StreamIdentifier], bool],
        is_ending: Callable[[], bool],
    ) -> None:
        after = self._former.delete_after
        if after is None or not self.left(is_wanted):
            return
        only = None if self._former.only is None else _names(self._former.only())
        leases = leases_by_stream(seen.leases)
        for stream in deletable_streams(
            self._since, self._clock(), grace=self._grace, delete_after=after, only=only
        ):
            self._delete(stream, leases.get(stream, ()), is_ending)

    def _delete(
        self, stream: StreamIdentifier, leases: Iterable[Lease], is_ending: Callable[[], bool]
    ) -> None:
        deleted = 0
        # Newer shards first: what remains after a crash are ancestors, which lead to the others.
        for lease in sorted(leases, key=lambda one: one.shard_id, reverse=True):
            if is_ending():
                return
            if not self._table.delete(lease):
                self._publish(FormerStreamKept(stream.name, str(stream)))
                return
            deleted += 1
            self._metrics.add(LEASES_DELETED, (stream.name,))
        unread_for = self._clock() - self._since.pop(stream)
        self._publish(FormerStreamDeleted(stream.name, str(stream), deleted, unread_for))


def _names(answer: object) -> Collection[str]:
    """Return the names that the user's function gave. Raises `OptionError`."""
    names = None if isinstance(answer, str) or not isinstance(answer, Iterable) else list(answer)
    if names is None or not all(isinstance(name, str) for name in names):
        raise OptionError(
            f"The function only of FormerStreams returned {answer!r}; it must return streams, as "
            "names or as <account>:<stream>:<creation epoch>. No lease was deleted."
        )
    return frozenset(names)
