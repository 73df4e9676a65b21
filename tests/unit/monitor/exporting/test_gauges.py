from __future__ import annotations

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.exporting.gauges import CheckpointWatch, shard_gauges
from sparkinesis.monitor.lags import Lag
from sparkinesis.monitor.watched import WatchedTable


def lease(shard: str = "a", at: str = "1", owner: str | None = "w") -> Lease:
    return Lease(shard, shard, ExtendedSequenceNumber(at), owner=owner, counter=1)


def gauges(
    watched: WatchedTable,
    lags: dict[str, Lag],
    checkpoints: CheckpointWatch | None = None,
    unread: dict[str, float] | None = None,
) -> dict[tuple[str, ...], float]:
    found = shard_gauges(watched, lags, checkpoints or CheckpointWatch(), unread or {}, "s")
    return {(metric.name, *labels): value for metric, labels, value in found}


def test_a_shard_has_its_lag_its_owner_and_no_unread_time() -> None:
    watched = WatchedTable().after_scan([lease()], 100.0)
    assert gauges(watched, {"a": Lag(2500)}) == {
        ("shard.lag", "s", "a"): 2.5,
        ("shard.owner", "s", "a", "w"): 1.0,
        ("shard.unread", "s", "a"): 0.0,
    }


def test_a_lag_that_is_not_known_is_left_out_unless_nobody_reads_the_shard() -> None:
    watched = WatchedTable().after_scan([lease(owner=None)], 100.0)
    assert gauges(watched, {"a": Lag(why="expired")}, unread={"a": 60.0}) == {
        ("shard.lag", "s", "a"): 60.0,
        ("shard.unread", "s", "a"): 60.0,
    }
    assert ("shard.lag", "s", "a") not in gauges(watched, {})


def test_a_finished_shard_has_no_gauges() -> None:
    watched = WatchedTable().after_scan([lease(at=SHARD_END)], 100.0)
    assert gauges(watched, {}) == {}


def test_a_checkpoint_is_as_old_as_it_stands_still_before_records() -> None:
    watched, checkpoints = WatchedTable(), CheckpointWatch()

    def age(now: float, at: str, behind: int) -> float:
        nonlocal watched, checkpoints
        lags = {"a": Lag(behind)}
        watched = watched.after_scan([lease(at=at)], now)
        checkpoints = checkpoints.after_look(watched, lags)
        return gauges(watched, lags, checkpoints)["shard.checkpoint.age", "s", "a"]

    assert age(100, "1", 5) == 0
    assert age(130, "1", 5) == 30
    assert age(140, "2", 5) == 0  # it moved
    assert age(150, "2", 0) == 0  # all is done
    assert age(190, "2", 0) == 0
    assert age(200, "2", 5) == 10  # since the last look at which all was done
