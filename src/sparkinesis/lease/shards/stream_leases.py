"""The leases of one stream, in a table that may have those of a thousand: read and created."""

# Whose the rows are. The shards of all streams have the same ids, and so have the rows of
# applications that read one stream. A stream that was deleted and made anew with more shards once
# kept its old leases: they covered all hash keys, so no audit missed the others. Two applications
# of one name overwrote each other's checkpoints. So a row of an application of one stream names
# that stream (`Lease.mark`), and nothing is written to a table before all of its rows are known to
# be of the stream (`StreamLeases.own_rows`). With several streams, each key names its stream.
#
# The service is asked which stream has the name now, at the start, when a scan or a reader's error
# raises doubts, and once in ten minutes. Rows of a stream of another name, or rows that name no
# stream and contradict this one, refuse the worker: another application may be alive.
#
# Which reads are made. A table may have the rows of a thousand streams, and each stream of a worker
# asks for its own at each audit and cleanup. A Scan for each of them read the table a thousand
# times; a GetItem for each shard costs more than one Scan if there are many (`_KnownShards`).

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from sparkinesis.errors import InconsistentShardsError
from sparkinesis.events import (
    LeaseCreated,
    LeaseDeleted,
    Listener,
    ParentsLost,
    StreamMadeAnew,
    ignore,
)
from sparkinesis.lease.extended_sequence_number import AT_TIMESTAMP
from sparkinesis.lease.lease import Lease, lease_key
from sparkinesis.lease.moving.checkpoint_search import checkpoint_at
from sparkinesis.lease.rules.audit import missing_hash_ranges
from sparkinesis.lease.rules.children import orphaned_children
from sparkinesis.lease.rules.lease_start import LeaseStart, application_start_ms, lease_start
from sparkinesis.lease.rules.other_workers import java_kcl_may_read
from sparkinesis.lease.rules.row_streams import require_no_others, streams_of_rows
from sparkinesis.lease.rules.shard_sync import (
    expired_unread,
    leases_for_empty_table,
    leases_for_partial_table,
)
from sparkinesis.lease.shards.creation import IsLeaving, create_leases, is_never_leaving
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.stream.address import StreamAddress, StreamIdentifier, StreamMark
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, InitialPosition
from sparkinesis.stream.reading.retention import SHORTEST_RETENTION_MS
from sparkinesis.stream.shard import Shard

_log = logging.getLogger(__name__)

_ROWS_FOR_A_CALL = 50
"""The rows that a Scan returns in the time of one GetItem, roughly."""
_TRIES = 5
"""Scans of rows that others change at the same time."""

JAVA_NOTE = (
    "The leases of the %s start at an instant (AT_TIMESTAMP). A Java KCL that shares the table "
    "before each shard has a checkpoint must be configured to start at the same instant. Or use "
    "`sparkinesis reset`, which stores no instants."
)


def made_anew(address: StreamAddress, before: object, now: object) -> StreamMadeAnew:
    """Return the event of a stream that was made anew, as rows of the table name it."""
    return StreamMadeAnew(address.name, str(address), str(before), str(now))


