"""Orders of an operator on the page: a reset, or the release of a lease.

An order is planned first, which writes nothing, and shown. Confirmed, it is planned again, for the
answer may have taken a while, and written.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from sparkinesis.errors import OptionError
from sparkinesis.lease.moving.application_reset import apply_resets, plan_resets
from sparkinesis.lease.table import requests
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.monitor.lease_report import reset_texts
from sparkinesis.monitor.reset_arguments import find_streams, parse_target
from sparkinesis.monitor.watched import short_checkpoint
from sparkinesis.terminal.printing import counted

if TYPE_CHECKING:
    from sparkinesis.lease.lease import Lease
    from sparkinesis.lease.rules.reset_plan import LeaseReset
    from sparkinesis.lease.table.table import LeaseTable

VALID_FOR = 300.0
"""Seconds in which a plan can be confirmed."""
_MOST_PLANS = 20
_RELEASE_NOTE = (
    "Its processor is told lease_lost. A worker, which may be the same one, takes the shard again "
    "within seconds, and reads it from its checkpoint: records that were processed since are "
    "processed again."
)


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An order as the page sends it: ``reset`` to a position, or ``release`` of a lease."""

    reset: str | None = None
    release: str | None = None


class Confirmed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plan that the operator confirms."""

    plan: str


class Plan(msgspec.Struct, frozen=True):
    """A plan as the page shows it."""

    plan: str
    question: str
    button: str
    rows: list[list[str]]
    """Shard, from, to."""
    notes: list[str]


class Orders:
    """Plans and carries out orders, one at a time. For any thread; the calls take seconds."""

    def __init__(
        self,
        table: LeaseTable,
        streams: ChosenStreams,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._streams = streams
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[str, tuple[Wanted, float]] = {}
        """The plans that can be confirmed, and when they were made."""

    def plan(self, wanted: Wanted) -> Plan:
        """Plan an order. Writes nothing. Raises `OptionError` and service errors."""
        with self._lock:
            if (wanted.reset is None) == (wanted.release is None):
                raise OptionError("An order is either a reset or the release of a lease.")
            if wanted.reset is not None:
                question, button, rows, notes = self._plan_reset(wanted.reset)
            else:
                question, button, rows, notes = self._plan_release(str(wanted.release))
            name = secrets.token_urlsafe(12)
            while len(self._pending) >= _MOST_PLANS:
                del self._pending[next(iter(self._pending))]
            self._pending[name] = wanted, self._clock()
            return Plan(name, question, button, rows, notes)

    def carry_out(self, confirmed: Confirmed) -> str:
        """Carry out a plan, once; return what was done. Raises `SparkinesisError`."""
        with self._lock:
            wanted, made_at = self._pending.pop(confirmed.plan, (Wanted(), -math.inf))
            if self._clock() - made_at > VALID_FOR:
                raise OptionError(
                    f"A plan can be confirmed once, within {VALID_FOR:.0f} seconds. Nothing was "
                    "written. Plan it again."
                )
            if wanted.reset is not None:
                planned = self._resets(wanted.reset)[0]
                apply_resets(self._table, planned)
                return f"Moved {counted(len(planned), 'lease')} of {self._table.name}."
            return self._release(str(wanted.release))

    def _resets(self, to: str) -> tuple[Sequence[LeaseReset], str, Sequence[str]]:
        target = parse_target(to)
        found = find_streams(self._streams, self._table)
        return plan_resets(found.streams, self._table, target), found.told, found.notes

    def _plan_reset(self, to: str) -> tuple[str, str, list[list[str]], list[str]]:
        planned, told, notes = self._resets(to)
        return (
            f"Move {counted(len(planned), 'lease')} of {self._table.name}, which reads {told}?",
            f"Move {counted(len(planned), 'lease')}",
            [[move.key, *reset_texts(move)] for move in planned],
            [*notes, *(move.note for move in planned if move.note)],
        )

    def _plan_release(self, key: str) -> tuple[str, str, list[list[str]], list[str]]:
        lease = self._held(key)
        at = short_checkpoint(lease.checkpoint)
        return (
            f"Take {key} from {lease.actual_owner}?",
            "Release the lease",
            [[key, f"{lease.actual_owner}, at {at}", f"no owner, at {at}"]],
            [_RELEASE_NOTE],
        )

    def _release(self, key: str) -> str:
        lease = self._held(key)
        self._table.write(requests.evict(lease))
        return f"Released {key}, which {lease.actual_owner} held."

    def _held(self, key: str) -> Lease:
        lease = self._table.get(key)
        if lease is None:
            raise OptionError(f"The {self._table} has no lease {key!r}. Nothing was written.")
        if lease.owner is None or lease.is_finished:
            raise OptionError(f"No worker holds {key}. Nothing was written.")
        if lease.checkpoint_owner is not None:
            raise OptionError(
                f"{lease.checkpoint_owner} is handing {key} over to {lease.owner}. Nothing was "
                "written. Release it once it is handed over."
            )
        return lease
