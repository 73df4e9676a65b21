"""The start of a batch: positions that are fixed, in the present stream, of shards that exist.

A start that is none of these is replaced by an offset without rows, which Spark's checkpoint stores
before a batch is planned from it. So a replay depends on no clock, lease table or option.
"""

from __future__ import annotations

import logging
from functools import partial

from sparkinesis.errors import DataLossError
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.planning.batch_end import missing, without_missing
from sparkinesis.source.planning.shard_listing import ListedShards
from sparkinesis.source.planning.stream_tools import StreamTools
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.calls.client import StreamSummary
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.position import AtTimestamp
from sparkinesis.stream.reading.retention import CLOCK_MARGIN_MS

_log = logging.getLogger(__name__)


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
    from sparkinesis.source.planning.start.application_position import (  # noqa: PLC0415
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