class StreamLeases:
    """The leases of one stream of an application. For any thread.

    stream: None for the only stream of the application. initial: the stream's initial position.
    first: the position at which it begins if no lease shows when the application began at LATEST;
    None: ``initial``. table_size: returns about how many rows the table has. notes: `JAVA_NOTE`,
    until it is logged; shared by the streams of an application. confirm: see the method;
    None: it is the only stream of the application. mark: that only stream, as far as it is known;
    see `own_rows`. brief: retries of a question that others wait for.
    """

    def __init__(
        self,
        client: StreamClient,
        table: LeaseTable,
        worker_id: str,
        *,
        initial: InitialPosition,
        wait: Callable[[float], object],
        stream: StreamIdentifier | None = None,
        first: InitialPosition | None = None,
        table_size: Callable[[], int] = lambda: 0,
        notes: list[str] | None = None,
        confirm: Callable[[], object] | None = None,
        mark: StreamMark | None = None,
        brief: Backoff | None = None,
        publish: Listener = ignore,
    ) -> None:
        self.client = client
        self.table = table
        self.stream = stream
        self.first = initial if first is None else first
        self._initial = initial
        self.wait = wait
        self._confirm = confirm
        self.mark = mark
        """The application's only stream, as it was last; None: there are several."""
        self._brief = brief
        self.publish = publish
        self._shards = _KnownShards(table_size)
        self._java = _JavaReaders(client, table, worker_id, wait, notes)

    @property
    def began_ms(self) -> int | None:
        """The instant (epoch ms) that LATEST means, if that is known before the first lease."""
        if self._initial is LATEST and isinstance(self.first, AtTimestamp):
            return self.first.ms
        return None

    def confirm(self) -> None:
        """Raise an error if the stream may be a later one of its name than the one identified."""
        if self._confirm is not None:
            self._confirm()

    def remember(self, leases: Iterable[Lease]) -> None:
        """Remember the stream's leases by a scan of the table."""
        self._shards.scanned = frozenset(lease.shard_id for lease in leases)

    def list_shards(
        self, at: InitialPosition | None = None, since: AtTimestamp | None = None
    ) -> tuple[list[Shard], int]:
        """Return what `StreamClient.list_shards` returns; remember the shards and parents."""
        shards, now_ms = self.client.list_shards(at=at, since=since)
        parents = frozenset(parent for shard in shards for parent in shard.parents)
        self._shards.listed = parents.union(shard.id for shard in shards)
        return shards, now_ms

    def read(self) -> list[Lease]:
        """Return the leases, as they are now. Raises what `LeaseTable.leases` raises."""
        return self.table.sound(self.scan())

    def scan_table(self) -> TableScan:
        """Return the same by a Scan, which shows leases of any shards; remember those."""
        found = self.table.scan(consistent=True).of(self.stream)
        self.remember(found.leases)
        return found

    def scan(self) -> TableScan:
        """Return the leases and, apart from them, the rows that cannot be read."""
        shards = [] if self.stream is None else self._shards.to_read()
        if not shards:
            return self.table.scan(consistent=True).of(self.stream)
        return self.table.read(lease_key(self.stream, shard) for shard in shards)

    def start(self, leases: Sequence[Lease]) -> tuple[LeaseStart, list[Shard]]:
        """Return the start of shards without leases, and the shards to consider."""
        first_ms, initial = application_start_ms(leases), self._initial_by(leases)
        since: AtTimestamp | None = None
        if isinstance(initial, AtTimestamp):
            since = initial
        elif initial is LATEST and first_ms:
            since = AtTimestamp(first_ms)
        shards, now_ms = self.list_shards(since=since)
        return lease_start(leases, shards, initial, now_ms), shards

    def _initial_by(self, leases: Iterable[Lease]) -> InitialPosition:
        """Return the initial position: `first`, unless leases show the application's instant.

        A worker that heard of the stream later than another one, and could not read it at once,
        would else skip what was put in between.
        """
        is_known = self._initial is LATEST and application_start_ms(leases) is not None
        return LATEST if is_known else self.first

    def create(
        self,
        leases: Iterable[Lease],
        table: TableScan | None = None,
        is_leaving: IsLeaving = is_never_leaving,
    ) -> int:
        """Create leases, given parents before children; return how many did not exist yet.

        ``table``: the whole table a moment ago, if the caller has it.
        """
        created: list[Lease] = []

        def create(lease: Lease, retry: Backoff | None) -> None:
            if self._create(replace(lease.in_stream(self.stream), mark=self.mark), retry):
                created.append(lease)

        create_leases(self._java.readable(list(leases), table), create, is_leaving)
        return len(created)

    def _create(self, lease: Lease, retry: Backoff | None = None) -> bool:
        is_new = self.table.create(lease, retry)
        if is_new:
            self.publish(LeaseCreated(lease.key, lease.shard_id, str(lease.checkpoint)))
        return is_new

    def delete(self, lease: Lease) -> bool:
        """Delete a lease that is still finished, or unchanged; return False if it is neither."""
        is_gone = self.table.delete(lease)
        if is_gone:
            self.publish(LeaseDeleted(lease.key, lease.shard_id))
        return is_gone

    def identify(self) -> StreamMark:
        """Ask the service which stream has the name of the application's only stream now."""
        summary = self.client.describe(self._brief)
        self.mark = StreamMark.of(self.client.stream_arn(), summary.created_ms)
        return self.mark

    def is_own(self, lease: Lease) -> bool:
        """Return True if a lease names the application's only stream, as it was last."""
        mark, mine = lease.mark, self.mark
        return mark is not None and mine is not None and mark.is_stream(mine)

    def own_rows(self, rows: TableScan) -> TableScan:
        """Return the rows of the application's only stream, once all of them are.

        Rows of a deleted stream of the same name are made anew: each shard of the present stream
        gets a lease that begins at the initial position, or with the first record instead of
        LATEST: the application was reading the name before, so no record is to be skipped. Several
        workers may do so at once.

        Raises `LeaseTableError`, before anything is written, for rows of another stream, service
        errors, and `InconsistentShardsError` if answers contradict each other for now.
        """
        for _ in range(_TRIES):
            stream = self.identify()
            is_unnamed = any(row.mark is None for row in rows.leases)
            shards = self.list_shards()[0] if is_unnamed else []
            found = streams_of_rows(rows.leases, shards, stream)
            require_no_others(found, stream, str(self.table))
            if found.newer:
                break
            if not found.former:
                return rows
            self._make_anew(found.former, stream)
            rows = self.scan_table()
        raise InconsistentShardsError(
            f"The {self.table} has leases of a stream {self.client.address} of another creation "
            "time than DescribeStreamSummary tells. The stream may have been deleted and made anew "
            "a moment ago: try again later."
        )

    def _make_anew(self, former: Sequence[Lease], stream: StreamMark) -> None:
        """Put leases of the present stream in the place of a former one's."""
        first = TRIM_HORIZON if self.first is LATEST else self.first
        shards, now_ms = self.list_shards(at=first)
        leases = leases_for_empty_table(shards, first, now_ms)
        rows = {row.shard_id: row for row in former}
        changed = False
        for lease in self._java.readable(leases):
            new, row = replace(lease, mark=stream), rows.pop(lease.shard_id, None)
            if row is None:
                self._create(new)
                continue
            with suppress(LeaseChangedError):  # by another worker, which makes it anew, too
                self.table.write(requests.make_anew(row, new))
                changed = True
        for row in rows.values():
            changed |= self.delete(row)
        if changed:
            before = next(row.mark for row in former if row.mark is not None)
            self.publish(made_anew(self.client.address, before, stream))

    def create_late(
        self,
        missing: Sequence[Lease],
        leases: Iterable[Lease],
        shards: Iterable[Shard],
        begin: LeaseStart,
        is_leaving: IsLeaving = is_never_leaving,
    ) -> None:
        """Create missing leases of an application that began earlier; publish the records lost."""
        self.create(missing, is_leaving=is_leaving)
        expired = expired_unread(missing, leases, shards)
        if not expired or begin.is_now:
            return
        stream = self.client.describe()
        # Assume the shortest period: the stream's own may once have been that short, and the
        # expired shards leave no trace of it.
        if not begin.may_have_lost(stream.service_time_ms, SHORTEST_RETENTION_MS):
            return
        for shard_id, parents in expired:
            key, address = lease_key(self.stream, shard_id), self.client.address
            what = (
                f"The parents of {shard_id} of {address} had no lease, and they have expired: "
                f"{', '.join(parents)}. The stream keeps records for "
                f"{stream.retention_ms / 3_600_000:g} hours. Records in those shards, if any, were "
                f"removed unread. Resuming with {shard_id}."
            )
            self.publish(ParentsLost(key, shard_id, address.name, tuple(parents), what))

    def fill_holes(self, is_leaving: IsLeaving) -> None:
        """Create the missing leases, and add the hash ranges that leases lack."""
        begin, shards = self.start(self.read())
        leases = self.read()
        for lease, hash_range in missing_hash_ranges(leases, shards):
            self.table.write(requests.add_hash_range(lease, hash_range))
        orphans = orphaned_children(leases, shards, begin)
        self.create_late(orphans, leases, shards, begin, is_leaving)
        leases = self.read()
        initial = self._initial_by(leases)
        missing = leases_for_partial_table(shards, leases, begin, initial)
        self.create_late(missing, leases, shards, begin, is_leaving)


