"""Even loads: each rule of the plan, and fleets that come to rest."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparkinesis.lease.assignment.moves import AssignSettings
from sparkinesis.lease.assignment.worker_stats import WorkerLoad
from sparkinesis.lease.lease import Lease
from tests.examples import examples
from tests.unit.lease.assignment.fleets import after, cpu, fleet, moved, plan, sums, workers

AB, ABC = workers("a", "b"), workers("a", "b", "c")


# Vacant leases


def test_a_vacant_lease_goes_to_the_worker_furthest_below_the_mean() -> None:
    rows = fleet(a=[50], b=[20], c=[30], nobody=[5])
    assert moved(plan(rows, ABC, balances=False)) == {"nobody0": "b"}
    assert moved(plan(rows, cpu(a=20, b=50, c=30), balances=False)) == {"nobody0": "a"}


def test_an_idle_worker_is_further_below_the_mean_than_a_busy_one() -> None:
    """For the KCL, 30 % of CPU are further below a mean of 60 % than 0 %."""
    rows = fleet(a=[50], b=[20], nobody=[10])
    assert moved(plan(rows, cpu(a=90, b=20, c=0), balances=False)) == {"nobody0": "c"}


def test_a_lease_that_was_never_read_counts_as_an_average_one() -> None:
    rows = fleet(a=[30], b=[10, 20], nobody=[None, 10])
    assert sorted(moved(plan(rows, AB, balances=False)).values()) == ["a", "b"]


def test_idle_leases_are_spread() -> None:
    rows = fleet(a=[100], b=[100], nobody=[0] * 20)
    given = Counter(moved(plan(rows, AB, balances=False)).values())
    assert given == {"a": 10, "b": 10}


def test_the_worker_that_let_a_lease_lapse_is_the_last_to_get_it() -> None:
    rows = fleet(a=[10], b=[50, 50])
    assert moved(plan(rows, AB, vacant={"a0": 3.0}, balances=False)) == {"a0": "b"}
    assert moved(plan(rows, AB[:1], vacant={"a0": 3.0}, balances=False)) == {"a0": "a"}


def test_nobody_gets_more_vacant_leases_than_the_most() -> None:
    rows = fleet(a=[1, 1], nobody=[1, 1, 1])
    most = AssignSettings(max_leases=2)
    assert list(moved(plan(rows, AB, settings=most)).values()) == ["b", "b"]


def test_a_fleet_without_any_throughput_is_filled_by_counts() -> None:
    for idle in (None, 0.0):
        rows = fleet(nobody=[idle] * 10)
        for members in (ABC, cpu(a=5, b=20, c=0), cpu(a=60, b=70, c=74)):
            given = Counter(moved(plan(rows, members)).values())
            assert sorted(given.values()) == [3, 3, 4]


@pytest.mark.parametrize("kbps", [None, 0.0, 5.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_first_leases_go_to_the_hosts_with_room(kbps: float | None, seed: int) -> None:
    """What others use of a host counts before anything is known of the leases."""
    members = cpu(a=90, b=10, c=5)
    for many, expected in ((1, [0, 1]), (2, [0, 2]), (10, [1, 9]), (90, [10, 80])):
        given = Counter(moved(plan(fleet(nobody=[kbps] * many), members, seed=seed)).values())
        assert [given["a"], given["b"] + given["c"]] == expected
        assert abs(given["b"] - given["c"]) <= 1


def test_a_host_beyond_its_range_is_the_last_to_get_a_lease() -> None:
    beyond = WorkerLoad("beyond", {"C": 90.0, "M": 1.0}, {"C": 80.0, "M": 100.0})
    for others in (AB, cpu(a=30, b=30)):
        given = moved(plan(fleet(nobody=[None] * 2), [beyond, *others]))
        assert sorted(given.values()) == ["a", "b"]


def test_workers_that_read_nothing_get_leases_by_room_beside_others_that_measure_nothing() -> None:
    rows = fleet(old=[10, 10, 10, 10], nobody=[10, 10])
    for seed in range(5):
        given = moved(plan(rows, [WorkerLoad("old"), *cpu(a=90, b=10)], balances=False, seed=seed))
        assert set(given.values()) == {"b"}


def test_when_all_leases_are_vacant_their_last_throughput_counts() -> None:
    """The application starts again: what workers measure says nothing of the leases."""
    rows = fleet(nobody=[60, 20, 20, 20])
    assert sorted(sums(after(rows, plan(rows, cpu(a=9, b=2)))).values()) == [60, 60]


# Balance


def test_within_the_threshold_nothing_moves() -> None:
    rows = fleet(a=[1] * 109, b=[1] * 91)
    assert plan(rows, AB) == ()
    assert plan(rows, cpu(a=54.5, b=45.5)) == ()


@pytest.mark.parametrize("members", [AB, cpu(a=80, b=20)])
def test_a_worker_gives_up_a_part_of_what_it_has_above_the_mean(members: list[WorkerLoad]) -> None:
    """80 to 20: the mean is 50, and of 30 too many, 60 % move."""
    rows = fleet(a=[1] * 80, b=[1] * 20)
    assert moved(plan(rows, members)).keys() <= {row.key for row in rows if row.owner == "a"}
    assert len(plan(rows, members)) in range(12, 19)


def test_cpu_and_not_throughput_decides_for_workers_that_measure_it() -> None:
    """The same KB/s cost the slower host more."""
    rows = fleet(slow=[1] * 50, quick=[1] * 50)
    given = moved(plan(rows, cpu(slow=90, quick=30)))
    assert set(given.values()) == {"quick"}
    # (90 - 60) / 90 of 50 KB/s, of which 60 % move
    assert len(given) in range(6, 11)


def test_the_heaviest_leases_that_fit_move() -> None:
    """18 KB/s should move. Once 13 do, the rest is not worth a move more."""
    rows = fleet(a=[30, 29, 13, 4, 2, 1, 1], b=[20])
    assert moved(plan(rows, AB)) == {"a2": "b"}


def test_if_no_lease_is_light_enough_the_lightest_moves_unless_forbidden() -> None:
    rows = fleet(a=[40, 30], b=[30, 1])
    assert moved(plan(rows, AB)) == {}  # 30 of a gap of 39: it would come back
    rows = fleet(a=[40, 14, 13], b=[30, 1])
    assert moved(plan(rows, AB)) == {"a2": "b"}
    assert plan(rows, AB, settings=AssignSettings(may_overshoot=False)) == ()


def test_what_a_lease_costs_its_host_counts_if_that_is_more_than_the_mean() -> None:
    """Most of the fleet's KB/s are read on a host for which they are cheap."""
    rows = fleet(hot=[24000], a=[300, *[6] * 9], b=[6] * 9)
    assert "a0" not in moved(plan(rows, cpu(hot=60, a=1.8, b=0.27)))


