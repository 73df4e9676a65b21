"""A replay: one worker reads a range of a stream again, by a lease table of its own.

The table is deleted in the end, also after an error or a signal. `kill -9` leaves the table behind,
whose name says what it was: ``<table>-replay-<time>-<random>``.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime, timezone

from sparkinesis.errors import LeaseTableNotFoundError, OptionError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.status import Replayed
from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.lifecycle.settings import ReadRange
from sparkinesis.worker.lifecycle.signals import graceful_on_signals
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processors.function_processors import Processor

_log = logging.getLogger(__name__)

CALLS, BYTES = 1.0, 1_000_000.0
"""The calls and bytes a second that a replay takes of each shard at most, of 5 and 2,000,000. A
worker takes 4 calls by default, and 1,000,000 bytes are what producers put at most."""

_LOOK_EVERY = 1.0
_LONGEST_NAME = 255
"""Characters of a table's name in DynamoDB."""


def range_of(
    since: datetime | str, until: datetime | str, now: Callable[[], datetime]
) -> ReadRange:
    """Return the range of a replay. Raises `OptionError`."""
    since_ms = 0 if since == "trim_horizon" else _instant("from_", since, '"trim_horizon"')
    now_ms = round(now().timestamp() * 1000)
    until_ms = now_ms if until == "latest" else _instant("to", until, '"latest"')
    if until_ms > now_ms:
        raise OptionError(
            f"to is {until}, which is in the future: a replay reads what has arrived. Leave it out "
            "for all that has arrived until now."
        )
    if since_ms >= until_ms:
        raise OptionError(f"from_ is {since}, which is not before to, {until}.")
    return ReadRange(since_ms, until_ms)


def _instant(name: str, given: datetime | str, word: str) -> int:
    if not isinstance(given, datetime):
        raise OptionError(f"{name} is {given!r}; it takes a datetime with a time zone, or {word}.")
    if given.tzinfo is None:
        raise OptionError(
            f"{name} is {given.isoformat()}, which has no time zone. Give one, such as "
            "datetime(..., tzinfo=timezone.utc)."
        )
    return round(given.timestamp() * 1000)


def settings_of(
    application: ApplicationSettings,
    reads: ReadRange,
    processor: Processor | None,
    table: str,
) -> ApplicationSettings:
    """Return the application that replays. Raises `OptionError`."""
    if application.streams is not None:
        raise OptionError(
            "A replay reads one stream, and the application reads several. Replay an application "
            "of stream=... for each of them."
        )
    if processor is None and application.processor is None:
        raise OptionError(
            "The application has no processor, which a replay calls. Give processor=... ."
        )
    return replace(
        application,
        processor=application.processor if processor is None else processor,
        initial_position="trim_horizon"
        if reads.since_ms == 0
        else datetime.fromtimestamp(reads.since_ms / 1000, timezone.utc),
        worker_id=None,
        table_name=table,
        options=_options(application.options),
    )


def _options(options: WorkerOptions) -> WorkerOptions:
    """Return the options of a replay: polling, with a small share of each shard, and no metrics."""
    calls, size = options.shard_calls_per_second, options.shard_bytes_per_second
    return replace(
        options,
        retrieval="polling",
        skip_older_than=None,
        idle_time=max(options.idle_time, 1 / CALLS),
        shard_calls_per_second=calls if isinstance(calls, str) else min(calls, CALLS),
        shard_bytes_per_second=size if isinstance(size, str) else min(size, BYTES),
        table=replace(options.table, deletion_protection=False, point_in_time_recovery=False),
        metrics=(),
        http=None,
    )


def table_name(live: str, now: datetime, rng: random.Random) -> str:
    """Return the name of a replay's lease table."""
    end = f"-replay-{now:%Y%m%dT%H%M%S}-{rng.getrandbits(32):08x}"
    return live[: _LONGEST_NAME - len(end)] + end


def is_read(leases: Iterable[Lease], done: Collection[str]) -> bool:
    """Return True if no shard is left to be read.

    Each has ended, or the range has ended in the shard or in one of its ancestors.

    ``done``: the leases of the shards that were read to the end of the range. Pure.
    """
    left = {lease.key: lease for lease in leases if not lease.is_finished}
    over = {key for key in left if key in done}
    while more := {key for key in left.keys() - over if over & {*left[key].parent_keys}}:
        over |= more
    return over == left.keys()


def replay(new_worker: Callable[[], Worker], table: LeaseTable, reads: ReadRange) -> Replayed:
    """Run a worker until the range is read; delete the table then, or after an error or a signal.

    Raises what `Worker.start` and `Worker.wait` raise.
    """
    began = time.monotonic()
    try:
        worker = new_worker()
        _log.info("Replaying by the %s, which is deleted in the end.", table)
        shards: set[str] = set()
        is_complete = False
        with graceful_on_signals(worker.shutdown, worker.log_place):
            worker.start()
            was_read = False
            while not worker.wait(_LOOK_EVERY):
                leases = table.leases()
                shards.update(lease.key for lease in leases)
                # Twice: a scan may see the end of a parent, and miss the child that came before.
                was_read, before = is_read(leases, reads.done), was_read
                if was_read and before:
                    is_complete = is_complete or not worker.is_shutting_down
                    worker.request_shutdown()
        return Replayed(
            worker.records_total(), len(shards), time.monotonic() - began, is_complete=is_complete
        )
    finally:
        with contextlib.suppress(LeaseTableNotFoundError):
            table.drop()
