"""A closed shard that does not end: its reader stands at the tip, and nothing says that it is over.

The service ends a closed shard: the last page has no NextShardIterator. Some servers (moto) give
empty pages for ever instead, so that a reader cannot know that it has read all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sparkinesis.errors import ServiceError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.page import Page, is_empty_at_tip
from sparkinesis.stream.position import Position

_log = logging.getLogger(__name__)

WARN_AFTER = 60.0
"""Seconds at the tip of a closed shard that are worth a warning."""

FAIL_AFTER = 600.0
"""Seconds after which a read that ends with the shard fails."""


class TimeAtTip:
    """How long a reader has stood at the tip of its shard without a record."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: monotonic, in seconds."""
        self._clock = clock
        self.since: float | None = None
        """When its first page without a record came; None: it is not at the tip."""

    def observe(self, page: Page, *, at_end: bool) -> None:
        """One more page; ``at_end``: the shard has ended with it."""
        if at_end or not is_empty_at_tip(page):
            self.since = None
        elif self.since is None:
            self.since = self._clock()

    @property
    def seconds(self) -> float:
        return 0.0 if self.since is None else self._clock() - self.since


class MissingEndWatch:
    """Watches a read that ends with its shard, which ListShards showed as closed.

    A warning after a minute at the tip, and `ServiceError` after ten.
    """

    def __init__(self, address: StreamAddress, shard_id: str, clock: Callable[[], float]) -> None:
        self._address = address
        self._shard_id = shard_id
        self._tip = TimeAtTip(clock)
        self._has_warned = False

    def observe(self, page: Page, reached: Position, *, at_end: bool) -> None:
        """One more page, with which the reader has come to ``reached``. Raises `ServiceError`."""
        self._tip.observe(page, at_end=at_end)
        if self._tip.seconds >= FAIL_AFTER:
            raise ServiceError(
                f"The end of shard {self._shard_id} of {self._address} does not come: ListShards "
                "shows the shard as closed, and GetRecords has given empty pages with a "
                f"NextShardIterator for {self._tip.seconds:.0f} seconds, at position {reached}. So "
                "nobody can tell that all of it was read. Kinesis ends a closed shard; the server "
                "that answers here does not (moto does not). Read up to a sequence number, as with "
                f'the option endingPosition = {{"{self._shard_id}": "<sequence number>"}}, or use '
                "a server that ends shards, such as `sparkinesis local`."
            )
        if self._tip.seconds >= WARN_AFTER and not self._has_warned:
            self._has_warned = True
            warn_missing_end(
                self._address,
                self._shard_id,
                f"After {FAIL_AFTER / 60:.0f} minutes the read fails.",
            )


def warn_missing_end(address: StreamAddress, shard_id: str, what_follows: str) -> None:
    """Warn of a closed shard that does not end."""
    _log.warning(
        "The end of shard %s of %s does not come: ListShards shows the shard as closed, and for a "
        "minute GetRecords has given empty pages with a NextShardIterator. Kinesis ends a closed "
        "shard; the server that answers here does not (moto does not). %s",
        shard_id,
        address,
        what_follows,
    )
