"""The start of a batch: positions that are fixed, in the present stream, of shards that exist.

`BatchStart` replaces a start that is none of these. The functions below it are in the order in
which it asks them: `present_start` (deleted streams), `latest_start` and `application_start`
(initial positions), `skip_older` (the option ``skipOlderThan``), `without_lost_shards` and
`with_forgotten_shards`.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from datetime import datetime, timezone
from functools import partial

from sparkinesis.errors import DataLossError, PositionNotFoundError, ShardNotFoundError
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.planning.batch_end import missing, without_missing
from sparkinesis.source.planning.kept import ListedShards
from sparkinesis.source.planning.stream_tools import StreamTools
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.calls.client import StreamSummary
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    FromApplication,
    Position,
    sequence_order,
)
from sparkinesis.stream.reading.retention import CLOCK_MARGIN_MS, holds_more
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from sparkinesis.stream.shard import Lineage

# Why a start is stored before a batch is planned from it
#
# Spark repeats a batch that was not finished, by its two offsets. So the offset in which a batch
# begins must say by itself, for each shard, where: no clock, lease table or option may be asked
# again. Spark does not store the initial offset, though, but asks for it once more when the first
# batch is replayed. When `initialPosition` was changed to latest in between, the replayed batch
# began at the present, behind its own end: it had no rows, and the next one went on behind them
# (6d861bec). `offsets.ranges` refuses such a batch now. Therefore:
#
# - the initial offset is a function of the options alone, `{"*": LATEST}`;
# - LATEST and the checkpoints of an application become fixed positions in an offset of their own,
#   without rows, that Spark stores first. So do a jump to the bound of skipOlderThan and the whole
#   of a stream that was made anew. It costs one batch without rows at the start of a query;
# - a start in the checkpoint is not trusted to be of the stream that has the name now: the shards
#   of a stream that was deleted and made anew have the same ids. One DescribeStreamSummary when a
#   query resumes shows when the stream was created.
#
# An offset that resolves LATEST names the service's present instant. The service refuses instants
# in its future, and its clock is known only to the second, so the next plan waits for that second.

_log = logging.getLogger(__name__)


class BatchStart:
    """The start of each batch of one stream, checked before a record is read. For one thread."""

    def __init__(
        self, stream: StreamTools, listing: ListedShards, skip_older_than: float | None
    ) -> None:
        """``skip_older_than``: seconds; None: no record is skipped."""
        self._stream = stream
        self._listing = listing
        self.skip_older_than = skip_older_than
        """None once records were skipped: those that arrive while the query runs are read."""
        self._is_present = stream.is_batch_read
        """True once the positions were checked to belong to this stream, not to a deleted one."""
        self._created_ms = 0
        """The creation time of the stream in epoch ms; 0 while the positions were not checked."""
        self._is_complete = stream.is_batch_read
        """True once the offset from which the query resumes was checked for forgotten shards."""
        self._whole: tuple[Positions, Lineage] | None = None
        """The last start without a missing shard, and the shards that were listed then."""

    def to_store_before(self, start: Positions) -> tuple[Positions, bool]:
        """Return the offset without rows that replaces ``start``; or ``start`` itself.

        Also returns True if that offset names the service's present instant.
        """
        stream, listing = self._stream, self._listing
        if not self._is_present:
            present, self._created_ms = present_start(stream, listing, start, self.skip_older_than)
            if present is not start:
                return present, False  # no batch begins in the deleted stream
            self._is_present = True  # the offsets that follow are of the present stream
        initial = start.get(ANY_SHARD)
        if initial is LATEST or isinstance(initial, FromApplication):
            if initial is LATEST:
                self.skip_older_than = None  # no record can be older
                resolved, now_ms = latest_start(listing)
            else:
                resolved, now_ms = application_start(stream, listing, initial.name)
            return resolved, now_ms is not None and AtTimestamp(now_ms) in resolved.values()
        if self.skip_older_than is not None:
            start = skip_older(stream, listing, start, self.skip_older_than, self._created_ms)
            self.skip_older_than = None
        return start, False

    def whole(self, start: Positions) -> Positions:
        """Return ``start`` without shards that are gone, and with those that it forgot.

        Raises `DataLossError`.
        """
        listing = self._listing
        listing.ensure()
        if self._whole is not None:
            then, lineage = self._whole
            if then is start and lineage is listing.lineage:
                return start
        whole = without_lost_shards(self._stream, listing, start)
        if whole is start and not self._is_complete and start and ANY_SHARD not in start:
            self._is_complete = True  # this planner makes the offsets that follow
            whole = with_forgotten_shards(self._stream, listing, start)
        if whole is start:
            self._whole = start, listing.lineage
        return whole


def present_start(
    stream: StreamTools, listing: ListedShards, start: Positions, skip_older_than: float | None
) -> tuple[Positions, int]:
    """Return ``start``, or the present stream's start if ``start`` is of a deleted stream.

    Also returns the stream's creation time (epoch ms), or 0 if it was not asked for: an initial
    start is of no deleted stream. Raises `DataLossError`.
    """
    stored = {shard: at for shard, at in start.items() if shard != ANY_SHARD}
    if not stored:
        return start, 0
    summary = stream.client.describe(listing.retry)
    if not stream.stored_check.report_other_stream(stored, summary, skip_older_than):
        return start, summary.created_ms
    # Positions without a time, such as SHARD_END, are of the deleted stream, too.
    return _whole_stream(listing, summary), summary.created_ms


def latest_start(listing: ListedShards) -> tuple[Positions, int | None]:
    """Return the durable form of LATEST: the open shards, at the service's present time.

    Also returns that time in epoch ms.
    """
    now_ms = listing.renew_now()
    return dict.fromkeys(listing.lineage.open_shards(), AtTimestamp(now_ms)), now_ms


def application_start(
    stream: StreamTools, listing: ListedShards, name: str
) -> tuple[Positions, int | None]:
    """Return a KCL application's checkpoints as fixed positions.

    The positions are stored, because the application may move its checkpoints. Also returns the
    service's time (epoch ms) that stands for a checkpoint LATEST; None if there is none.
    """
    # With the modules of lease tables, which no other start needs.
    from sparkinesis.lease.table.table import LeaseTable  # noqa: PLC0415
    from sparkinesis.source.planning.application_position import (  # noqa: PLC0415
        former_stream,
        leases_of_stream,
        resume,
        with_streams,
    )

    address = stream.client.address
    table = LeaseTable(
        name,
        address.region,
        stream.options.dynamodb_endpoint,
        address.credentials,
        is_ours=False,
    )
    retry = listing.retry or Backoff()
    leases = table.leases(retry)
    alone = len(stream.options.reading.streams) == 1
    if alone:
        leases = with_streams(leases)
    present, summary = None, None
    if any(lease.stream for lease in leases):
        # A name is not enough: the stream may have been deleted and made anew.
        summary = stream.client.describe(retry)
        if summary.created_ms:
            present = StreamIdentifier.of(stream.client.stream_arn(), summary.created_ms)
    own = leases_of_stream(address, leases, table, present=present, alone=alone)
    if not own:
        assert summary is not None
        assert present is not None
        happened, has_unread = former_stream(address, leases, table, present)
        if has_unread and stream.options.reading.fail_on_data_loss:
            raise DataLossError(
                f"{happened} Set the option failOnDataLoss to false to begin with the oldest "
                "record of the present stream, or set the option initialPosition to trim_horizon, "
                "latest or an instant."
            )
        _log.warning("%s The query begins with the oldest record of the stream.", happened)
        if has_unread:
            stream.losses.add()
        return _whole_stream(listing, summary), None
    # Listed after the leases are read, so that every leased shard still kept is listed.
    now_ms = listing.renew_now()
    return resume(own, listing.lineage, now_ms, address=address, table=table), now_ms


def _whole_stream(listing: ListedShards, summary: StreamSummary) -> Positions:
    """Return the start of all shards of a stream that was deleted and made anew."""
    now_ms = listing.renew_now()
    # TRIM_HORIZON with a time, so that a loss is noticed if the query rests before it goes on.
    # Records that expire within a minute are left out: they may expire before they are read.
    oldest_ms = max(summary.created_ms, now_ms - summary.retention_ms + CLOCK_MARGIN_MS)
    return dict.fromkeys(without_missing({}, listing.lineage), AtTimestamp(oldest_ms))


def skip_older(
    stream: StreamTools,
    listing: ListedShards,
    start: Positions,
    seconds: float,
    created_ms: int,
) -> Positions:
    """Return ``start``, moved to the bound where it lies before the bound; or ``start`` itself.

    The shard ``*`` of the offset that jumps is the start of shards that are not listed: a child of
    a shard that ended before the bound must not be read from its beginning. The KCL has no such
    option.

    ``created_ms``: the stream's creation time in epoch ms; 0 if it is not known.
    """
    now_ms = listing.renew_now()
    listing.renew_until_complete(partial(missing, start))
    lineage = listing.lineage
    bound_ms = now_ms - round(seconds * 1000)
    if created_ms > bound_ms:
        return start  # the stream is younger than the bound
    if bound_ms == now_ms:
        # The probes ask for the bound. The service refuses instants in its future, and its clock
        # is known only to the second.
        stream.timing.sleep(1.0)
    # The records of a missing shard are older than the bound, so they are no loss. Unrelated
    # shards, of a stream that was created anew a moment later, begin at the bound as well.
    kept = start if set(start) == {ANY_SHARD} else without_missing(start, lineage)
    # Only the next record decides whether these shards are behind the bound.
    doubtful = {
        shard: position
        for shard, position in kept.items()
        if isinstance(position, AfterRecord) and (position.clear_until or 0) < bound_ms
    }
    behind = stream.threads.those(
        doubtful, lambda shard: _next_record_is_older(stream, shard, doubtful[shard], bound_ms)
    )
    has_closed = any(not lineage.shards[shard].is_open for shard in doubtful)
    skipped = moved_to(bound_ms, kept, behind, has_closed=has_closed)
    if skipped == start:
        return start
    _log.warning(
        "%s: records that arrived before %s are skipped because of skipOlderThan.",
        stream.client.address,
        datetime.fromtimestamp(bound_ms / 1000, timezone.utc).isoformat(),
    )
    return skipped


def moved_to(
    bound_ms: int, start: Positions, behind: Container[str], *, has_closed: bool
) -> Positions:
    """Return ``start``, moved so that no record that arrived before ``bound_ms`` is left to read.

    ``bound_ms``: epoch ms. ``behind``: the shards at a record whose next record arrived before the
    bound, if a jump to the bound repeats no record. ``has_closed``: a shard that may be behind is
    closed.
    """
    bound = AtTimestamp(bound_ms)

    def is_behind(shard: str, position: Position) -> bool:
        if isinstance(position, AtTimestamp):
            return position.ms < bound_ms
        return position is TRIM_HORIZON or shard in behind

    moved = {
        shard: bound if is_behind(shard, position) else position
        for shard, position in start.items()
    }
    # The children of a finished or closed shard may have records from before the bound.
    if moved == start and SHARD_END not in start.values() and not has_closed:
        return start
    return {**moved, ANY_SHARD: bound}


def _next_record_is_older(
    stream: StreamTools, shard_id: str, position: AfterRecord, bound_ms: int
) -> bool:
    """Return True if the record after ``position`` arrived before ``bound_ms`` (epoch ms).

    Reads a page or two. Also True if the position's own record is no longer kept. False if the
    first record that arrived at the bound does not follow the position: arrival times are out of
    order there, and a jump to the bound would read records twice.
    """
    cursor = partial(ShardCursor, stream.client, stream.budget(), shard_id)
    try:
        seen = _first(cursor(position, inclusive=True), 2)
        if not seen or seen[0].sequence_number != position.sequence_number:
            return True
        left = seen if holds_more(seen[0], position) else seen[1:]
        if not any((record.arrived_ms or 0) < bound_ms for record in left):
            return False
        at_bound = _first(cursor(AtTimestamp(bound_ms)), 1)
    except (PositionNotFoundError, ShardNotFoundError):
        return True
    place = sequence_order(position.sequence_number)
    return not at_bound or sequence_order(at_bound[0].sequence_number) > place


def _first(cursor: ShardCursor, count: int) -> list[Record]:
    """Return the cursor's first ``count`` records; fewer if it reaches the tip or the end."""
    seen: list[Record] = []
    while len(seen) < count and not cursor.at_end:
        page = cursor.fetch(count).page
        seen += page.records
        if not page.millis_behind_latest:
            break
    return seen


