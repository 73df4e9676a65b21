"""`sparkinesis convert-leases`: an application of one stream becomes one of several, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.errors import LeaseTableError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint
from sparkinesis.lease.moving import conversion
from sparkinesis.lease.moving.conversion import Conversion
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.kpl.pack import aggregate
from tests.command import Command, Result, failure, objects
from tests.integration.worker.conftest import FAILOVER_TIME
from tests.integration.worker.scene import Scene, create_leases
from tests.journal import Journal
from tests.kcl import rows_of
from tests.streams import identifier, make_anew, split

Make = Callable[..., Application]

FIRST, SECOND = "shardId-000000000001", "shardId-000000000002"
"""The first of the open shards, after a split."""


@pytest.fixture
def convert(call: Command) -> Command:
    """Converts the leases of the application, which has its stream's name."""

    def command(to: str, *options: str, yes: bool = True) -> Result:
        given = [] if "--failover-time" in options else ["--failover-time", "0.1"]
        given += ["--yes"] if yes else []
        return call("convert-leases", "--to", to, *options, *given)

    return command


def without_kind(item: dict[str, Any]) -> dict[str, Any]:
    """A row without that in which the kinds differ, and without the fence of its writes."""
    kind = ("leaseKey", "streamName", "shardId", "streamMark", "leaseOwner", "leaseCounter")
    return {name: value for name, value in item.items() if name not in kind}


@pytest.fixture
def table(application: Make, kinesis: Any, stream: str) -> LeaseTable:
    """The leases of a split shard, with all that a row may hold."""
    split(kinesis, stream)
    create_leases(application(initial_position="latest"))
    table = application().table()
    first, *others = table.leases()
    held = table.write(requests.take(first, "gone"))
    at = ExtendedSequenceNumber("12345678901234567890", 7)
    held = table.write(requests.with_throughput(requests.checkpoint(held, at), 1.5))
    pending = PendingCheckpoint(ExtendedSequenceNumber("12345678901234567899", 2), b"\x00state")
    table.write(requests.prepare(held, pending))
    table.write(requests.add_children(others[0], ["shardId-000000000008", "shardId-000000000009"]))
    return table


@pytest.mark.parametrize("several_first", [False, True])
def test_an_application_goes_on_inside_an_aggregate_and_back(
    scene: Scene, convert: Command, *, several_first: bool
) -> None:
    """Stopped twice within the same aggregated record: nothing is lost, nothing comes again."""
    users = [b"%d" % n for n in range(9)]
    (packed,) = aggregate([("k", "0", data) for data in users])
    scene.put(packed.data)
    seen: list[bytes] = []

    def run(stops_at: bytes, *, several: bool) -> None:
        journal = Journal()

        def stop_there(batch: Any, checkpointer: Any) -> None:
            for record in batch.records:
                if record.data > stops_at:
                    raise InterruptedError
                seen.append(record.data)
                checkpointer.checkpoint(record)

        given: dict[str, Any] = {"stream": None, "streams": [scene.stream]} if several else {}
        worker = scene.start(on_records=stop_there, journal=journal, **given)
        # Before the last record, a call fails at the next one.
        journal.wait(lambda: seen[-1:] == [stops_at])
        journal.wait(lambda: stops_at == b"9" or bool(journal.calls("failed")))
        worker.shutdown(20)

    kinds = (several_first, not several_first, several_first)
    for number, several in enumerate(kinds):
        if number:
            to = "several" if several else "single"
            result = convert(to, "--stream", scene.stream)
            assert result.returncode == 0, result.stderr
        if number == 2:
            scene.put(b"9")
        run((b"3", b"6", b"9")[number], several=several)
    assert seen == [*users, b"9"]


