"""The gauges of an application by its lease table and streams."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.monitor.application_snapshot import ApplicationSnapshot
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.monitor.lags import Lag
from sparkinesis.monitor.metrics_exporter import (
    Checkpoints,
    Exporter,
    checkpoints_after,
    shard_gauges,
)
from sparkinesis.monitor.watched import WatchedTable
from sparkinesis.stream.address import FOUND_BY_BOTO
from sparkinesis.worker.reporting.health import serving


def lease(at: str = "1", owner: str | None = "w") -> Lease:
    return Lease("a", "a", ExtendedSequenceNumber(at), owner=owner, counter=1)


def gauges(
    given: Lease, lag: Lag | None = None, *, unread_for: float = 0.0
) -> dict[tuple[str, ...], float]:
    watched = WatchedTable().after_scan([given], 100.0).after_scan([given], 100.0 + unread_for)
    seen = ApplicationSnapshot.of(watched, {"a": lag} if lag else {})
    return {(metric.name, *labels): value for metric, labels, value in shard_gauges(seen, {}, "s")}


def test_a_lag_that_is_not_known_is_left_out_unless_nobody_reads_the_shard() -> None:
    assert gauges(lease(owner=None), Lag(why="expired"), unread_for=60.0) == {
        ("shard.lag", "s", "a"): 60.0,
        ("shard.unread", "s", "a"): 60.0,
    }
    assert ("shard.lag", "s", "a") not in gauges(lease(owner=None))


def test_before_the_first_scan_it_is_not_ready() -> None:
    served = serving("127.0.0.1:0", {})
    assert served is not None
    Exporter(
        "app",
        LeaseTable("app"),
        ChosenStreams.of((), "us-east-1", None, FOUND_BY_BOTO),
        served,
        interval=1.0,
    )
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{served.server.url}/readyz")
    assert b"the lease table was not scanned yet" in refused.value.read()
    served.close()


def test_a_finished_shard_has_no_gauges() -> None:
    assert gauges(lease(at=SHARD_END)) == {}


def test_a_checkpoint_is_as_old_as_it_stands_still_before_records() -> None:
    watched = WatchedTable()
    checkpoints: Checkpoints = {}

    def age(now: float, at: str, behind: int) -> float:
        nonlocal watched, checkpoints
        watched = watched.after_scan([lease(at=at)], now)
        seen = ApplicationSnapshot.of(watched, {"a": Lag(behind)})
        checkpoints = checkpoints_after(checkpoints, seen)
        (found,) = (
            value
            for metric, _, value in shard_gauges(seen, checkpoints, "s")
            if metric.name == "shard.checkpoint.age"
        )
        return found

    assert age(100, "1", 5) == 0
    assert age(130, "1", 5) == 30
    assert age(140, "2", 5) == 0  # it moved
    assert age(150, "2", 0) == 0  # all is done
    assert age(190, "2", 0) == 0
    assert age(200, "2", 5) == 10  # since the last scan by which all was done