def test_leases_beside_a_hot_one_do_not_count_as_idle() -> None:
    """With a tenth of the mean, 140, for each lease, `a` and `b` would be even."""
    rows = fleet(hot=[24000], a=[60, *[6] * 7], b=[6] * 8)
    assert set(moved(plan(rows, workers("hot", "a", "b"))).values()) == {"b"}


@pytest.mark.parametrize("kbps", [0.1, 0.3, 0.7, 1, 1.1, 3.3])
def test_a_fleet_with_a_single_lease_stays(kbps: float) -> None:
    """The level of the others is 0, or less by a rounding."""
    for size in range(2, 9):
        assert plan(fleet(w0=[kbps]), workers(*(f"w{n}" for n in range(size)))) == ()


def test_a_lease_that_does_not_fit_leaves_the_worker_for_lighter_ones() -> None:
    """The KCL stops at the first one, and has lost the worker for this run."""
    rows = fleet(a=[100, 60], b=[100, 5, 5, 5, 5, 5, 5], c=[90])
    assert set(moved(plan(rows, ABC)).values()) == {"c"}
    assert all(key.startswith("b") for key in moved(plan(rows, ABC)))


def test_a_shard_that_fills_a_worker_does_not_hide_the_others() -> None:
    """With `hot` in the mean, 55, neither `a` nor `b` has anything to give to the other."""
    rows = fleet(hot=[110], a=[1] * 40, b=[1] * 15)
    members = workers("hot", "a", "b")
    assert set(moved(plan(rows, members)).values()) == {"b"}


def test_a_worker_with_a_hot_shard_is_relieved_of_the_others() -> None:
    rows = fleet(a=[100, 5, 5, 5], b=[40], c=[40])
    assert {"a1", "a2", "a3"} >= moved(plan(rows, ABC)).keys() != set()


def test_a_new_worker_gets_leases_from_all_that_are_above_the_mean() -> None:
    """Nobody is beyond the threshold: the KCL takes one lease from the most loaded worker."""
    names = [f"w{n:02d}" for n in range(20)]
    rows = fleet(**{who: [1] * 20 for who in names})
    for members in (
        workers(*names, "new"),
        cpu(**dict.fromkeys(names, 50), new=1),
    ):
        moves = plan(rows, members)
        assert set(moved(moves).values()) == {"new"}
        assert len(moves) in range(10, 14)
        assert set(Counter(move.lease.owner for move in moves).values()) == {1}