def test_all_that_a_row_holds_is_kept_but_its_owner(
    table: LeaseTable, dynamodb: Any, kinesis: Any, stream: str, convert: Command
) -> None:
    dynamodb.update_item(
        TableName=stream,
        Key={"leaseKey": {"S": FIRST}},
        UpdateExpression="SET note = :note",
        ExpressionAttributeValues={":note": {"S": "somebody else's"}},
    )
    before = rows_of(dynamodb, stream)
    assert len(before) == 3
    assert before[FIRST]["leaseOwner"] == {"S": "gone"}
    name = identifier(kinesis, stream)
    result = convert("several", "--stream", stream)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == (
        f"Converted 3 leases of {stream}: start it with streams=['{stream}', ...] now."
    )
    several = rows_of(dynamodb, stream)
    assert several.keys() == {f"{name}:{shard}" for shard in before}
    for shard, item in before.items():
        new = several[f"{name}:{shard}"]
        assert without_kind(new) == without_kind(item)
        assert (new["streamName"], new["shardId"]) == ({"S": name}, {"S": shard})
        assert "leaseOwner" not in new
    first = several[f"{name}:{FIRST}"]
    assert first["pendingCheckpointState"] == {"B": b"\x00state"}
    assert first["note"] == {"S": "somebody else's"}

    assert convert("single").returncode == 0, "the rows name the stream"
    after = rows_of(dynamodb, stream)
    assert after.keys() == before.keys()
    for shard, item in before.items():
        assert without_kind(after[shard]) == without_kind(item)
        assert not {"streamName", "shardId", "leaseOwner"} & after[shard].keys()


def test_a_table_of_the_wanted_kind_is_left_alone(
    table: LeaseTable, dynamodb: Any, stream: str, convert: Command
) -> None:
    before = rows_of(dynamodb, stream)
    result = convert("single")
    assert (result.returncode, result.stderr) == (0, "")
    assert "has no leases to convert to single." in result.stdout
    assert rows_of(dynamodb, stream) == before
    assert convert("several", "--stream", stream).returncode == 0
    before = rows_of(dynamodb, stream)
    result = convert("several", "--stream", stream)
    assert "has no leases to convert to several." in result.stdout
    assert rows_of(dynamodb, stream) == before


def test_a_dry_run_and_a_missing_terminal_write_nothing(
    table: LeaseTable, dynamodb: Any, kinesis: Any, stream: str, convert: Command
) -> None:
    before, name = rows_of(dynamodb, stream), identifier(kinesis, stream)
    assert "no terminal" in failure(convert("several", "--stream", stream, yes=False))
    result = convert("several", "--stream", stream, "--dry-run", yes=False)
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["lease", "becomes", "checkpoint", "pending"]
    assert lines[1].split() == [FIRST, f"{name}:{FIRST}", "…1234567890:7", "…1234567899:2"]
    assert lines[-1] == f"3 leases of {stream} would be converted. Nothing was written."
    found = objects(convert("several", "--stream", stream, "--dry-run", "--json", yes=False))
    assert [one["written"] for one in found] == [False] * 3
    assert rows_of(dynamodb, stream) == before
    found = objects(convert("several", "--stream", stream, "--json"))
    assert found[0] == {
        "lease": FIRST,
        "becomes": f"{name}:{FIRST}",
        "stream": stream,
        "identifier": name,
        "shard": FIRST,
        "checkpoint": {"sequence_number": "12345678901234567890", "sub_sequence_number": 7},
        "pending_checkpoint": {
            "sequence_number": "12345678901234567899",
            "sub_sequence_number": 2,
        },
        "written": True,
    }


def test_a_worker_that_runs_is_told_and_keeps_its_leases(scene: Scene, convert: Command) -> None:
    scene.start(worker_id="alive")
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    # A renewal is due in each third of the failover time.
    result = convert("several", "--stream", scene.stream, "--failover-time", str(FAILOVER_TIME))
    assert "Workers of the application run: shardId-" in failure(result)
    assert "by alive. Nothing was written. Stop all workers" in result.stderr
    for item in rows_of(scene.dynamodb, scene.stream).values():
        assert item["leaseOwner"] == {"S": "alive"}
        assert "convertedTo" not in item
    assert scene.journal.calls("lease_lost") == []


def plan_of(table: LeaseTable, name: str, *, to_several: bool = True) -> Conversion:
    leases = table.scan().several_streams.leases or tuple(table.leases())
    ordered = tuple(sorted(leases, key=lambda lease: lease.key))
    return Conversion(StreamIdentifier.parse(name), to_several, ordered)


def test_a_worker_that_renews_in_the_last_moment_wins(
    table: LeaseTable, dynamodb: Any, kinesis: Any, stream: str
) -> None:
    plan = plan_of(table, identifier(kinesis, stream))
    taken = table.write(requests.take(plan.leases[1], "late"))
    with pytest.raises(LeaseTableError, match=rf"{plan.leases[1].key} was changed.*a worker runs"):
        conversion.convert(table, plan)
    found = rows_of(dynamodb, stream)
    assert len(found) == 3
    assert found[taken.key]["leaseOwner"] == {"S": "late"}


