"""Where the reading of a shard begins: by its lease, by ``skip_older_than``, by ``initialize``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from sparkinesis.errors import ProcessorError, ServiceError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.lease_start import WantedRecords
from sparkinesis.local.model.shard_log import SequenceNumber
from sparkinesis.stream.calls.client import StreamSummary
from sparkinesis.stream.page import Fetched, Page, Record
from sparkinesis.stream.position import (
    LATEST,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
)
from sparkinesis.worker.lifecycle.shard.starting import (
    StartCheck,
    encodes_another_shard,
    returned_start,
    start_of,
    start_position,
)
from tests.kcl import recorded

NOW = 9_000
AT_5 = AtTimestamp(5_000)


def lease(at: str, sub: int = 0, timestamp_ms: int | None = None) -> Lease:
    return Lease("s", "s", ExtendedSequenceNumber(at, sub), timestamp_ms=timestamp_ms)


@pytest.mark.parametrize(
    ("row", "initial", "start"),
    [
        (lease("LATEST"), AT_5, AtTimestamp(NOW)),
        (lease("LATEST", 0, 7), TRIM_HORIZON, AtTimestamp(7)),
        (lease("AT_TIMESTAMP"), AT_5, AT_5),
        (lease("AT_TIMESTAMP"), LATEST, TRIM_HORIZON),
        (lease("AT_TIMESTAMP", 0, 7), AT_5, AtTimestamp(7)),
        (lease("TRIM_HORIZON"), AT_5, TRIM_HORIZON),
        (lease("20", 3), AT_5, AfterRecord("20", sub_sequence_number=3)),
        (lease("20"), AT_5, AfterRecord("20", sub_sequence_number=0)),
    ],
)
def test_a_shard_begins_at_its_checkpoint(row: Lease, initial: Position, start: Position) -> None:
    assert start_position(row, initial, NOW, deaggregate=True) == start
    assert start_of(row, initial, NOW, None, deaggregate=True)[0] == start


def test_without_deaggregation_a_record_is_done_as_a_whole() -> None:
    """But for one of which a worker with it has processed a part."""
    for sub, left in ((0, None), (3, 3)):
        found = start_position(lease("20", sub), TRIM_HORIZON, NOW, deaggregate=False)
        assert found == AfterRecord("20", sub_sequence_number=left)


@pytest.mark.parametrize("row", [lease("TRIM_HORIZON"), lease("LATEST"), lease("20", 3)])
def test_without_deaggregation_any_other_start_is_the_same(row: Lease) -> None:
    starts = [start_position(row, TRIM_HORIZON, NOW, deaggregate=one) for one in (True, False)]
    assert starts[0] == starts[1]
    assert start_of(row, TRIM_HORIZON, NOW, None, deaggregate=False)[0] == starts[0]


def test_a_start_lies_not_before_the_bound() -> None:
    for row, start in (
        (lease("TRIM_HORIZON"), AT_5),
        (lease("AT_TIMESTAMP", 0, 4_999), AT_5),
        (lease("AT_TIMESTAMP", 0, 5_001), AtTimestamp(5_001)),
        (lease("20", 3), AfterRecord("20", sub_sequence_number=3)),  # it may lie behind
    ):
        assert start_of(row, TRIM_HORIZON, NOW, 5_000, deaggregate=True)[0] == start


def test_what_is_wanted_is_known_where_no_record_was_read() -> None:
    for bound_ms in (None, 5_000):
        _, unread = start_of(lease("20"), TRIM_HORIZON, NOW, bound_ms, deaggregate=False)
        assert unread is None
    row = lease("AT_TIMESTAMP")
    (_, early), (_, late) = (
        start_of(row, AtTimestamp(3_000), NOW, bound_ms, deaggregate=True)
        for bound_ms in (None, 5_000)
    )
    assert early == WantedRecords(AtTimestamp(3_000))
    assert late == replace(early, skipped_before_ms=5_000)


HOUR_MS = 3_600_000
NOW_MS = 1_790_000_000_000
OLD = AtTimestamp(NOW_MS - 25 * HOUR_MS)
RECORDS = [Record(data=b"x", partition_key="k", sequence_number=number) for number in ("30", "40")]


class Stream:
    """A stream of 24 hours' retention that is a week old, and how a shard's start is checked."""

    def __init__(
        self,
        retention_ms: int = 24 * HOUR_MS,
        created_ms: int = NOW_MS - 168 * HOUR_MS,
        kept: Sequence[str] = ("another", "shard"),
        bound_ms: int | None = None,
    ) -> None:
        self.calls: list[str] = []
        self.lost: list[str] = []
        self.kept: Sequence[str] | ServiceError = kept
        """The shards that have a record as old as any that is kept."""
        self._summary = StreamSummary(retention_ms, NOW_MS, created_ms=created_ms)
        self._bound_ms = bound_ms

    def summary(self) -> StreamSummary:
        self.calls.append("summary")
        return self._summary

    def list_shards(self, *, at: Position) -> tuple[list[Any], int]:
        assert at is TRIM_HORIZON
        self.calls.append("shards")
        if isinstance(self.kept, ServiceError):
            raise self.kept
        return [SimpleNamespace(id=one) for one in self.kept], NOW_MS

    def check(self, start: Position, unread: WantedRecords | None = None) -> StartCheck:
        settings = SimpleNamespace(
            client=SimpleNamespace(address="s", list_shards=self.list_shards),
            describe=self.summary,
            skip_before=lambda now_ms: self._bound_ms,
            reporter=lambda shard_id: SimpleNamespace(
                lost=lambda text: self.lost.append(f"{shard_id}: {text}")
            ),
        )
        return StartCheck("shard", start, cast(Any, settings), unread)


def page(*records: Record, behind: int = 0) -> Fetched:
    return Fetched(Page(list(records), "next", behind), 100, NOW_MS)


def test_records_that_expired_before_a_shard_was_read_are_told_once() -> None:
    stream = Stream()
    check = stream.check(OLD)
    for _ in range(2):
        assert check.check_page(page(*RECORDS)) == RECORDS
    (text,) = stream.lost
    assert text.startswith(f"shard: The position {OLD} in shard shard of s has expired")
    assert "24 hours" in text
    assert text.endswith("Resuming with the oldest record kept.")
    assert stream.calls == ["summary", "shards"]


@pytest.mark.parametrize(
    ("stream", "is_lost"),
    [
        (Stream(retention_ms=26 * HOUR_MS), False),
        (Stream(created_ms=NOW_MS - 24 * HOUR_MS), False),
        (Stream(created_ms=NOW_MS - 24 * HOUR_MS - 1), True),
        (Stream(kept=["another"]), False),
        (Stream(kept=["shard"]), True),
    ],
    ids=["longer kept", "young stream", "stream", "young shard", "shard"],
)
def test_what_cannot_have_expired_is_no_loss(stream: Stream, *, is_lost: bool) -> None:
    stream.check(OLD).check_page(page())
    assert bool(stream.lost) is is_lost


def test_a_shard_whose_age_cannot_be_asked_counts_as_old() -> None:
    stream = Stream()
    stream.kept = ServiceError("throttled")
    stream.check(OLD).check_page(page())
    assert len(stream.lost) == 1


@pytest.mark.parametrize(
    ("start", "unread"),
    [
        (AtTimestamp(NOW_MS - 24 * HOUR_MS), None),
        (TRIM_HORIZON, None),
        (TRIM_HORIZON, WantedRecords(AtTimestamp(NOW_MS - 23 * HOUR_MS))),
        (OLD, WantedRecords(AtTimestamp(NOW_MS - 23 * HOUR_MS))),
    ],
    ids=str,
)
def test_a_start_at_which_all_is_kept_costs_no_call(
    start: Position, unread: WantedRecords | None
) -> None:
    stream = Stream()
    assert stream.check(start, unread).check_page(page(*RECORDS)) == RECORDS
    assert (stream.calls, stream.lost) == ([], [])


def test_what_is_wanted_counts_and_not_where_reading_begins() -> None:
    stream = Stream()
    stream.check(TRIM_HORIZON, WantedRecords(OLD)).check_page(page())
    assert len(stream.lost) == 1


@pytest.mark.parametrize(
    ("bound_ms", "is_lost"), [(None, True), (NOW_MS - 25 * HOUR_MS, True), (NOW_MS, False)]
)
def test_the_record_of_a_checkpoint_that_is_gone_shows_a_loss_unless_it_is_skipped(
    bound_ms: int | None, *, is_lost: bool
) -> None:
    stream = Stream(bound_ms=bound_ms)
    check = stream.check(AfterRecord("20", NOW_MS - 30 * HOUR_MS, sub_sequence_number=0))
    assert check.check_page(page(behind=9)) is None, "the next page shows it"
    for _ in range(2):
        assert check.check_page(page(*RECORDS)) == RECORDS
    assert len(stream.lost) == int(is_lost), "once, though the page may come again"


def test_the_record_of_a_checkpoint_that_is_kept_is_done() -> None:
    stream = Stream()
    check = stream.check(AfterRecord("30", NOW_MS - 30 * HOUR_MS, sub_sequence_number=0))
    assert check.check_page(page(*RECORDS)) == RECORDS[1:]
    assert (stream.calls, stream.lost) == ([], [])


# --- the start that `initialize` returns

NAME = "shard s of stream t"
AT = ExtendedSequenceNumber


@pytest.mark.parametrize(
    ("returned", "start"),
    [
        (None, None),
        (AT("7"), AT("7")),
        (AT("7", 3), AT("7", 3)),
        (AT("9" * 128), AT("9" * 128)),
        (AT("TRIM_HORIZON"), AT("TRIM_HORIZON")),
        (AT("TRIM_HORIZON", 4), AT("TRIM_HORIZON")),
    ],
)
def test_a_start(returned: Any, start: Any) -> None:
    assert returned_start(returned, NAME) == start


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        ("7", "returned a str"),
        (7, "returned a int"),
        (("7", 0), "returned a tuple"),
        (False, "returned a bool"),
        (AT("LATEST"), "LATEST, which is not the position of a record"),
        (AT("AT_TIMESTAMP"), "AT_TIMESTAMP, which is not the position of a record"),
        (AT("SHARD_END"), "SHARD_END. Return the shard's last record"),
        (AT(""), "the sequence number ''"),
        (AT("7x"), "the sequence number '7x'"),
        (AT("-7"), "the sequence number '-7'"),
        (AT("\u0667"), "the sequence number '\u0667'"),
        (AT("9" * 129), "the sequence number '999"),
        (AT(7), "the sequence number 7"),  # type: ignore[arg-type]
        (AT("7", -1), "the sub-sequence number -1"),
        (AT("7", 2**62), "the sub-sequence number 46"),
        (AT("7", None), "the sub-sequence number None"),  # type: ignore[arg-type]
        (AT("7", 1.0), "the sub-sequence number 1.0"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_start_is_told(returned: Any, what: str) -> None:
    with pytest.raises(ProcessorError, match=re.escape(what)) as raised:
        returned_start(returned, NAME)
    assert str(raised.value).startswith(f"initialize of {NAME} returned ")
    assert "sparkinesis.ExtendedSequenceNumber(" in str(raised.value)


def test_a_number_tells_the_shard_that_it_is_of() -> None:
    for index in (0, 1, 17, 2**31):
        number = str(SequenceNumber(1_790_000_000, index, 5, 1_790_000_001))
        assert not encodes_another_shard(number, f"shardId-{index:012d}")
        assert encodes_another_shard(number, f"shardId-{index + 1:012d}")


def test_a_number_of_another_layout_and_another_servers_shard_tell_nothing() -> None:
    number = int(SequenceNumber(1_790_000_000, 1, 0, 0))
    assert not encodes_another_shard("7", "shardId-000000000000")
    assert not encodes_another_shard(str(number + 1), "shardId-000000000000")
    assert not encodes_another_shard(str(number << 1), "shardId-000000000000")
    assert not encodes_another_shard(str(number), "shard-a")


def test_the_numbers_that_a_real_kcl_stored_are_those_of_their_shards() -> None:
    rows = recorded("kcl-3.5.1-several-streams.json")["Items"]
    numbers = {
        (row["shardId"]["S"], row["checkpoint"]["S"])
        for row in rows
        if "shardId" in row and row["checkpoint"]["S"].isdecimal()
    }
    assert numbers
    assert not [one for one in numbers if encodes_another_shard(one[1], one[0])]
