"""`sparkinesis leases`, `top` and `reset` for an application of several streams."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.lease.extended_sequence_number import TRIM_HORIZON
from sparkinesis.lease.moving.application_reset import StreamToReset, plan_resets
from sparkinesis.local.faults import Fault
from sparkinesis.monitor.lags import Lag, LagStreams, lag_client
from sparkinesis.monitor.lease_monitor import LagWatch
from sparkinesis.stream.address import StreamIdentifier, address_of
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import LATEST
from tests.command import Command, objects
from tests.integration.worker.scene import FIRST, Scene, create_leases, leases_of
from tests.journal import PATIENCE
from tests.pace import eventually
from tests.streams import arn_of, create_anew, identifier, make_anew, put, split

Faults = Callable[..., None]
DENIED = Fault.error("AccessDeniedException", "not you")


def test_each_stream_has_its_own_lags_though_the_shards_have_the_same_ids(scene: Scene) -> None:
    create_leases(scene.application(stream=None, streams=scene.streams))
    put(scene.kinesis, scene.streams[1], [b"x"], key="k")
    result = scene.call("leases", "--watch-for", "0")
    assert result.stderr == ""
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["stream", "shard", "owner", "state", "checkpoint", "behind", "renewed"]
    assert [line[:5] for line in lines[1:4]] == [
        [name, FIRST, "-", "unowned", TRIM_HORIZON] for name in scene.streams
    ]
    behind = {line[0]: line[5] for line in lines[1:4]}
    assert behind[scene.streams[0]] == behind[scene.streams[2]] == "0.0"
    assert float(behind[scene.streams[1]]) > 0
    assert lines[-1][:6] == ["3", "streams,", "3", "shards", "(3", "unowned),"]

    found = objects(scene.call("leases", "--watch-for", "0", "--json"))
    assert [one["stream"] for one in found] == scene.streams
    for one in found:
        assert one["identifier"] == identifier(scene.kinesis, one["stream"])
        assert one["lease"] == f"{one['identifier']}:{FIRST}"
        assert one["shard"] == FIRST
        assert one["made_anew_as"] is None
        assert (one["millis_behind_latest"] > 0) == (one["stream"] == scene.streams[1])


def test_some_of_the_streams(scene: Scene, streams: list[str], call: Command) -> None:
    create_leases(scene.application(stream=None, streams=streams))
    names = (streams[0], arn_of(scene.kinesis, streams[1]), identifier(scene.kinesis, streams[2]))
    for stream, name in zip(streams, names, strict=True):
        before = scene.server.kinesis.calls.count("GetRecords", stream=stream)
        (one,) = objects(call("leases", "--watch-for", "0", "--json", "--stream", name))
        assert (one["stream"], one["millis_behind_latest"]) == (stream, 0)
        assert scene.server.kinesis.calls.count("GetRecords", stream=stream) == before + 1
    options = ("--stream", names[0], "--stream", names[2])
    found = objects(call("leases", "--watch-for", "0", "--json", *options))
    assert [one["stream"] for one in found] == [streams[0], streams[2]]
    (look,) = objects(call("top", "--once", "--json", *options))
    assert [one["stream"] for one in look["streams"]] == [streams[0], streams[2]]
    for command in (("leases", "--watch-for", "60"), ("top", "--once")):
        result = call(*command, "--stream", "nope")
        assert (result.returncode, result.stdout) == (1, "")
        assert "is of the stream 'nope'. The table has leases of " in result.stderr
        assert ", ".join(streams) in result.stderr


def test_several_names_for_a_table_of_one_stream_are_an_error(scene: Scene, call: Command) -> None:
    create_leases(scene.application())
    for given, why in (
        (["--stream", "a", "--stream", "b"], "those of one stream, and --stream names several"),
        (["--stream", "1:a:2"], "The leases name no stream, so 1:a:2"),
    ):
        for command in (["leases"], ["top"], ["reset", "--to", "latest", "--yes"]):
            result = call(*command, *given)
            assert result.returncode == 1
            assert why in result.stderr
    result = call("reset", "--to", "latest", "--yes")
    assert "Name it by --stream." in result.stderr
    assert [row.counter for row in scene.table.leases()] == [0, 0]


def test_a_stream_that_cannot_be_read_says_so_and_the_others_have_their_lags(scene: Scene) -> None:
    gone, denied, fine = scene.streams
    create_leases(scene.application(stream=None, streams=scene.streams))
    scene.kinesis.delete_stream(StreamName=gone)
    scene.faults(DENIED, stream=denied)
    result = scene.call("leases", "--watch-for", "0")
    (look,) = objects(scene.call("top", "--once", "--json"))
    scene.faults(None)
    assert result.returncode == 0
    rows = {line.split()[0]: line for line in result.stdout.splitlines()[1:4]}
    assert "stream not found" in rows[gone]
    assert "unknown" in rows[denied]
    assert "0.0 s" in rows[fine]
    assert result.stderr.count("\n") == 1
    assert "not you" in result.stderr
    why = {one["stream"]: one["lag_unknown_because"] for one in look["shards"]}
    assert why[gone] == "stream not found"
    assert "not you" in why[denied]
    assert why[fine] is None


def test_a_stream_made_anew_is_told_from_the_old_one(scene: Scene) -> None:
    app = scene.application(stream=None, streams=scene.streams[:2])
    create_leases(app)
    old, new = make_anew(scene.kinesis, scene.streams[0])
    (one, _) = objects(scene.call("leases", "--watch-for", "0", "--json"))
    assert (one["identifier"], one["lag_unknown_because"]) == (old, "stream made anew")
    create_leases(app)
    put(scene.kinesis, scene.streams[0], [b"x"], key="k")
    result = scene.call("leases", "--watch-for", "0")
    rows = {line.split()[0]: line for line in result.stdout.splitlines()[1:4]}
    assert rows.keys() == {old, new, scene.streams[1]}
    assert "stream made anew" in rows[old]
    assert "stream made anew" not in rows[new]
    assert result.stderr.startswith(f"Deleted and made anew: {old} (now {new}). ")
    found = {
        one["identifier"]: one
        for one in objects(scene.call("leases", "--watch-for", "0", "--json"))
    }
    assert (found[old]["made_anew_as"], found[new]["made_anew_as"]) == (new, None)
    assert found[new]["millis_behind_latest"] > 0


def test_a_stream_that_has_left_the_application_shows(scene: Scene) -> None:
    create_leases(scene.application(stream=None, streams=scene.streams))
    scene.start(stream=None, streams=scene.streams[1:])
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    result = scene.call("leases", "--watch-for", "0")
    assert result.stderr.startswith(
        f"No live worker reads {scene.streams[0]}, while workers read other"
    )
    one = objects(scene.call("leases", "--watch-for", "0", "--json", "--stream", scene.streams[0]))
    assert [row["stream_is_read"] for row in one] == [False]
    shown = scene.call("top", "--once").stdout.splitlines()
    assert ", 3 streams: 3 shards (2 held, 1 unowned), " in shown[0]
    assert shown[6].endswith("not read")


def test_many_streams_take_one_call_to_find_and_two_each_for_their_lags(scene: Scene) -> None:
    names = [f"many-{n}-{uuid.uuid4().hex[:6]}" for n in range(30)]
    for name in names:
        scene.kinesis.create_stream(StreamName=name, ShardCount=1)
    create_leases(scene.application(stream=None, streams=names))
    counted = ("ListStreams", "DescribeStreamSummary", "GetShardIterator", "GetRecords")
    before = {name: scene.server.kinesis.calls.count(name) for name in counted}
    found = objects(scene.call("leases", "--watch-for", "0", "--json"))
    calls = {name: scene.server.kinesis.calls.count(name) - before[name] for name in counted}
    assert [one["millis_behind_latest"] for one in found] == [0] * 30
    assert calls["DescribeStreamSummary"] == 0
    assert calls["ListStreams"] == 1
    assert calls["GetShardIterator"] == calls["GetRecords"] == 30


def test_a_stream_that_returns_has_a_lag_again(scene: Scene, streams: list[str]) -> None:
    """`top` looks for a stream again, at first when its leases come, then from time to time."""
    app = scene.application(stream=None, streams=streams[:2])
    old = create_leases(app)
    now = 0.0
    clients = LagStreams(
        None,
        lambda stream: address_of(stream, "us-east-1", scene.server.endpoint_url),
        lambda at: lag_client(at, 1.0),
        clock=lambda: now,
    )
    with LagWatch(clients, every=0.1) as watch:
        watch.ask_for(old.values())
        assert set(watch.known(PATIENCE).values()) == {Lag(0)}
        scene.kinesis.delete_stream(StreamName=streams[0])
        first = f"{streams[0]}/{FIRST}"
        eventually(lambda: watch.known()[old[first].key] == Lag(why="shard is gone"))
        now = 70.0
        eventually(lambda: watch.known()[old[first].key] == Lag(why="stream not found"))
        new = create_anew(scene.kinesis, streams[0], str(old[first].stream))
        now = 140.0
        eventually(lambda: watch.known()[old[first].key] == Lag(why="stream made anew"))
        newer = old[first].in_stream(StreamIdentifier.parse(new))
        watch.ask_for([*old.values(), newer])
        eventually(lambda: watch.known().get(newer.key) == Lag(0))
        assert watch.known()[old[f"{streams[1]}/{FIRST}"].key] == Lag(0)


# --- reset


def test_reset_moves_a_running_application_in_all_of_its_streams(scene: Scene) -> None:
    scene.start(stream=None, streams=scene.streams)
    for name in scene.streams:
        put(scene.kinesis, name, [f"{name}-old".encode()], key="k")
    scene.journal.wait(lambda: len(scene.journal.data()) == 3)
    last = {record.data: record.sequence_number for record in scene.journal.records()}
    found = objects(scene.call("reset", "--to", "latest", "--yes", "--json"))
    assert [(one["stream"], one["shard"], one["written"]) for one in found] == [
        (name, FIRST, True) for name in scene.streams
    ]
    for one, name in zip(found, scene.streams, strict=True):
        assert one["identifier"] == identifier(scene.kinesis, name)
        assert one["lease"] == f"{one['identifier']}:{FIRST}"
        assert one["to"]["sequence_number"] == last[f"{name}-old".encode()], "of its own stream"
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 6)
    for name in scene.streams:
        put(scene.kinesis, name, [f"{name}-new".encode()], key="k")
    scene.journal.wait_for_data(*(f"{name}-new".encode() for name in scene.streams))
    assert len(scene.journal.data()) == 6, "the old records do not come again"
    assert len(scene.journal.calls("lease_lost")) == 3


def test_reset_of_one_stream_leaves_the_others(scene: Scene) -> None:
    app = scene.application(stream=None, streams=scene.streams)
    before = create_leases(app)
    parent = split(scene.kinesis, scene.streams[1])
    put(scene.kinesis, scene.streams[1], [b"x"], key="k")
    result = scene.call("reset", "--to", "trim_horizon", "--stream", scene.streams[1], "--yes")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1].startswith("Moved 3 leases of ")
    after = leases_of(app)
    moved = {key for key, row in after.items() if row != before.get(key)}
    assert moved == {f"{scene.streams[1]}/shardId-00000000000{n}" for n in range(3)}
    for key in moved:
        row = after[key]
        assert row.stream == before[f"{scene.streams[1]}/{parent}"].stream
        assert row.key == f"{row.stream}:{row.shard_id}"
    child = after[f"{scene.streams[1]}/shardId-000000000001"]
    assert child.parent_ids == (parent,)

    number = scene.kinesis.put_record(StreamName=scene.streams[0], Data=b"y", PartitionKey="k")
    place = f"{FIRST}={number['SequenceNumber']}:3"
    result = scene.call("reset", "--to", place, "--yes")
    assert result.returncode == 1
    assert "is a position in one stream, and the table has leases of 3: name" in result.stderr
    assert scene.call("reset", "--to", place, "--yes", "--stream", scene.streams[0]).returncode == 0
    row = leases_of(app)[f"{scene.streams[0]}/{FIRST}"]
    assert str(row.checkpoint) == f"{number['SequenceNumber']}:3"
    assert leases_of(app)[f"{scene.streams[2]}/{FIRST}"] == before[f"{scene.streams[2]}/{FIRST}"]


def test_reset_tells_which_stream_cannot_be_read_and_writes_nothing(scene: Scene) -> None:
    app = scene.application(stream=None, streams=scene.streams)
    before = create_leases(app)
    gone = identifier(scene.kinesis, scene.streams[1])
    scene.faults(DENIED, stream=scene.streams[1])
    result = scene.call("reset", "--to", "latest", "--yes")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert f"has leases of {gone}, which cannot be read: " in result.stderr
    assert "not you" in result.stderr
    assert "Nothing was written." in result.stderr
    scene.faults(None)
    scene.kinesis.delete_stream(StreamName=scene.streams[1])
    result = scene.call("reset", "--to", "latest", "--yes")
    assert f"has leases of {gone}, which cannot be read: There is no stream" in result.stderr
    assert leases_of(app) == before
    others = ("--stream", scene.streams[0], "--stream", scene.streams[2])
    assert scene.call("reset", "--to", "latest", "--yes", *others).returncode == 0
    assert [row.counter for row in leases_of(app).values()] == [2, 0, 2]


def test_reset_leaves_the_leases_of_a_stream_that_was_made_anew(scene: Scene) -> None:
    app = scene.application(stream=None, streams=scene.streams[:2])
    create_leases(app)
    old, new = make_anew(scene.kinesis, scene.streams[0])
    for given in ((), ("--stream", old)):
        result = scene.call("reset", "--to", "latest", "--yes", *given)
        assert result.returncode == 1
        assert f"The leases of {old} are those of a deleted stream" in result.stderr
        assert new in result.stderr
    create_leases(app)
    before = {row.key: row for row in app.table().leases()}
    result = scene.call("reset", "--to", "trim_horizon", "--yes")
    assert result.returncode == 0
    assert f"Note: {old} was deleted and made anew as {new}: its leases stay" in result.stdout
    moved = {row.key for row in app.table().leases() if row != before[row.key]}
    assert moved == {f"{new}:{FIRST}", f"{identifier(scene.kinesis, scene.streams[1])}:{FIRST}"}


def test_reset_of_rows_of_both_kinds_is_refused(scene: Scene) -> None:
    create_leases(scene.application(stream=None, streams=scene.streams))
    rows = scene.table.leases()
    scene.table.create(rows[0].in_stream(None))
    result = scene.call("reset", "--to", "latest", "--yes")
    assert result.returncode == 1
    assert "1 that name none, such as shardId-000000000000" in result.stderr
    assert {row.counter for row in scene.table.leases()} == {0}


def test_a_table_of_several_streams_is_not_reset_as_one_of_a_single_stream(scene: Scene) -> None:
    app = scene.application(stream=None, streams=scene.streams)
    before = create_leases(app)
    client = StreamClient(scene.application(stream=scene.streams[0]).address())
    with pytest.raises(OptionError, match=r"The leases of the .* name their streams"):
        plan_resets([StreamToReset(client)], app.table(), LATEST)
    assert leases_of(app) == before
