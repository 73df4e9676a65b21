"""The scenarios: three streams, read by workers of this library and of a Java KCL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.interop.kcl import led, ten_minutes
from tests.interop.kcl.outcome import Outcome
from tests.interop.kcl.playing import APPLICATION, kill_at_work, many_keys, producing, unfinished
from tests.interop.kcl.rows import compare, leases_of, row_problems, state_of
from tests.interop.kcl.stage import Stage, Stop, remake
from tests.interop.kcl.tenures import place
from tests.streams import merge_neighbours, split


def handover(on: Stage) -> Outcome:
    """Ours, then Java (in 3.x mode), then ours; each cuts an aggregate of every shard in two."""
    problems = []
    for stream in on.streams:
        for key in on.keys(stream):
            on.put_packed(key)
            if stream == on.streams[0]:
                on.put_packed(key, 10, {3: "w1", 6: "j1"})
            else:
                on.put_packed(key, 10, {4: "w1"})
                on.put_packed(key, 10, {5: "j1"})
            on.put_packed(key)
    on.start_ours("w1", APPLICATION, stop="w1")
    problems += _stop_at(on, "w1")
    on.start_java("j1", APPLICATION, stop="j1")
    problems += _stop_at(on, "j1")
    on.start_ours("w2", APPLICATION)
    verdict = on.verdict()
    on.end("w2")
    return Outcome(verdict, problems + on.problems())


def _stop_at(on: Stage, name: str) -> list[str]:
    """Wait until a worker has checkpointed at all of its stops, and end it gracefully."""
    wanted = on.stops[name]

    def reached() -> bool:
        mine = (line for line in on.lines() if line["reader"] == name and "checkpoint" in line)
        return wanted <= {(stream_of(line["shard"]), place(line["checkpoint"])) for line in mine}

    on.wait_until(f"{name}'s stop in each shard", reached)
    on.end(name)
    found = checkpoints_of(on.rows(APPLICATION))
    return [] if found == wanted else [f"{name} has left the checkpoints {found}, not {wanted}"]


def mixed_fleet(on: Stage) -> Outcome:
    """Two workers of each kind; reshards in all streams; one worker of each kind is killed."""
    for name in ("w1", "w2"):
        on.start_ours(name, APPLICATION)
    for name in ("j1", "j2"):
        on.start_java(name, APPLICATION, mode="COMPATIBLE_WITH_2X")
    first, second, third = on.streams
    live = {"w2", "w3", "j2", "j3"}
    with producing(on, many_keys(on)):
        on.wait_until("a batch of each worker", lambda: on.readers() == {"w1", "w2", "j1", "j2"})
        split(on.kinesis, first)
        merge_neighbours(on.kinesis, second)
        kill_at_work(on, "w1")
        on.start_ours("w3", APPLICATION)
        on.wait_until("a batch of w3", lambda: on.has_read("w3"))
        split(on.kinesis, second)
        merge_neighbours(on.kinesis, third)
        kill_at_work(on, "j1")
        on.start_java("j3", APPLICATION, mode="COMPATIBLE_WITH_2X")
        on.wait_until("a batch of j3", lambda: on.has_read("j3"))
        merge_neighbours(on.kinesis, first, index=1)
        on.wait_until("the end of each closed shard", lambda: not unfinished(on))
        on.wait_until("an even share for each worker", lambda: not led.uneven(led.leases(on), live))
    verdict = on.verdict()
    for name in sorted(live):
        on.end(name)
    return Outcome(verdict, on.problems() + unfinished(on), repeats=on.repeats(), may_repeat=True)


def rows(on: Stage) -> Outcome:
    """One worker of each kind, each with a table of its own, on the same streams."""
    first, second, third = on.streams
    before = [key for stream in (first, second) for key in on.keys(stream)]
    for key in before:
        on.put_packed(key)
    cut, prepared = on.keys(third)
    on.put_packed(cut, 10, {4: "rows"})
    on.put_packed(prepared, 10, {5: "prepare"})
    on.start_java("j1", "interop-java", stop="rows")
    on.wait_until("all records so far, at Java", lambda: on.has_read("j1", set(on.put)))
    on.start_ours("w1", "interop-ours", stop="rows", cleanup="keep")
    on.wait_until("all records so far, at ours", lambda: on.has_read("w1", set(on.put)))
    split(on.kinesis, first)
    merge_neighbours(on.kinesis, second)
    for key in (*on.keys(first), *on.keys(second)):
        on.put_packed(key, 10, {7: "rows"})

    def both() -> tuple[dict[str, Any], dict[str, Any]]:
        return leases_of(on.rows("interop-ours")), leases_of(on.rows("interop-java"))

    def states(table: dict[str, Any]) -> dict[str, Any]:
        return {key: state_of(row) for key, row in table.items()}

    def is_reached() -> bool:
        ours, java = both()
        return on.stops["rows"] <= checkpoints_of(ours) and states(ours) == states(java)

    on.wait_until("the same state in both tables", is_reached)
    ours, java = both()
    recorded = _recorded(on, "interop-java")
    on.end("j1")
    on.end("w1")
    expected = on.put_until("rows", "prepare")
    verdicts = {name: on.verdict(name, put=expected) for name in ("w1", "j1")}
    problems = [f"{name}: {one}" for name, one in verdicts.items() if not one.is_good]
    problems += on.problems("w1") + on.problems("j1") + row_problems(ours, java)
    return Outcome(verdicts["w1"], problems, compare(ours, java), recorded)


def checkpoints_of(rows: dict[str, Any]) -> set[Stop]:
    """Return the checkpoints of a table's leases."""
    return {
        (stream_of(key), place((row["checkpoint"]["S"], row["checkpointSubSequenceNumber"]["N"])))
        for key, row in leases_of(rows).items()
    }


