"""Deliberate bugs, each as a patch of one name: what the simulation has to find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from sparkinesis.lease import held, requests, taker
from sparkinesis.lease.caretaker import Caretaker
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.held import HeldLease
from sparkinesis.stream.cursor import ShardCursor
from sparkinesis.stream.retention import RetentionCheck
from sparkinesis.worker.checkpointer import Checkpointer, Permitted
from sparkinesis.worker.delivery import Deliverer
from sparkinesis.worker.intake import Intake
from sparkinesis.worker.retrieval import FetchAhead
from tests.simulation.subject import Bug


def _instead(owner: object, name: str, make: Callable[[Any], Any]) -> Bug:
    """A bug in place of a function, which it is given."""
    return Bug(lambda: mock.patch.object(owner, name, make(getattr(owner, name))), "")


def _unfenced(build: Any) -> Any:
    return lambda lease, *more: replace(build(lease, *more), expected={})


def _drop_first(after_start: Any) -> Any:
    def after(self: Any, *page: Any) -> Any:
        records = after_start(self, *page)
        return records[1:] if records else records

    return after


def _begin_anew(fetch: Any) -> Any:
    """An iterator that has expired is replaced by one at the place of the very first."""

    def begin(self: Any, *limit: Any) -> Any:
        place = self._position, self._inclusive
        fetched = fetch(self, *limit)
        self._position, self._inclusive = place
        return fetched

    return begin


def _skip_failed(failed: Any) -> Any:
    def skip(self: Any, attempt: Any, error: BaseException) -> float:
        self._pass(attempt.batch)
        return 0.0

    return skip


def _checkpoint_all(resolve: Any) -> Any:
    return lambda self, sequence, sub: resolve(self, None, None)


def _swallow(take: Any) -> Any:
    def swallow(self: Any) -> Any:
        try:
            return take(self)
        except Exception:  # noqa: BLE001
            return None

    return swallow


def _early_end(take: Any) -> Any:
    """A page's last record, the shard's, is not waited for."""

    def early(self: Any) -> Any:
        batch = take(self)
        if self.at_end and batch is not None and len(batch):
            return batch.slice(0, len(batch) - 1)
        return batch

    return early


BUGS: dict[str, Bug] = {
    "checkpoints are not fenced by the counter": _instead(requests, "checkpoint", _unfenced),
    "a lease is held for ever": _instead(
        HeldLease, "is_held", lambda _: lambda self: self._lost is None
    ),
    "an answer that never came is anybody's write": _instead(
        requests, "_fenced", lambda _: lambda row: ()
    ),
    "the record behind a checkpoint is dropped": _instead(
        RetentionCheck, "after_start", _drop_first
    ),
    "an expired iterator begins anew": _instead(ShardCursor, "fetch", _begin_anew),
    "parents are not waited for": _instead(
        LeaseCoordinator, "are_finished", lambda _: lambda self, shard_ids: True
    ),
    "children get no leases": _instead(
        Caretaker, "lease_children", lambda _: lambda self, parent, children: True
    ),
    "a failed batch is skipped": _instead(Deliverer, "_failed", _skip_failed),
    "what failed may be checkpointed": _instead(
        Checkpointer, "take_back", lambda _: lambda self, until: None
    ),
    "a checkpoint of a record is one of all": _instead(Permitted, "resolve", _checkpoint_all),
    "a checkpoint is taken back by an earlier one": _instead(
        held, "_is_behind", lambda _: lambda at, lease: False
    ),
    "leases are not released": _instead(
        HeldLease, "release", lambda _: lambda self: self.lose("it was given up")
    ),
    "the dead are not found": _instead(taker._Look, "_age", lambda _: lambda self, row: 0.0),
    "fetching that failed is not begun again": _instead(FetchAhead, "take", _swallow),
    "the last record of a shard is lost": _instead(Intake, "take", _early_end),
    "finished leases are not deleted": _instead(
        Caretaker, "_clean_up", lambda _: lambda self, leases: None
    ),
}
