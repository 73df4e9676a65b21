"""Closed shards whose end the server never reports.

Kinesis ends a closed shard: its last page has no NextShardIterator. Some servers (moto) return
empty pages for ever, so a reader cannot know that it has read all records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from sparkinesis.errors import ServiceError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.page import Page, is_empty_at_tip
from sparkinesis.stream.position import Position

_log = logging.getLogger(__name__)

WARN_AFTER = 60.0
"""Seconds at the tip of a closed shard after which a warning is logged."""

FAIL_AFTER = 600.0
"""Seconds at the tip after which a read up to the shard's end fails."""


class TimeAtTip:
    """The time that a reader has spent at the tip of its shard without a record."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: monotonic, in seconds."""
        self._clock = clock
        self.since: float | None = None
        """The instant of the first empty page at the tip; None if the reader is not at the tip."""

    def observe(self, page: Page, *, at_end: bool) -> None:
        """Count a page. ``at_end``: the shard ends with this page."""
        if at_end or not is_empty_at_tip(page):
            self.since = None
        elif self.since is None:
            self.since = self._clock()

    @property
    def seconds(self) -> float:
        return 0.0 if self.since is None else self._clock() - self.since


class MissingEndWatch:
    """Watches a read up to the end of a shard that ListShards shows as closed.

    Logs a warning after a minute at the tip, and raises `ServiceError` after ten.
    """

    def __init__(self, address: StreamAddress, shard_id: str, clock: Callable[[], float]) -> None:
        self._address = address
        self._shard_id = shard_id
        self._tip = TimeAtTip(clock)
        self._has_warned = False

    def observe(self, page: Page, reached: Position, *, at_end: bool) -> None:
        """Count a page, after which the reader is at ``reached``. Raises `ServiceError`."""
        self._tip.observe(page, at_end=at_end)
        if self._tip.seconds >= FAIL_AFTER:
            raise ServiceError(
                f"Shard {self._shard_id} of {self._address} does not end: ListShards shows "
                "the shard as closed, but GetRecords has returned empty pages with a "
                f"NextShardIterator for {self._tip.seconds:.0f} seconds, at {reached}. So it is "
                "unknown whether all records were read. Kinesis ends a closed shard; this server "
                "does not (moto does not). Read up to a sequence number, with the option "
                f'endingPosition = {{"{self._shard_id}": "<sequence number>"}}, or use a server '
                "that ends shards, such as `sparkinesis local`."
            )
        if self._tip.seconds >= WARN_AFTER and not self._has_warned:
            self._has_warned = True
            warn_missing_end(
                self._address,
                self._shard_id,
                f"After {FAIL_AFTER / 60:.0f} minutes the read fails.",
            )


class EndlessShards:
    """Warns of each closed shard of a query that does not end, once. Owned by one thread."""

    def __init__(self, address: StreamAddress) -> None:
        self._address = address
        self._since: dict[str, float] = {}

    def observe(self, shard_ids: Collection[str], now: float) -> None:
        """Note the closed shards that have neither a record nor an end now.

        now: monotonic, in seconds.
        """
        self._since = {shard_id: self._since.get(shard_id, now) for shard_id in shard_ids}
        for shard_id, since in self._since.items():
            if now - since >= WARN_AFTER:
                self._since[shard_id] = float("inf")  # once is enough
                warn_missing_end(
                    self._address,
                    shard_id,
                    "Its child shards are not read until the server reports its end.",
                )


def warn_missing_end(address: StreamAddress, shard_id: str, what_follows: str) -> None:
    """Log a warning about a closed shard that does not end."""
    _log.warning(
        "Shard %s of %s does not end: ListShards shows the shard as closed, but GetRecords has "
        "returned empty pages with a NextShardIterator for a minute. Kinesis ends a closed shard; "
        "this server does not (moto does not). %s",
        shard_id,
        address,
        what_follows,
    )
