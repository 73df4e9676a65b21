"""How the leases of a fleet are shared, as one worker sees it after a scan of the table."""

from __future__ import annotations

import msgspec

from sparkinesis.lease.leading.brief_look import PartialScan
from sparkinesis.lease.leading.moves import Move
from sparkinesis.lease.rules.taker import Reach


class Standing(msgspec.Struct, frozen=True):
    """The worker's place in its fleet, until the next scan."""

    is_led: bool = False
    """True if a leader assigns the leases, as in a KCL 3.x; False if each worker takes its own."""
    reach: Reach = Reach.STEAL
    """How far the worker goes by itself for more leases."""
    moves: tuple[Move, ...] = ()
    """The assignments to write now, if this worker leads."""
    leads_brief_readers: bool = False
    """True if this worker is the leader of workers that may read only their own rows."""
    brief: PartialScan | None = None
    """What the worker reads in its next looks; None: the whole table."""


EACH_TAKES = Standing()
"""The standing of a worker of a KCL 2.x fleet."""
