"""`sparkinesis tail` and `sparkinesis put`, each a process with pipes, as a shell starts them."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from sparkinesis import aggregate
from sparkinesis.local import Call, Fault, LocalServer, ManualClock
from tests.command import COMMAND, call, failure, objects, place_of
from tests.failing import Failing
from tests.integration.cli.conftest import Start
from tests.streams import put, put_all, split


def make_streams(server: LocalServer, **streams: int) -> Any:
    kinesis = server.client("kinesis")
    for name, shards in streams.items():
        kinesis.create_stream(StreamName=name, ShardCount=shards)
    return kinesis


def tail(server: LocalServer, stream: str, *options: str) -> list[bytes]:
    """The lines that are there."""
    arguments = ["tail", stream, "--from", "trim_horizon", "--once", *options]
    return subprocess.run(
        [COMMAND, *arguments, *place_of(server)], check=True, stdout=subprocess.PIPE
    ).stdout.splitlines(keepends=True)


def shown(server: LocalServer, stream: str, *options: str) -> list[dict[str, Any]]:
    """The objects of the user records that are there."""
    given = ["tail", stream, "--from", "trim_horizon", "--once", "--json", *options]
    return objects(call(*given, *place_of(server)))


def putting(server: LocalServer, stream: str, lines: bytes, *options: str) -> tuple[int, str]:
    """The exit code and the errors of `put`, with an end of its input."""
    result = subprocess.run(
        [COMMAND, "put", stream, *options, *place_of(server)],
        input=lines,
        capture_output=True,
        check=False,
    )
    assert result.stdout == b""
    return result.returncode, result.stderr.decode()


def count_of(told: str) -> int:
    found = re.fullmatch(r"Put (\d+) records? into the stream '\w+' .* in [\d.]+ s\.\n", told)
    assert found, told
    return int(found[1])


@pytest.mark.parametrize("lines", [5_000, 100_000])
def test_lines_move_from_stream_to_stream_each_key_in_order(
    server: LocalServer, start: Start, lines: int
) -> None:
    make_streams(server, a=4, b=3)
    given = [{"partition_key": f"k{one % 1000}", "data": f"line {one}"} for one in range(lines)]
    code, told = putting(server, "a", "\n".join(map(json.dumps, given)).encode(), "--json")
    assert (code, count_of(told)) == (0, lines)
    source = start("tail", "a", "--from", "1h", "--count", str(lines), "--json")
    assert source.stdout is not None
    target = start("put", "b", "--json", stdin=source.stdout.fileno())
    _, moved_told = target.communicate()
    assert (target.returncode, count_of(moved_told.decode())) == (0, lines)
    assert source.wait() == 0
    moved: dict[str, list[str]] = defaultdict(list)
    for record in shown(server, "b"):
        moved[record["partition_key"]].append(record["data"])
    assert moved == {
        f"k{key}": [f"line {one}" for one in range(key, lines, 1000)] for key in range(1000)
    }


@pytest.mark.parametrize("options", [(), ("--aggregate",)], ids=["plain", "aggregated"])
def test_a_pipe_has_the_data_and_a_line_end_and_nothing_else(
    server: LocalServer, start: Start, options: list[str]
) -> None:
    make_streams(server, a=2, b=2)
    lines = [b"text\n", b"\n", b"caf\xc3\xa9\r\n", b"\xff\x00\x1b[31m\n", b"no end\n"]
    code, told = putting(server, "a", b"".join(lines)[:-1], *options)
    assert (code, count_of(told)) == (0, 5)
    assert sorted(tail(server, "a")) == sorted(lines)
    source = start("tail", "a", "--from", "trim_horizon", "--once")
    assert source.stdout is not None
    target = start("put", "b", stdin=source.stdout.fileno())
    assert count_of(target.communicate()[1].decode()) == 5
    assert sorted(tail(server, "b")) == sorted(lines)


def test_a_line_is_put_and_shown_while_others_may_follow(server: LocalServer, start: Start) -> None:
    make_streams(server, s=1)
    reader = start("tail", "s", "--from", "trim_horizon", "--count", "2")
    writer = start("put", "s")
    assert reader.stdout is not None
    assert writer.stdin is not None
    for line in (b"first\n", b"second\n"):
        writer.stdin.write(line)
        writer.stdin.flush()
        assert reader.stdout.readline() == line, "put without an end of the input"
    assert (reader.wait(), reader.stdout.read()) == (0, b"")
    _, told = writer.communicate()
    assert count_of(told.decode()) == 2


def test_keys_select_and_are_shown_as_json(server: LocalServer) -> None:
    kinesis = make_streams(server, s=1)
    blobs = list(aggregate([("a", None, b"1"), ("b", None, b"2"), ("c", None, b"\xff")]))
    put_all(kinesis, "s", [{"Data": one.data, "PartitionKey": "a"} for one in blobs])
    put(kinesis, "s", [b"4"], "a")
    selected = shown(server, "s", "--key", "a", "--key", "c")
    assert [one["partition_key"] for one in selected] == ["a", "c", "a"]
    (last,) = shown(server, "s", "--key", "c")
    assert (last["partition_key"], last["data_base64"]) == ("c", "/w==")
    assert (last["stream"], last["shard"]) == ("s", "shardId-000000000000")
    assert (last["sub_sequence_number"], last["arrived_at"][-1]) == (2, "Z")
    some = shown(server, "s", "--key", "a", "--key", "c", "--count", "2")
    assert some == selected[:2], "of the records that are selected"


def order(server: LocalServer, *options: str) -> Any:
    """What `tail --check-order` says of all that is there."""
    where = ["--from", "trim_horizon", "--once", *place_of(server)]
    return call("tail", "s", "--check-order", "seq", *options, *where)


def test_breaks_of_order_are_printed_by_key_and_shard_through_a_split(server: LocalServer) -> None:
    kinesis = make_streams(server, s=1)

    def put_numbers(*numbers: int, key: str = "a") -> None:
        entries = [{"Data": b'{"seq": %d}' % one, "PartitionKey": key} for one in numbers]
        put_all(kinesis, "s", entries)

    put_numbers(1, 2, 5, 3)
    put_numbers(1, 2, key="b")
    split(kinesis, "s")
    packed = aggregate([("a", None, b'{"seq": %d}' % one) for one in (6, 5, 8)])
    put_all(kinesis, "s", [{"Data": one.data, "PartitionKey": "a"} for one in packed])
    result = order(server, "--gaps", "--json")
    *breaks, summary = objects(result, 1)
    found = [(one["kind"], one["key"], one["value"], one["other"]["value"]) for one in breaks]
    assert found == [
        ("gap", "a", 5, 2),
        ("behind", "a", 3, 5),
        ("repeat", "a", 5, 5),
        ("gap", "a", 8, 6),
    ]
    repeat = breaks[2]
    assert (repeat["stream"], repeat["sub_sequence_number"]) == ("s", 1)
    assert repeat["shard"] != repeat["other"]["shard"] == "shardId-000000000000"
    assert int(repeat["sequence_number"]) > int(repeat["other"]["sequence_number"])
    assert (summary["kind"], summary["records"], summary["missing"]) == ("summary", 9, 2)
    text = order(server)
    assert text.returncode == 1
    assert [line.split()[0] for line in text.stdout.splitlines()] == ["behind", "repeat"]
    assert text.stderr.startswith("Read 9 user records: 1 behind, 1 repeat, 0 elsewhere.")
    assert order(server, "--key", "b", "--gaps").returncode == 0


def test_ctrl_c_ends_a_check_with_what_was_read(server: LocalServer, start: Start) -> None:
    put(make_streams(server, s=1), "s", [b'{"seq": 2}', b'{"seq": 1}'], "k")
    reader = start("tail", "s", "--from", "trim_horizon", "--check-order", "seq")
    assert reader.stdout is not None
    assert reader.stdout.readline().startswith(b"behind ")
    reader.send_signal(signal.SIGINT)
    _, told = reader.communicate()
    assert (reader.returncode, told[:40]) == (1, b"Read 2 user records: 1 behind, 0 repeat,")


def test_put_takes_its_keys_from_the_lines_or_from_the_option(server: LocalServer) -> None:
    make_streams(server, s=4)
    putting(server, "s", b'{"id": 7, "x": 1}\n{"id": 8}\n', "--key-field", "id")
    numbers = b"".join(b"%d\n" % one for one in range(200))
    putting(server, "s", numbers, "--key", "all")
    found = shown(server, "s")
    by_key = defaultdict(list)
    for one in found:
        by_key[one["partition_key"]].append(one["data"])
    assert by_key["7"] == ['{"id": 7, "x": 1}']
    assert by_key["8"] == ['{"id": 8}']
    assert by_key["all"] == [str(one) for one in range(200)]
    assert len({one["shard"] for one in found if one["partition_key"] == "all"}) == 1


def test_a_line_that_is_too_large_is_told_by_its_number_and_those_before_are_put(
    server: LocalServer,
) -> None:
    make_streams(server, s=1)
    code, told = putting(server, "s", b"a\nb\n" + b"x" * 50 + b"\nc\n", "--max-size", "40")
    count, error = told.splitlines(keepends=True)
    assert (code, count_of(count)) == (1, 2)
    assert error.startswith("sparkinesis put: Line 3 cannot be put: data and partition key have 66")
    assert sorted(tail(server, "s")) == [b"a\n", b"b\n"]


def test_refused_records_are_put_again_and_keep_their_order() -> None:
    def refuses(call: Call) -> Fault | None:
        if call.operation != "PutRecords" or call.ordinal % 2:
            return None
        return Fault(
            code="ProvisionedThroughputExceededException", entries=frozenset(range(0, 500, 3))
        )

    with LocalServer(limits=None, faults=refuses) as server:
        make_streams(server, s=1)
        lines = [{"partition_key": f"k{one % 5}", "data": str(one)} for one in range(100)]
        code, told = putting(server, "s", "\n".join(map(json.dumps, lines)).encode(), "--json")
        assert (code, count_of(told)) == (0, 100)
        found = defaultdict(list)
        for record in shown(server, "s"):
            found[record["partition_key"]].append(int(record["data"]))
        assert found == {f"k{key}": list(range(key, 100, 5)) for key in range(5)}


def test_a_refusal_for_good_is_one_line_with_the_number_of_those_that_are_put() -> None:
    refuses = Failing("PutRecords", then=Fault.error("AccessDeniedException"))
    with LocalServer(limits=None, faults=refuses) as server:
        make_streams(server, s=1)
        code, told = putting(server, "s", b"a\nb\n")
        count, error = told.splitlines(keepends=True)
        assert (code, count_of(count)) == (1, 0)
        assert error.startswith("sparkinesis put: Not allowed to call PutRecords on stream 's'")


@pytest.mark.parametrize("ends_by", ["reader", "Ctrl-C"])
def test_tail_ends_quietly(server: LocalServer, start: Start, ends_by: str) -> None:
    kinesis = make_streams(server, s=1)
    put(kinesis, "s", [b"first"])
    process = start("tail", "s", "--from", "trim_horizon")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"first\n"
    if ends_by == "reader":
        process.stdout.close()
        put(kinesis, "s", [b"second"])
    else:
        process.send_signal(signal.SIGINT)
    assert process.wait() == 0
    assert process.stderr.read() == b""


def test_a_terminal_shows_time_shard_and_key_and_obeys_no_record(server: LocalServer) -> None:
    kinesis = make_streams(server, s=1)
    put(kinesis, "s", [b"\x1b[31mred\xff"], "key")
    ours, its = pty.openpty()
    arguments = ["tail", "s", "--from", "1h", "--once", *place_of(server)]
    subprocess.run([COMMAND, *arguments], stdout=its, check=True)
    shown = os.read(ours, 1000).decode()
    os.close(ours)
    os.close(its)
    dim, cyan, end = "\x1b[2m", "\x1b[36m", "\x1b[0m"
    pattern = rf"{dim}\d{{4}}-\d\d-\d\dT[\d:.]+Z 0{end} {cyan}key{end} \\x1b\[31mred\\xff\r\n"
    assert re.fullmatch(pattern.replace("\x1b[", "\x1b\\["), shown), shown


@pytest.fixture
def numbers(server: LocalServer) -> dict[str, list[str]]:
    """The sequence numbers of three records in each of two shards; the second has two parts."""
    kinesis = make_streams(server, s=2)
    (parts,) = aggregate([("k", None, b"1.0"), ("k", None, b"1.1")])
    numbers = defaultdict(list)
    for data in (b"0", parts.data, b"2"):
        for key in ("0", str(2**127)):
            done = kinesis.put_record(
                StreamName="s", Data=data, PartitionKey="k", ExplicitHashKey=key
            )
            numbers[done["ShardId"]].append(done["SequenceNumber"])
    return numbers


FIRST_SHARD, SECOND_SHARD = "shardId-000000000000", "shardId-000000000001"


@pytest.mark.parametrize(
    ("start", "to", "expected"),
    [
        ("{1}:1", "{2}", "1.1 2"),
        ("trim_horizon", "{1}:0", "0 1.0"),
    ],
)
def test_from_and_to_are_user_records_of_a_shard(
    server: LocalServer, numbers: dict[str, list[str]], start: str, to: str, expected: str
) -> None:
    """It ends by itself, behind the last record: the places are those of a failure's log line."""
    first, last = (one.format(*numbers[SECOND_SHARD]) for one in (start, to))
    given = ("tail", "s", "--shard", SECOND_SHARD, "--from", first, "--to", last)
    result = call(*given, *place_of(server))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split() == expected.split()


