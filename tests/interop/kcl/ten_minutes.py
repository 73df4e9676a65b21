"""Ten minutes of two workers of each kind on eight shards: acts in five, and a watch in three."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.interop.kcl.led import leader_of, leases, start_member, unbalanced, uneven
from tests.interop.kcl.outcome import Outcome
from tests.interop.kcl.playing import APPLICATION, many_keys, producing, unfinished
from tests.interop.kcl.stage import Stage
from tests.streams import merge_neighbours, split

SHARDS = (4, 2, 2)
"""Of the three streams."""
_REST, _END = 7.0, 10.0
"""The minutes between which the fleet is watched."""
_NO_FAILURE = "NO FAILURE: "
"""Before what is said, and fails no scenario."""


def counted(on: Stage) -> Outcome:
    """In 2.x mode, each worker of the last minutes has its even share of the leases."""

    def start(name: str) -> None:
        if name.startswith("j"):
            on.start_java(name, APPLICATION, mode="COMPATIBLE_WITH_2X")
        else:
            on.start_ours(name, APPLICATION)
        on.wait_until(f"a batch of {name}", lambda: on.has_read(name))

    return _play(on, ("w1", "w2", "j1", "j2"), "w", start, lambda live: uneven(leases(on), live))


def led(order: Sequence[str], last: str) -> Callable[[Stage], Outcome]:
    """Return the scenario of workers that start in this order; at last, the kind ``last`` leads.

    With a leader of ours, each worker of the last minutes has leases, and as much load as the
    others. A Java leader leaves a worker that comes later without any, as long as each lease of the
    others is more than it should give up: what it does is said, and is no failure.
    """

    def play(on: Stage) -> Outcome:
        def unbalanced_by(live: set[str]) -> list[str]:
            leader = leader_of(on) or "nobody"
            mark = "" if leader.startswith("w") else _NO_FAILURE
            return [f"{mark}{leader} leads: {one}" for one in unbalanced(leases(on), live)]

        return _play(on, order, last, lambda name: start_member(on, name), unbalanced_by)

    return play


def _play(
    on: Stage,
    order: Sequence[str],
    last: str,
    start: Callable[[str], None],
    wrong: Callable[[set[str]], list[str]],
) -> Outcome:
    first, second, third = on.streams
    former = "j" if last == "w" else "w"
    live = {f"{kind}{number}" for kind in "jw" for number in (3, 4)}
    looks: Counter[str] = Counter()
    began = time.monotonic()

    def has_come(minute: float) -> bool:
        return time.monotonic() >= began + 60 * minute

    def until(minute: float) -> None:
        on.wait_until(f"minute {minute:g}", lambda: has_come(minute))

    def is_watched() -> bool:
        """Note what is wrong now; return True once the time is over."""
        looks.update(wrong(live))
        return has_come(_END)

    def has_last_leader() -> bool:
        return "Leader" not in on.coordination(APPLICATION) or str(leader_of(on)).startswith(last)

    with producing(on, many_keys(on)):
        for name in order:
            start(name)
        until(1.0)
        split(on.kinesis, first)
        merge_neighbours(on.kinesis, second)
        until(1.5)
        on.kill(f"{last}1")
        start(f"{last}3")
        split(on.kinesis, third)
        until(2.2)
        on.end(f"{last}2")
        start(f"{last}4")
        split(on.kinesis, second)
        until(3.0)
        on.kill(f"{former}1")
        merge_neighbours(on.kinesis, first)
        until(3.3)
        on.end(f"{former}2")
        on.wait_until(f"a leader of the kind {last}, if any leads", has_last_leader)
        for name in (f"{former}3", f"{former}4"):
            start(name)
        until(4.5)
        merge_neighbours(on.kinesis, third)
        split(on.kinesis, first)
        until(_REST)
        on.wait_until(f"minute {_END:g}", is_watched)
    verdict = on.verdict()
    on.wait_until("the end of each closed shard", lambda: not unfinished(on))
    problems = [f"{one}, in {count} looks" for one, count in sorted(looks.items())]
    for name in sorted(live):
        on.end(name)
    notes = [one for one in problems if one.startswith(_NO_FAILURE)]
    for note in notes:
        print(f"  {note}", flush=True)
    return Outcome(
        verdict,
        on.problems() + unfinished(on) + [one for one in problems if one not in notes],
        repeats=on.repeats(),
        may_repeat=True,
    )