class CutShortError(Exception):
    pass


def cut_short(monkeypatch: pytest.MonkeyPatch, method: str, times: int) -> None:
    """Let so many calls of a method of the table through; the next one fails."""
    whole, left = getattr(LeaseTable, method), [times]

    def fails(self: LeaseTable, *given: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise CutShortError
        return whole(self, *given, **named)

    monkeypatch.setattr(conversion, "_AT_ONCE", 1)
    monkeypatch.setattr(LeaseTable, method, fails)


@pytest.mark.parametrize(
    ("begun", "then"), [(1, 1), (0, 0), (1, 0)], ids=["to several", "back", "taken back"]
)
@pytest.mark.parametrize(
    ("method", "times"), [("write", 1), ("create_item", 0), ("create_item", 2), ("delete", 1)]
)
def test_a_conversion_that_was_cut_short_is_completed_or_taken_back_and_no_worker_starts_before(
    scene: Scene,
    table: LeaseTable,
    dynamodb: Any,
    convert: Command,
    method: str,
    *,
    times: int,
    begun: int,
    then: int,
) -> None:
    """``begun`` and ``then``: 1 is the conversion to several streams, 0 the one to a single one."""
    if not begun:
        assert convert("several", "--stream", scene.stream).returncode == 0
    before = {key.rpartition(":")[2]: item for key, item in rows_of(dynamodb, scene.stream).items()}
    name = identifier(scene.kinesis, scene.stream)
    plan = plan_of(table, name, to_several=bool(begun))
    with pytest.MonkeyPatch.context() as patch:
        cut_short(patch, method, times)
        with pytest.raises(CutShortError):
            conversion.convert(table, plan)
    half = rows_of(dynamodb, scene.stream)
    assert any("convertedTo" in item for item in half.values())
    for given in ({}, {"stream": None, "streams": [scene.stream]}):
        with pytest.raises(LeaseTableError, match=r"is being converted.*Run the command again"):
            scene.application(**given).worker().start()
    assert rows_of(dynamodb, scene.stream) == half
    result = convert(("single", "several")[then], "--stream", scene.stream)
    assert result.returncode == 0, result.stderr
    after = rows_of(dynamodb, scene.stream)
    prefix = f"{name}:" if then else ""
    assert after.keys() == {f"{prefix}{shard}" for shard in before}
    for shard, item in before.items():
        assert without_kind(after[f"{prefix}{shard}"]) == without_kind(item)


def test_rows_of_both_kinds_that_differ_are_told_before_anything_is_written(
    table: LeaseTable, dynamodb: Any, kinesis: Any, stream: str, convert: Command
) -> None:
    name = identifier(kinesis, stream)
    second = table.get(SECOND)
    assert second is not None
    other = second.in_stream(StreamIdentifier.parse(name))
    table.create(Lease(other.key, SECOND, ExtendedSequenceNumber("77"), other.stream))
    before = rows_of(dynamodb, stream)
    said = failure(convert("several", "--stream", stream))
    assert f"has a lease twice, and the rows differ: {SECOND} is at LATEST" in said
    assert f"{other.key} is at 77" in said
    assert rows_of(dynamodb, stream) == before


def test_a_stream_that_is_missing_or_not_named_is_told(
    table: LeaseTable, dynamodb: Any, stream: str, convert: Command
) -> None:
    before = rows_of(dynamodb, stream)
    assert "There is no stream 'nope'" in failure(convert("several", "--stream", "nope"))
    assert "name it by --stream" in failure(convert("several"))
    assert rows_of(dynamodb, stream) == before


def test_leases_of_a_deleted_stream_are_refused(scene: Scene, convert: Command) -> None:
    several = scene.application(stream=None, streams=[scene.stream])
    create_leases(several)
    old, new = make_anew(scene.kinesis, scene.stream)
    before = rows_of(scene.dynamodb, scene.stream)
    assert f"The leases of {old} are those of a deleted stream" in failure(convert("single"))
    assert rows_of(scene.dynamodb, scene.stream) == before
    create_leases(several)
    assert "has leases of 2 streams: " in failure(convert("single"))
    assert "deleted stream" in failure(convert("single", "--stream", old))
    assert convert("single", "--stream", new).returncode == 0
    found = rows_of(scene.dynamodb, scene.stream)
    assert len([key for key in found if key.startswith(old)]) == len(before), "they stay"
    assert len([key for key in found if ":" not in key]) == 1