def test_several_shards_may_be_read(server: LocalServer, numbers: dict[str, list[str]]) -> None:
    kinesis = server.client("kinesis")
    kinesis.split_shard(
        StreamName="s", ShardToSplit=SECOND_SHARD, NewStartingHashKey=str(2**127 + 2**126)
    )
    put(kinesis, "s", [b"child"] * 20)
    for shards in ({FIRST_SHARD}, {SECOND_SHARD}, {FIRST_SHARD, SECOND_SHARD}):
        options = [word for one in shards for word in ("--shard", one)]
        for start in ("trim_horizon", "1h"):
            given = ("tail", "s", *options, "--from", start, "--once", "--json")
            found = objects(call(*given, *place_of(server)))
            assert {one["shard"] for one in found} == shards
            assert {one["sequence_number"] for one in found} >= {
                number for one in shards for number in numbers[one]
            }
    # A closed shard has nothing behind its last record: the command ends by itself.
    assert objects(call("tail", "s", "--shard", SECOND_SHARD, "--json", *place_of(server))) == []


def test_a_shard_that_closed_before_is_there_and_has_nothing() -> None:
    clock = ManualClock()
    with LocalServer(clock=clock, limits=None) as server:
        kinesis = make_streams(server, s=1)
        put(kinesis, "s", [b"old"])
        kinesis.split_shard(
            StreamName="s", ShardToSplit=FIRST_SHARD, NewStartingHashKey=str(2**127)
        )
        clock.advance(3 * 3_600_000)
        for start in ("2023-11-15T01:13:00Z", "latest"):  # the clock's own present
            given = ("tail", "s", "--shard", FIRST_SHARD, "--from", start)
            result = call(*given, *place_of(server))
            assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_all_that_is_wrong_with_a_tail_is_told_at_once(server: LocalServer) -> None:
    result = call("tail", "a/b", "--from", "noon", *place_of(server))
    assert result.returncode == 1
    assert result.stderr.startswith("sparkinesis tail: The options have 2 errors:\n- --from is ")
    assert "\n- stream is 'a/b'; " in result.stderr