class _KnownShards:
    """The shards whose leases may be read by their keys, where that costs less than a Scan.

    A lease whose shard is neither listed, nor the parent of a listed one, nor in any scan of the
    table before, is not read. Nobody creates such a lease, unless the stream is resharded between
    the listings of two workers that begin to read it.
    """

    def __init__(self, table_size: Callable[[], int]) -> None:
        self._table_size = table_size
        self.listed: frozenset[str] = frozenset()
        """The ids of the listed shards and of their parents."""
        self.scanned: frozenset[str] = frozenset()
        """The ids of the shards of the stream's leases in the last scan."""

    def to_read(self) -> list[str]:
        """Return the ids of the shards to read by their keys; none if a Scan costs less."""
        shards = self.listed | self.scanned
        is_few = len(shards) <= max(1, self._table_size() // _ROWS_FOR_A_CALL)
        return sorted(shards) if is_few else []


class _JavaReaders:
    """Makes new leases readable for a Java KCL, where one may share them."""

    def __init__(
        self,
        client: StreamClient,
        table: LeaseTable,
        worker_id: str,
        wait: Callable[[float], object],
        notes: list[str] | None,
    ) -> None:
        self._client = client
        self._table = table
        self._worker_id = worker_id
        self._wait = wait
        self._notes = [JAVA_NOTE] if notes is None else notes

    def readable(self, leases: list[Lease], table: TableScan | None = None) -> list[Lease]:
        """Return the leases with records in place of instants if a Java KCL may share them.

        A Java KCL takes the instant of LATEST and AT_TIMESTAMP from its own configuration.
        ``table``: the whole table a moment ago; None: scans it.
        """
        if all(lease.timestamp_ms is None for lease in leases):
            return leases
        if java_kcl_may_read(table or self._table.scan(consistent=True), self._worker_id):
            return [self._at_record(lease) for lease in leases]
        if any(lease.checkpoint.sequence_number == AT_TIMESTAMP for lease in leases):
            with suppress(IndexError):  # it was logged before
                _log.info(self._notes.pop(), self._table)
        return leases

    def _at_record(self, lease: Lease) -> Lease:
        if lease.timestamp_ms is None:
            return lease
        at = checkpoint_at(self._client, lease.shard_id, lease.timestamp_ms, self._wait)
        return replace(lease, checkpoint=at, timestamp_ms=None)