def without_lost_shards(stream: StreamTools, listing: ListedShards, start: Positions) -> Positions:
    """Return ``start`` without the shards that are gone. Raises `DataLossError`."""
    listing.renew_until_complete(partial(missing, start))
    gone = missing(start, listing.lineage)
    if not gone:
        return start
    text = (
        f"{stream.client.address} no longer has shard {', '.join(gone)}, which the query has "
        f"read up to {', '.join(str(start[shard]) for shard in gone)}: its records were older "
        "than the stream's retention period, or the stream was deleted and created anew. The "
        "records that followed in it are lost."
    )
    if stream.options.reading.fail_on_data_loss:
        raise DataLossError(
            f"{text} Set the option failOnDataLoss to false to resume from the oldest records "
            "kept, or start with a new checkpoint location."
        )
    _log.warning("%s Resuming from the oldest records kept, as failOnDataLoss=false.", text)
    stream.losses.add()
    return without_missing(start, listing.lineage)


def with_forgotten_shards(
    stream: StreamTools, listing: ListedShards, start: Positions
) -> Positions:
    """Return ``start`` with shards that are missing in an offset that was edited by hand."""
    whole = without_missing(start, listing.lineage)
    forgotten = sorted(set(whole) - set(start))
    if not forgotten:
        return start
    _log.warning(
        "%s: the checkpoint has no position for shard %s, nor for its ancestors or "
        "descendants. The shard is read from its start.",
        stream.client.address,
        ", ".join(forgotten[:10]),
    )
    return whole