BAD = [
    (("tail", "gone"), "There is no stream 'gone' in us-east-1"),
    (("put", "gone"), "There is no stream 'gone' in us-east-1"),
    (("tail", "a/b"), "stream is 'a/b'; a stream's name has"),
    (("put", "a/b"), "stream is 'a/b'; a stream's name has"),
    (("tail", "s", "--shard", "a", "--shard", "b", "--to", "4"), "--to is a sequence number"),
    (("tail", "s", "--shard", "a"), "There is no 'a' in stream 's' in us-east-1 at "),
    (("tail", "s", "--gaps"), "--gaps needs --check-order FIELD."),
    (("tail", "s", "--per", "of"), "--per needs --check-order FIELD."),
    (("put", "s", "--key", "k", "--json"), "--key and --json exclude each other."),
    (("put", "s", "--key-field", "f", "--json"), "--key-field and --json exclude each other."),
]


def test_bad_input_is_one_line_before_anything_is_done(server: LocalServer) -> None:
    make_streams(server, s=1)
    for arguments, error in BAD:
        assert failure(call(*arguments, *place_of(server))).startswith(error)


@pytest.mark.parametrize("command", ["tail", "put"])
def test_a_missing_region_is_one_line(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert failure(call(command, "s")).startswith("No region is set for stream 's'")


def test_a_closed_stdin_is_one_line(server: LocalServer) -> None:
    make_streams(server, s=1)
    line = f"exec 0<&-; {COMMAND} put s {' '.join(place_of(server))}"
    result = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "sparkinesis put: There is no stdin to read lines from. Pipe them into the command.\n"
    )