def test_the_metric_furthest_above_its_mean_is_a_workers_load() -> None:
    limit = {"C": 100.0, "M": 100.0}
    members = [
        WorkerLoad("a", {"C": 50, "M": 90}, limit),
        WorkerLoad("b", {"C": 45, "M": 30}, limit),
        WorkerLoad("c", {"C": 55, "M": 60}, limit),
    ]
    rows = fleet(a=[1] * 30, b=[1] * 30, c=[1] * 30)
    moves = plan(rows, members)
    assert {move.lease.owner for move in moves} == {"a"}
    assert set(moved(moves).values()) == {"b"}


def test_a_worker_beyond_its_range_gives_up_leases_before_the_threshold() -> None:
    rows = fleet(a=[1] * 50, b=[1] * 50)
    members = [WorkerLoad("a", {"C": 50}, {"C": 45}), WorkerLoad("b", {"C": 50}, {"C": 100})]
    assert set(moved(plan(rows, members)).values()) == {"b"}


def test_no_worker_is_led_out_of_its_range() -> None:
    rows = fleet(a=[10] * 10, b=[10] * 3)
    members = [WorkerLoad("a", {"C": 60}, {"C": 100}), WorkerLoad("b", {"C": 18}, {"C": 20})]
    assert plan(rows, members) == ()


def test_workers_that_are_all_beyond_their_range_are_balanced_too() -> None:
    rows = fleet(a=[1] * 60, b=[1] * 30)
    members = [WorkerLoad("a", {"C": 96}, {"C": 20}), WorkerLoad("b", {"C": 48}, {"C": 20})]
    assert set(moved(plan(rows, members)).values()) == {"b"}


def test_workers_with_and_without_metrics_share_a_fleet() -> None:
    rows = fleet(a=[1] * 60, b=[1] * 20, c=[1] * 40)
    members = [*cpu(a=90, b=30), WorkerLoad("c")]
    moves = plan(rows, members)
    assert {move.lease.owner for move in moves} == {"a"}
    assert set(moved(moves).values()) == {"b"}
    rows = fleet(a=[1] * 40, b=[1] * 40, c=[1] * 90)
    moves = plan(rows, [*cpu(a=50, b=50), WorkerLoad("c")])
    assert {move.lease.owner for move in moves} == {"c"}


def test_leases_that_rest_stay() -> None:
    rows = fleet(a=[1] * 30, b=[1])
    assert plan(rows, AB, resting=[row.key for row in rows]) == ()
    movable = plan(rows, AB, resting=[row.key for row in rows][:28])
    assert moved(movable) == {"a28": "b", "a29": "b"}


def test_a_handoff_counts_for_the_new_owner() -> None:
    """The metrics show it only later; without that, the next run would move as many again."""
    for members in (AB, cpu(a=90, b=10)):
        rows = [
            replace(row, owner="b", checkpoint_owner="a") if n < 40 else row
            for n, row in enumerate(fleet(a=[1] * 90, b=[1] * 10))
        ]
        given = {row.key for row in rows if row.checkpoint_owner}
        assert plan(rows, members, resting=given) == ()


# A lease for everybody


@pytest.mark.parametrize(
    "idle",
    [
        WorkerLoad("idle"),
        WorkerLoad("idle", {"C": 90.0}, {"C": 100.0}),
        WorkerLoad("idle", {"C": 90.0}, {"C": 10.0}),
        WorkerLoad("idle", {"C": 0.0}, {"C": 100.0}),
        WorkerLoad("idle", {}, {"C": 100.0}, is_failing=True),
    ],
    ids=["none", "busy", "beyond its range", "0", "failing"],
)
@pytest.mark.parametrize("kbps", [None, 0.0, 5.0])
def test_a_worker_without_a_lease_gets_one(idle: WorkerLoad, kbps: float | None) -> None:
    rows = fleet(a=[kbps] * 2, b=[kbps])
    for others in (AB, cpu(a=20, b=20), cpu(a=0, b=0)):
        moves = plan(rows, [*others, idle])
        assert set(moved(moves).values()) == {"idle"}
        assert {move.lease.owner for move in moves} == {"a"}


