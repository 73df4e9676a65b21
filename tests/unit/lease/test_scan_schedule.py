"""When a worker scans the lease table again."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.observations import is_expired, observe
from sparkinesis.lease.rules.taker import TakeSettings
from sparkinesis.lease.scan_schedule import ScanSchedule, between_renewals, scan_pause

FAILOVER = 9.0
_INTERVAL = FAILOVER / 6


def lease(key: str, owner: str | None, **given: object) -> Lease:
    return replace(Lease(key, f"shard-{key}", ExtendedSequenceNumber("5"), owner=owner), **given)


def pause(
    *rows: Lease, age: float = 0.0, held: Collection[str] = ("mine",), may_be_alone: bool = True
) -> float:
    """The pause after a scan that shows these rows, which were first seen so long ago."""
    return scan_pause(
        rows,
        observe({}, rows, 100.0 - age, "me"),
        "me",
        100.0,
        failover_time=FAILOVER,
        interval=_INTERVAL,
        held=held,
        may_be_alone=may_be_alone,
    )


def test_a_worker_scans_seldom_while_nothing_is_to_be_seen() -> None:
    mine, other = lease("mine", "me"), lease("other", "w")
    done = lease("done", None, checkpoint=ExtendedSequenceNumber(SHARD_END))
    assert pause(mine, other, done) == 2 * _INTERVAL
    assert pause(other, held=()) == 2 * _INTERVAL
    assert pause(mine, done, age=100.0) == 4 * _INTERVAL
    assert pause(mine, done, may_be_alone=False) == 2 * _INTERVAL
    assert pause(held=()) == 2 * _INTERVAL


@pytest.mark.parametrize(
    "row",
    [
        lease("free", None),
        lease("asked", "v", checkpoint_owner="w"),
        lease("given", "me", checkpoint_owner="w"),
        lease("mine", "v", checkpoint_owner="me"),
        lease("stray", "me"),
    ],
)
def test_a_worker_scans_often_while_a_lease_is_to_move(row: Lease) -> None:
    others = lease("mine", "me"), lease("other", "w")
    assert pause(*others, row) == pause(row, *others) == _INTERVAL


def test_a_worker_scans_often_once_an_owner_is_silent_and_as_soon_as_the_lease_has_expired() -> (
    None
):
    mine, other = lease("mine", "me"), lease("other", "w")
    assert pause(mine, other, age=3 * _INTERVAL) == 2 * _INTERVAL
    assert pause(mine, other, age=3 * _INTERVAL + 0.1) == _INTERVAL
    assert pause(mine, other, age=FAILOVER - 0.5) == pytest.approx(0.51)
    assert pause(mine, other, age=FAILOVER + 0.1) == _INTERVAL, "somebody else is to take it"


@pytest.mark.parametrize("late", [step * _INTERVAL / 8 for step in range(17)])
def test_no_crash_costs_more_than_a_failover_time_and_a_renew_interval(late: float) -> None:
    """``late``: the seconds from the owner's last renewal to the next scan."""
    row = lease("other", "w")
    now = renewed_at = 100.0
    seen = observe({}, [row], now, "me")
    row, now = replace(row, counter=1), now + late
    while not is_expired((seen := observe(seen, [row], now, "me"))["other"], now, FAILOVER):
        now += scan_pause(
            [row],
            seen,
            "me",
            now,
            failover_time=FAILOVER,
            interval=_INTERVAL,
            held=(),
            may_be_alone=True,
        )
    assert FAILOVER < now - renewed_at <= FAILOVER + 2 * _INTERVAL + 0.02


@pytest.mark.parametrize("now", [100.0, 100.4, 101.1, 101.5, 102.9])
def test_scans_come_midway_between_renewals(now: float) -> None:
    paused = 2 * _INTERVAL
    for _ in range(2):
        wait = between_renewals(paused, now, 97.0, _INTERVAL)
        assert _INTERVAL <= wait <= paused
        now += wait
    assert (now - 97.0) % (2 * _INTERVAL) == pytest.approx(_INTERVAL, abs=0.01)
    assert between_renewals(paused, now - 0.3, 97.0, _INTERVAL) == paused, "early enough"
    assert between_renewals(_INTERVAL, now, 97.0, _INTERVAL) == _INTERVAL


@pytest.mark.parametrize(
    ("pause", "now", "shortened"),
    [(1.5, 8.0, 1.0), (2.0, 7.25, 1.75), (2.0, 8.75, 1.0), (2.0, 8.8125, 2.0)],
)
def test_a_scan_that_would_come_late_comes_midway_before_or_an_interval_earlier(
    pause: float, now: float, shortened: float
) -> None:
    """Renewals come at even seconds, so midway is at odd ones; a quarter early is no matter."""
    assert between_renewals(pause, now, 0.0, 1.0) == shortened


class Renewer:
    """A renewer that holds these leases, and has begun its last round at 97 s."""

    renewed_at = 97.0

    def __init__(self) -> None:
        self.keys = {"mine"}

    def held(self) -> dict[str, None]:
        return dict.fromkeys(self.keys)


def test_the_next_scan_is_planned_by_what_the_last_one_has_shown() -> None:
    renewer = Renewer()
    settings = TakeSettings(FAILOVER, 10, 10, handoff_timeout=30.0, scan_interval=_INTERVAL)
    schedule = ScanSchedule(settings, cast(LeaseRenewer, renewer), "me", may_be_alone=True)
    assert schedule.next_at() < 0, "at once"
    mine = lease("mine", "me")
    seen = observe({}, [mine], 100.0, "me")
    schedule.after_unsettled_scan(100.0, renewer.held())
    assert schedule.next_at() == 100.0 + _INTERVAL / 3
    for has_leader, intervals in ((False, 4), (True, 2)):
        schedule.after_scan([mine], seen, 98.5, 100.0, renewer.keys, has_leader=has_leader)
        assert schedule.next_at() == 98.5 + intervals * _INTERVAL
    schedule.after_partial_scan(98.5, renewer.held(), is_coming=False)
    assert schedule.next_at() == 98.5 + 2 * _INTERVAL
    renewer.keys.clear()
    assert schedule.next_at() == 98.5 + _INTERVAL, "the lease was lost, or its shard has ended"
    schedule.after_partial_scan(98.5, renewer.held(), is_coming=True)
    assert schedule.next_at() == 98.5 + _INTERVAL
