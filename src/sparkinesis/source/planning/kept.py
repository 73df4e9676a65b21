"""What a planner keeps from plan to plan: the listed shards, their probers, and two conclusions.

`ListedShards` are the shards of the stream, by ListShards and by the ends of shards; `Kept` holds
them and the probers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from sparkinesis.errors import SparkinesisError
from sparkinesis.source.offsets import Positions
from sparkinesis.source.planning.batch_end import Walk, known_until, walk
from sparkinesis.source.planning.probing.shard_prober import ShardProber
from sparkinesis.source.planning.stream_tools import StreamTools
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.shard import Lineage, Shard

# Why what is kept may be dropped at any time
#
# A batch is a pure function of its two offsets, and a query that restarts has nothing but the last
# offset. So everything here must be found again from that offset, at the cost of calls alone: a new
# planner plans the same batch as one that has planned all day. tests/properties/test_kept_plans.py
# drops it before each plan and compares.
#
# It pays because most plans find nothing. A plan of 1,000 idle shards took 2.4 CPU seconds, and
# takes 0.2 since the planner keeps what it knows of quiet shards (eaabc9af). A conclusion is kept
# for one of the very same objects: to compare thousands of positions would cost what it saves. So a
# planner that finds nothing new has to return the very object that it was given as the start,
# `KnownOffsets` the same object for the same text, and `ListedShards` the same one for the same
# shards: with plans every ten seconds, thousands of shards are listed before each.
#
# After a pause of five minutes all of it is dropped: records, iterators and shards may have
# expired. After a shorter one only the shards are listed anew: a shard that ended in the pause
# still looked open, and a batch went beyond the first records of its children (821e56a3).

_log = logging.getLogger(__name__)

LIST_SHARDS_INTERVAL = 5.0
"""Seconds between two ListShards calls, at least; ChildShards make most of them unnecessary."""
BRIEF_RETRY = Backoff(give_up_after=5.0)
"""Of a listing that a plan can do without."""


class ListedShards:
    """The shards of a stream, listed again where they are not enough. Owned by one thread."""

    def __init__(self, stream: StreamTools, retry: Backoff | None) -> None:
        """``retry``: the retries of calls up to the first listing."""
        self._stream = stream
        self.retry = retry
        """The retries of calls; None: those of the client."""
        self._lineage: Lineage | None = None
        self._announced: dict[str, Shard] = {}
        self._listed_at = float("-inf")

    @property
    def lineage(self) -> Lineage:
        """The shards, once they were listed."""
        assert self._lineage is not None
        return self._lineage

    @property
    def is_due(self) -> bool:
        """True if shards may be listed without a pause."""
        return self._stream.timing.clock() - self._listed_at >= LIST_SHARDS_INTERVAL

    def ensure(self) -> None:
        """List the shards unless they were listed before."""
        if self._lineage is None:
            self.renew()

    def renew(self) -> None:
        """List the shards, after a pause if the last listing was a moment ago."""
        pause = self._listed_at + LIST_SHARDS_INTERVAL - self._stream.timing.clock()
        if pause > 0:
            self._stream.timing.sleep(pause)
        self.renew_now()

    def renew_after_pause(self) -> None:
        """List the shards between two plans, if the service lists them soon.

        The interval of listings goes on: what a shard's end needs is listed without a wait.
        """
        listed_at = self._listed_at
        try:
            self.renew_now(BRIEF_RETRY)
        except SparkinesisError as error:
            _log.warning("The next batch is planned with the shards listed before: %s", error)
        self._listed_at = listed_at

    def renew_now(self, retry: Backoff | None = None) -> int:
        """List the shards, and return the service's time (epoch ms)."""
        self._listed_at = self._stream.timing.clock()
        client = self._stream.client
        shards, now_ms = (
            client.list_shards_created(self.retry) if retry is None else client.list_shards(retry)
        )
        listed = {shard.id for shard in shards}
        # ListShards may lag behind the children that closed shards have announced.
        self._announced = {s: child for s, child in self._announced.items() if s not in listed}
        lineage = Lineage.of(shards).with_children(self._announced.values())
        if lineage != self._lineage:
            self._lineage = lineage
        self.retry = None
        return now_ms

    def renew_until_complete(self, left_out: Callable[[Lineage], Sequence[str]]) -> None:
        """List the shards until no existing shard is ``left_out``.

        The listing may lag behind a reshard, or may be older than it.
        """
        client = self._stream.client
        has_waited = False
        while shards := left_out(self.lineage):
            found = self._stream.threads.those(shards, client.has_shard)
            there = [shard for shard in shards if shard in found]
            if not there:
                break
            if has_waited:
                _log.warning(
                    "%s has shard %s, but ListShards does not return it yet. Waiting for it.",
                    client.address,
                    ", ".join(there[:10]),
                )
            self.renew()
            has_waited = True

    def announce(self, children: Sequence[Shard]) -> None:
        """Add the children that a closed shard has announced."""
        new = [child.id for child in children if child.id not in self.lineage.shards]
        self._announced.update({child.id: child for child in children})
        self._lineage = self.lineage.with_children(children)
        # The other parent of a merge may be younger than the last listing. List it first: an
        # unlisted parent counts as expired, and the child would not wait for it.
        self.renew_until_complete(lambda known: known.unlisted_parents(new))


class Kept:
    """The listed shards, their probers, and conclusions from the last start. Owned by one thread.

    It saves calls and CPU, and decides nothing.
    """

    def __init__(self, stream: StreamTools, retry: Backoff | None) -> None:
        """``retry``: the retries of calls up to the first listing of shards."""
        self.listing = ListedShards(stream, retry)
        self.probers: dict[str, ShardProber] = {}
        """The probers of the shards that the next batch may read, with the records in hand."""
        self._walked: tuple[Positions, Lineage, AbstractSet[str], Walk] | None = None
        self._known_until: tuple[Positions, int | None] | None = None

    def walk(self, start: Positions, finished: AbstractSet[str]) -> Walk:
        """Return `walk`'s result for the listed shards."""
        lineage = self.listing.lineage
        if self._walked is not None:
            then, listed, ended, walked = self._walked
            if then is start and listed is lineage and ended == finished:
                return walked
        walked = walk(start, lineage, finished)
        self._walked = start, lineage, finished, walked
        return walked

    def known_until(self, start: Positions) -> int | None:
        """Return `known_until`'s result."""
        if self._known_until is None or self._known_until[0] is not start:
            self._known_until = start, known_until(start)
        return self._known_until[1]
