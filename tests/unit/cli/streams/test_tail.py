"""What `tail` reads and prints: from where, up to which user record, and of which keys."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import typer

from sparkinesis import aggregate
from sparkinesis.cli.streams.tail import Range, parse_range, parse_start, tail
from sparkinesis.errors import OptionError
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import (
    LATEST,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    InitialPosition,
)
from sparkinesis.stream.reading import following
from sparkinesis.stream.reading.following import ShardPage
from sparkinesis.worker.batches.user_record import UserRecord, make_user_record

NOW = 1_790_000_000_000
SHARD = "shardId-000000000007"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("latest", LATEST),
        ("TRIM_HORIZON", TRIM_HORIZON),
        ("2026-09-21T14:13:20Z", AtTimestamp(NOW)),
        ("0s", AtTimestamp(NOW)),
        ("30s", AtTimestamp(NOW - 30_000)),
        (" 10m", AtTimestamp(NOW - 600_000)),
        ("2h", AtTimestamp(NOW - 7_200_000)),
        ("1d", AtTimestamp(NOW - 86_400_000)),
        ("99999999d", AtTimestamp(0)),
    ],
)
def test_positions(text: str, position: InitialPosition) -> None:
    assert parse_start(text, NOW) == position


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10x", "or an age such as 10m"),
        ("-5m", "or an age such as 10m"),
        ("1234567890s", "or an age such as 10m"),
        ("", "is not a position"),
        ("2026-09-21T14:13:20", "an instant without a time zone"),
        ("2026-09-21T14:13:21Z", "an instant that is yet to come"),
    ],
)
def test_others_are_refused(text: str, why: str) -> None:
    with pytest.raises(OptionError, match=f"--from is '{text}'.*{why}"):
        parse_start(text, NOW)


LONGEST = "9" * 128


@pytest.mark.parametrize(
    ("start", "to", "expected"),
    [
        ("latest", None, Range(LATEST, [SHARD])),
        ("49", None, Range(AfterRecord("49"), [SHARD], (49, 0))),
        (" 49:3 ", None, Range(AfterRecord("49"), [SHARD], (49, 3))),
        ("49", "49", Range(AfterRecord("49"), [SHARD], (49, 0), (49, math.inf))),
        ("49:3", "49:3", Range(AfterRecord("49"), [SHARD], (49, 3), (49, 3))),
        ("10m", "50:0", Range(AtTimestamp(NOW - 600_000), [SHARD], None, (50, 0))),
        (LONGEST, None, Range(AfterRecord(LONGEST), [SHARD], (int(LONGEST), 0))),
    ],
)
def test_a_range_is_of_positions_or_of_user_records(
    start: str, to: str | None, expected: Range
) -> None:
    assert parse_range(start, to, [SHARD], NOW) == expected
    assert parse_range(start, to, [SHARD, SHARD], NOW).first == expected.first, "one shard, twice"


@pytest.mark.parametrize(
    ("start", "to", "shards", "says"),
    [
        ("49", None, [], "--from is a sequence number, which is a record of one shard"),
        ("49", "50", ["a", "b"], "--from is a sequence number, which is a record of one shard"),
        ("latest", "50", [], "--to is a sequence number, which is a record of one shard"),
        ("latest", "noon", ["a"], "--to is 'noon'; it takes the sequence number"),
        ("latest", "", ["a"], "--to is ''; it takes the sequence number"),
        ("latest", LONGEST + "9", ["a"], "it takes the sequence number"),
        ("latest", "5:" + "1" * 19, ["a"], "it takes the sequence number"),
        ("49:3", "49:2", ["a"], "--to is before --from"),
        ("50", "49", ["a"], "--to is before --from"),
        ("49:", None, ["a"], "--from is '49:'"),
    ],
)
def test_a_range_that_is_none_is_refused(
    start: str, to: str | None, shards: list[str], says: str
) -> None:
    with pytest.raises(OptionError, match=says):
        parse_range(start, to, shards, NOW)


def user(number: str, sub: int = 0) -> UserRecord:
    return make_user_record(b"x", "k", number, sub, 1_790_000_000.5, None, SHARD)


def test_a_range_has_the_user_records_from_the_first_to_the_last() -> None:
    users = [user("9", 5), *(user("10", sub) for sub in range(4)), user("11")]

    def found(first: Any, last: Any) -> list[tuple[str, int]]:
        kept = Range(LATEST, [SHARD], first, last).of(users)
        return [(one.sequence_number, one.sub_sequence_number) for one in kept]

    every = [("9", 5), ("10", 0), ("10", 1), ("10", 2), ("10", 3), ("11", 0)]
    assert found(None, None) == every
    assert found((10, 1), (10, 2)) == every[2:4]
    assert found((10, 1), None) == every[2:]
    assert found(None, (10, 1)) == every[:3]
    assert found(None, (11, math.inf)) == every


def test_a_range_ends_with_its_last_record() -> None:
    up_to = Range(LATEST, [SHARD], None, (10, 2))
    assert [up_to.ends_by(number) for number in ("9", "10", "11")] == [False, True, True]
    assert not Range(LATEST, [SHARD]).ends_by("10")


(PACKED,) = aggregate([("a", None, b"1.0"), ("b", None, b"1.1\xff"), ("a", None, b"1.2")])
PAGES = [["0"], ["1", "2"], ["3"]]
"""The sequence numbers of pages. Record 1 has three user records, record 3 has no key."""


def page_of(numbers: Sequence[str]) -> ShardPage:
    records = [
        Record(
            data=PACKED.data if number == "1" else number.encode(),
            partition_key=None if number == "3" else "a",
            sequence_number=number,
            approximate_arrival_timestamp=1_790_000_000.5,
        )
        for number in numbers
    ]
    return ShardPage(SHARD, records)


class Followed:
    """The pages that come, how many were taken, and what was asked for."""

    def __init__(self) -> None:
        self.pages = PAGES
        self.asked: dict[str, Any] = {}
        self.taken = 0
        self.is_closed = False

    def __call__(self, client: Any, start: Any, **options: Any) -> Iterator[ShardPage]:
        self.asked = {"stream": client.address.name, "start": start, **options}
        try:
            for numbers in self.pages:
                self.taken += 1
                yield page_of(numbers)
        finally:
            self.is_closed = True


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Followed:
    made = Followed()
    monkeypatch.setattr(following, "follow", made)
    return made


def run(**options: Any) -> None:
    tail(stream="s", region="us-east-1", endpoint="http://test", **options)


def test_a_pipe_has_the_data_and_line_ends(
    followed: Followed, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    run(once=True)
    assert capfdbinary.readouterr() == (b"0\n1.0\n1.1\xff\n1.2\n2\n3\n", b"")
    assert followed.asked == {"stream": "s", "start": LATEST, "only": (), "ends": True}
    assert followed.is_closed
    run(start="trim_horizon", shard=["a", "b"])
    asked = {"start": TRIM_HORIZON, "only": ["a", "b"], "ends": False}
    assert followed.asked == {"stream": "s", **asked}


@pytest.mark.parametrize(
    ("options", "printed", "pages"),
    [
        ({"key": ["a"]}, ["0", "1.0", "1.2", "2"], 3),
        ({"key": ["b", "none"]}, ["1.1\xff"], 3),
        ({"count": 1}, ["0"], 1),
        ({"count": 3}, ["0", "1.0", "1.1\xff"], 2),
        ({"count": 2, "key": ["a"]}, ["0", "1.0"], 2),
        ({"start": "0", "to": "1:0", "shard": [SHARD]}, ["0", "1.0"], 2),
        ({"start": "0:1", "to": "2", "shard": [SHARD]}, ["1.0", "1.1\xff", "1.2", "2"], 2),
        ({"to": "0", "shard": [SHARD]}, ["0"], 1),
    ],
)
def test_what_is_asked_for_is_printed_and_no_page_behind_it_is_read(
    followed: Followed,
    capfdbinary: pytest.CaptureFixture[bytes],
    options: dict[str, Any],
    printed: list[str],
    pages: int,
) -> None:
    run(**options)
    out = "".join(f"{one}\n" for one in printed).encode("latin-1")
    assert capfdbinary.readouterr() == (out, b"")
    assert (followed.taken, followed.is_closed) == (pages, True)


def test_a_first_record_that_is_gone_is_told_once(
    followed: Followed, capfd: pytest.CaptureFixture[str]
) -> None:
    followed.pages = PAGES[::-1]
    run(start="2", shard=[SHARD])
    assert capfd.readouterr().err == (
        f"Note: {SHARD} has no record 2 any more, or never had it. The first one behind is 3.\n"
    )


def test_each_line_of_json_has_one_user_record(
    followed: Followed, capfd: pytest.CaptureFixture[str]
) -> None:
    run(as_json=True)
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(one["stream"], one["shard"]) for one in found] == [("s", SHARD)] * 6
    places = [(one["sequence_number"], one["sub_sequence_number"]) for one in found]
    assert places == [("0", 0), ("1", 0), ("1", 1), ("1", 2), ("2", 0), ("3", 0)]
    assert [one.get("data") for one in found] == ["0", "1.0", None, "1.2", "2", "3"]


def test_a_terminal_shows_when_where_and_which_key(
    followed: Followed, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    run()
    lines = capfd.readouterr().out.splitlines()
    where = typer.style("2026-09-21T14:13:20.500Z 7", dim=True)
    assert lines[2] == f"{where} {typer.style('b', fg='cyan')} 1.1\\xff"
    assert lines[5] == f"{where} {typer.style('-', fg='cyan')} 3"
    assert len(lines) == 6
