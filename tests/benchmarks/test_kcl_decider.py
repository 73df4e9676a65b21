"""The KCL's rule, as benchmarks measure it, does what a Java KCL does; ours does it more evenly."""

from __future__ import annotations

import json
import random
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import kcl_decider
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.leading import by_load
from sparkinesis.lease.leading.members import Member
from sparkinesis.lease.leading.moves import AssignSettings, Move, Run
from sparkinesis.lease.lease import Lease

# Written by: python -m tests.interop.kcl.decider
FIXTURE = Path(__file__).parents[1] / "fixtures" / "kcl-3.5.1-assignments.json"
FLEETS: list[dict[str, Any]] = json.loads(FIXTURE.read_text())


def members_of(fleet: Mapping[str, Any]) -> list[Member]:
    return [
        Member(
            who,
            {name: value for name, (value, _) in metrics.items()},
            {name: float(limit) for name, (_, limit) in metrics.items()},
        )
        for who, metrics in fleet["members"].items()
    ]


def leases_of(fleet: Mapping[str, Any]) -> list[Lease]:
    return [
        Lease(key, key, ExtendedSequenceNumber("1"), owner=owner, throughput_kbps=kbps)
        for key, owner, kbps, _ in fleet["leases"]
    ]


def planned(rule: Callable[[Run], tuple[Move, ...]], fleet: Mapping[str, Any]) -> dict[str, str]:
    vacant = {key: since for key, _, _, since in fleet["leases"] if since is not None}
    leases, members, rng = leases_of(fleet), members_of(fleet), random.Random(1)
    moves = rule(Run(leases, members, vacant, (), not vacant, AssignSettings(), rng))
    return {move.lease.key: move.to for move in moves}


def between(fleet: Mapping[str, Any], moves: Mapping[str, str]) -> list[list[Any]]:
    """The number of leases that go from one worker to another."""
    owners = {row.key: row.owner for row in leases_of(fleet)}
    pairs = Counter((owners[key], to) for key, to in moves.items())
    return [[*pair, number] for pair, number in sorted(pairs.items())]


@pytest.mark.parametrize("fleet", FLEETS)
def test_the_rule_does_what_a_java_kcl_does(fleet: dict[str, Any]) -> None:
    found = planned(kcl_decider.plan, fleet)
    if "assigned" in fleet:
        assert found == fleet["assigned"]
    else:
        assert between(fleet, found) == fleet["balanced"]


def test_the_fleets_show_both_kinds_of_decisions() -> None:
    assert sum("assigned" in fleet for fleet in FLEETS) > 10
    assert sum(bool(fleet.get("balanced")) for fleet in FLEETS) > 10


def deviation(fleet: Mapping[str, Any], moves: Mapping[str, str]) -> float:
    """How uneven the KB/s of the workers are after some moves, in parts of the mean."""
    loads = dict.fromkeys(fleet["members"], 0.0)
    for key, owner, kbps, _ in fleet["leases"]:
        to = moves.get(key, owner)
        if to in loads:
            loads[to] += kbps or 0.0
    return statistics.pstdev(loads.values()) / statistics.fmean(loads.values())


def test_one_run_of_our_rule_makes_the_same_fleets_more_even() -> None:
    fleets = [fleet for fleet in FLEETS if not any(fleet["members"].values())]
    ours, java, before = (
        statistics.fmean(deviation(fleet, planned(rule, fleet)) for fleet in fleets)
        for rule in (by_load.plan, kcl_decider.plan, lambda _: ())
    )
    assert ours < java < before