def stream_of(key: str) -> str:
    """Return the name of a lease key's stream."""
    return key.split(":")[1]


def _recorded(on: Stage, table: str) -> dict[str, Any]:
    """Return a table as JSON can hold it: what describes it, and its rows."""
    about = on.dynamodb.describe_table(TableName=table)["Table"]
    index = ("IndexName", "KeySchema", "Projection")
    return {
        "KeySchema": about["KeySchema"],
        "AttributeDefinitions": about["AttributeDefinitions"],
        "BillingMode": about.get("BillingModeSummary", {}).get("BillingMode"),
        "GlobalSecondaryIndexes": [
            {name: one[name] for name in index} for one in about.get("GlobalSecondaryIndexes", ())
        ],
        "Items": [row for _, row in sorted(on.rows(table).items())],
    }


def made_anew(on: Stage) -> Outcome:
    """Java reads; a stream is deleted and made anew; then ours takes over."""
    stream = on.streams[0]
    for key in (key for each in on.streams for key in on.keys(each)):
        on.put_packed(key)
    on.start_java("j1", APPLICATION, former="delete", stop="j1")
    on.wait_until("all records, at Java", lambda: on.has_read("j1", set(on.put)))
    former = remake(on, stream)
    on.tell_streams()
    keys = on.keys(stream)
    for key in keys:
        on.put_packed(key, 10, {4: "j1"})
    on.wait_until("the records of the new stream, at Java", lambda: on.has_read("j1", set(keys)))
    on.end("j1")
    on.start_ours("w1", APPLICATION)
    verdict = on.verdict()
    on.end("w1")
    streams = {key.rpartition(":")[0] for key in leases_of(on.rows(APPLICATION))}
    problems = [f"{former} still has leases"] if former in streams else []
    wanted = {on.identifier(each) for each in on.streams}
    problems += [f"{each} has no leases" for each in sorted(wanted - streams)]
    return Outcome(verdict, problems + on.problems())


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    play: Callable[[Stage], Outcome]
    shards: tuple[int, ...] = (2, 2, 2)
    """Of the three streams, at first."""


SCENARIOS = (
    Scenario("ours, then Java, then ours; aggregates cut in two", handover),
    Scenario("two workers of each kind, one of each killed", mixed_fleet),
    Scenario("the rows of each kind, for the same state", rows),
    Scenario("a stream deleted and made anew: Java, then ours", made_anew),
    Scenario("a leader assigns: Java, then ours; at last, Java leads", led.java_first),
    Scenario("a leader assigns: ours, then Java; at last, ours leads", led.ours_first),
    Scenario("a leader assigns: both in turns; at last, ours leads", led.in_turns),
)
TEN_MINUTES = (
    Scenario("ten minutes in 2.x mode", ten_minutes.counted, ten_minutes.SHARDS),
    *(
        Scenario(
            f"ten minutes with a leader: {name}", ten_minutes.led(order, last), ten_minutes.SHARDS
        )
        for name, order, last in (
            ("Java first; at last, Java leads", ("j1", "j2", "w1", "w2"), "j"),
            ("ours first; at last, Java leads", ("w1", "w2", "j1", "j2"), "j"),
            ("in turns; at last, ours leads", ("j1", "w1", "j2", "w2"), "w"),
        )
    ),
)
