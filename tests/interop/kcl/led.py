"""Fleets that a leader assigns leases to: workers of both kinds, and leaders of both kinds."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.rows import read_rows
from tests.interop.kcl.outcome import Outcome
from tests.interop.kcl.playing import APPLICATION, kill_at_work, producing, unfinished
from tests.interop.kcl.stage import Stage
from tests.streams import merge_neighbours, split

QUIET = 45.0
"""Seconds after the last act in which the fleet comes to rest."""
WATCHED = 20.0
"""Seconds for which it must then be at rest."""
_BAND = 0.10


def _led(order: Sequence[str], leader: str, last: str) -> Callable[[Stage], Outcome]:
    """Return the scenario of workers that start in this order, of which ``leader`` leads at first.

    A worker's kind is the first letter of its name. The leader is killed, then a worker of the
    other kind. At last, the fleet has a leader of the kind ``last``, and two workers of each. If
    that leader is ours, no worker may be without a lease, and all must have as much load. (A Java
    leader leaves a new worker without any, as long as each of the others has a lease that is more
    than it should give up.)
    """

    def play(on: Stage) -> Outcome:
        keys = [
            key for stream in on.streams for key in (*on.keys(stream), f"{stream}/x", f"{stream}/y")
        ]
        first, second, third = on.streams
        other = "j1" if leader == "w1" else "w1"
        with producing(on, keys):
            for name in order:
                start_member(on, name)
                if name == leader:
                    on.wait_until(f"{leader}, the leader", lambda: leader_of(on) == leader)
            split(on.kinesis, first)
            merge_neighbours(on.kinesis, second)
            kill_at_work(on, leader)
            start_member(on, f"{leader[0]}3")
            on.wait_until("another leader", lambda: leader_of(on) not in {None, leader})
            split(on.kinesis, second)
            merge_neighbours(on.kinesis, third)
            on.kill(other)
            start_member(on, f"{other[0]}3")
            former = "j" if last == "w" else "w"
            for name in (f"{former}2", f"{former}3"):
                on.end(name)
            on.wait_until(
                f"a leader of the kind {last}", lambda: str(leader_of(on)).startswith(last)
            )
            for name in (f"{former}4", f"{former}5"):
                start_member(on, name)
            live = {f"{last}2", f"{last}3", f"{former}4", f"{former}5"}
            time.sleep(QUIET)
            problems = _at_rest(on, live) if last == "w" else []
        verdict = on.verdict()
        on.wait_until("the end of each closed shard", lambda: not unfinished(on))
        problems += row_problems(on.rows(APPLICATION), on.coordination(APPLICATION))
        for name in sorted(live):
            on.end(name)
        return Outcome(
            verdict,
            on.problems() + problems + unfinished(on),
            repeats=on.repeats(),
            may_repeat=True,
        )

    return play


def start_member(on: Stage, name: str) -> None:
    """Start a worker, and wait until it is a member of the fleet."""
    if name.startswith("j"):
        on.start_java(name, APPLICATION)
    else:
        on.start_ours(name, APPLICATION, balance="throughput")
    on.wait_until(f"the load of {name}", lambda: name in known(on))


def leases(on: Stage) -> list[Lease]:
    rows = read_rows(on.rows(APPLICATION).values())
    return [row for row in rows.leases if not row.is_finished]


def known(on: Stage) -> set[str]:
    """Return the workers that have told their load."""
    return {key for key, row in on.coordination(APPLICATION).items() if "sts" in row}


def leader_of(on: Stage) -> str | None:
    row = on.coordination(APPLICATION).get("Leader", {})
    return None if "isReleased" in row else row.get("ownerName", {}).get("S")


def _at_rest(on: Stage, live: set[str]) -> list[str]:
    """Return what is wrong in the looks of a while: who has no lease, or too much or too little."""
    until, found = time.monotonic() + WATCHED, set()
    while time.monotonic() < until:
        found |= set(unbalanced(leases(on), live))
        time.sleep(1.0)
    return sorted(found)


def unbalanced(rows: Sequence[Lease], live: set[str]) -> list[str]:
    """Return a sentence for each worker without a lease, or off the mean by more than one lease.

    Of a tenth of the mean, or one lease, the larger counts: leases cannot be divided.
    """
    load: defaultdict[str | None, float] = defaultdict(float)
    for row in rows:
        load[row.actual_owner] += row.throughput_kbps or 0.0
    found = _astray(load.keys(), live)
    mean = sum(load.values()) / len(live)
    largest = max((row.throughput_kbps or 0.0 for row in rows), default=0.0)
    found += [
        f"{name} has more load than the mean by more than a lease"
        for name in sorted(live)
        if abs(load[name] - mean) > max(_BAND * mean, largest) + 1e-6
    ]
    return found


def uneven(rows: Sequence[Lease], live: set[str]) -> list[str]:
    """Return a sentence for each worker without a lease, and one if their numbers differ by two."""
    counts = Counter(row.actual_owner for row in rows)
    found = _astray(counts.keys(), live)
    if max(counts.values(), default=0) - min(counts.values(), default=0) > 1:
        found.append(f"the leases are not shared evenly: {sorted(counts.values())}")
    return found


def _astray(owners: Set[str | None], live: set[str]) -> list[str]:
    """Return a sentence for each live worker that owns nothing, and for each other owner."""
    found = [f"{name} has no lease" for name in sorted(live - owners)]
    return found + [f"{name} is dead and has leases" for name in sorted(map(str, owners - live))]


_ATTRIBUTES: Mapping[str, set[str]] = {
    "WORKER_METRIC_STATS": {"lut", "sts", "opr", "sup", "slu"},
    "LEADER": {"ownerName", "leaseDuration", "recordVersionNumber", "isReleased"},
    "CLIENT_VERSION_MIGRATION": {"cv", "mb", "mts", "h"},
}
"""What Java writes. In tables of their own, rows tell what they are by these alone."""
_KEYS = {"leaseKey", "key", "wid", "entityType", "properties"}


def row_problems(
    table: Mapping[str, Mapping[str, Any]], coordination: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return what rows of coordination have that Java's do not have, whoever wrote them.

    table: the rows of the lease table. A KCL before 3.5 reads no table that has other rows, too.
    """
    found = []
    is_beside = any("entityType" not in row for row in coordination.values())
    for key, row in coordination.items():
        kinds = [row["entityType"]["S"]] if "entityType" in row else _ATTRIBUTES
        known = [_ATTRIBUTES[kind] for kind in kinds if kind in _ATTRIBUTES]
        if known and not any(row.keys() - _KEYS <= attributes for attributes in known):
            found.append(f"the row {key} has {', '.join(sorted(row.keys() - _KEYS))}")
        if is_beside and key in table:
            found.append(f"the row {key} is in the lease table, which a KCL before 3.5 cannot read")
    return found


java_first = _led(["j1", "j2", "w1", "w2"], "j1", last="j")
ours_first = _led(["w1", "w2", "j1", "j2"], "w1", last="w")
in_turns = _led(["j1", "w1", "j2", "w2"], "j1", last="w")