def test_no_worker_gives_up_its_last_lease() -> None:
    rows = fleet(a=[100], b=[5, 5])
    assert plan(rows, [*cpu(a=90, b=10), WorkerLoad("idle", {"C": 9.0}, {"C": 100.0})]) != ()
    for members in (AB, cpu(a=95, b=5)):
        assert "a0" not in moved(plan(rows, members))


def test_without_throughput_no_worker_has_two_leases_while_another_has_none() -> None:
    rows = fleet(a=[0, 0, 0, 0])
    assert Counter(row.owner for row in after(rows, plan(rows, cpu(a=1, b=70)))) == {"a": 2, "b": 2}


# Metrics that fail


def test_a_worker_whose_metrics_fail_gets_no_more_than_it_has() -> None:
    failing = WorkerLoad("f", {"C": 1.0}, {"C": 100.0}, is_failing=True)
    rows = fleet(a=[10, 10], f=[1], nobody=[10, 10])
    assert set(moved(plan(rows, [*cpu(a=50, b=5), failing])).values()) == {"b"}


def test_if_no_worker_can_measure_all_are_measured_by_throughput() -> None:
    """The KCL's leader assigns nothing then."""
    failing = [replace(one, is_failing=True) for one in cpu(a=90, b=10)]
    rows = fleet(a=[1] * 20, b=[1] * 80, nobody=[1])
    assert set(moved(plan(rows, failing)).values()) == {"a"}


def test_without_workers_nothing_is_planned() -> None:
    assert plan(fleet(nobody=[1]), []) == ()


# Whole fleets


def measured(rows: Sequence[Lease], speeds: dict[str, float], base: float) -> list[WorkerLoad]:
    """What workers measure: no metric if ``base`` is 0, else CPU on hosts of different speed."""
    if not base:
        return workers(*speeds)
    load = sums(rows)
    return cpu(**{who: base + load.get(who, 0.0) / speed for who, speed in speeds.items()})


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(2, 12),
    per_worker=st.integers(1, 20),
    base=st.sampled_from([0.0, 1.0, 10.0, 40.0]),
    skew=st.sampled_from([0.6, 1.2, 3.0]),
)
def test_a_steady_load_comes_to_rest_with_a_lease_for_everybody(
    seed: int, size: int, per_worker: int, base: float, skew: float
) -> None:
    """Whatever the start: vacant leases, leases of one worker, hosts of different speed."""
    rng = random.Random(seed)
    speeds = {f"w{n}": rng.choice([0.5, 1, 1, 2]) for n in range(size)}
    owners = [None, *rng.sample(sorted(speeds), rng.randint(1, size))]
    kbps = [rng.choice([0, 1, 1, 1]) * rng.paretovariate(skew) for _ in range(size * per_worker)]
    rows = [replace(row, owner=rng.choice(owners)) for row in fleet(x=kbps)]
    for turn in itertools.count():
        moves = plan(rows, measured(rows, speeds, base), seed=turn)
        assert len(moved(moves)) == len(moves)
        rows = after(rows, moves)
        assert {row.owner for row in rows} == set(speeds)
        if not moves:
            break
        assert turn < 60, "leases go to and fro"


def test_a_skewed_load_is_spread_evenly_by_a_few_runs() -> None:
    """Of the leases with the most load, each worker gets some; no move is made twice."""
    rng = random.Random(3)
    names = [f"w{n}" for n in range(20)]
    kbps = [min(60.0, 300 / rank) for rank in range(1, 501)]
    rng.shuffle(kbps)
    rows = fleet(**{who: kbps[n * 25 : (n + 1) * 25] for n, who in enumerate(names)})
    moves: list[str] = []
    for turn in range(6):
        found = plan(rows, workers(*names), seed=turn)
        moves += moved(found)
        rows = after(rows, found)
    loads = list(sums(rows).values())
    assert statistics.pstdev(loads) < 0.08 * statistics.fmean(loads)
    assert max(loads) < 1.15 * statistics.fmean(loads)
    assert len(moves) < 100


def test_a_plan_for_many_workers_is_quick() -> None:
    """Its time grows with the leases, not with leases times workers."""
    rng = random.Random(1)

    def seconds(size: int) -> float:
        names = [f"w{n}" for n in range(size)]
        rows = fleet(**{who: [rng.paretovariate(1.2) for _ in range(25)] for who in names})
        rows = [replace(row, owner=rng.choice(names[: size // 2])) for row in rows]
        began = time.process_time()
        assert plan(rows, workers(*names))
        return time.process_time() - began

    assert min(seconds(200) for _ in range(3)) < 12 * min(seconds(50) for _ in range(3))
