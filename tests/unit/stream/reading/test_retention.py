"""May records behind a position be gone? Decided by times alone, and told once, with the place."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparkinesis.errors import DataLossError, PositionNotFoundError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.stream.page import Fetched, Page, Record
from sparkinesis.stream.position import (
    LATEST,
    NONE_OF_IT,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    ShardRange,
)
from sparkinesis.stream.reading.retention import (
    SHORTEST_RETENTION_MS,
    RetentionCheck,
    has_lost,
    holds_more,
    is_kept,
    is_of_another_stream,
    may_have_lost,
)
from tests.unit.stream.kpl.aggregates import GOLDEN_MESSAGE, sealed

NOW = 1_790_000_000_000
MINUTE = 60_000
HOUR = 3_600_000
SHARD = "shardId-000000000007"


def ago(hours: float) -> int:
    return NOW - round(hours * HOUR)


def after(arrived: float | None, clear: float | None) -> AfterRecord:
    """A position whose record arrived so many hours ago, and nothing until so many hours ago."""
    return AfterRecord(
        "7",
        None if clear is None else ago(clear),
        arrived_ms=None if arrived is None else ago(arrived),
    )


@pytest.mark.parametrize(
    ("position", "hours", "is_lost"),
    [
        # Without the record's own arrival, as older versions store positions.
        (after(None, 30), 24, True),
        (after(None, 30), 72, False),
        (after(None, None), 72, True),
        # The record expired in the ordinary way: what came since is kept.
        (after(80, 30), 72, False),
        (after(30, 20), 24, False),
        (after(30, 25), 24, True),
        # 72 hours would keep the record. So the period was shorter, and may have been 24 hours.
        (after(40, 30), 72, True),
        (after(30, None), 72, True),
        (after(40, 20), 72, False),
        # No stream removes a record of twenty hours.
        (after(20, 1), 24, True),
        (after(20, 1), 72, True),
        (AtTimestamp(ago(30)), 24, True),
        (AtTimestamp(ago(30)), 72, False),
        (TRIM_HORIZON, 24, False),
    ],
)
def test_where_a_positions_record_is_gone(position: Position, hours: int, is_lost: bool) -> None:
    assert has_lost(position, NOW, hours * HOUR) is is_lost


@pytest.mark.parametrize("at", [AtTimestamp, lambda ms: AfterRecord("7", clear_until=ms)])
def test_a_stream_keeps_what_arrived_a_day_ago_and_nothing_older(
    at: Callable[[int], Position],
) -> None:
    assert not may_have_lost(at(NOW - 86_400_000), NOW, SHORTEST_RETENTION_MS)
    assert may_have_lost(at(NOW - 86_400_001), NOW, SHORTEST_RETENTION_MS)
    assert not may_have_lost(SHARD_END, NOW, SHORTEST_RETENTION_MS)


def test_a_record_that_is_just_about_to_expire_may_be_gone_by_another_clock() -> None:
    assert not is_kept(after(24, 24), NOW, 24 * HOUR)
    at_margin = NOW - 24 * HOUR + MINUTE
    assert not is_kept(AfterRecord("7", arrived_ms=at_margin - 1), NOW, 24 * HOUR)
    assert is_kept(AfterRecord("7", arrived_ms=at_margin), NOW, 24 * HOUR)


@given(
    st.integers(0, 200),
    st.integers(0, 200),
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from([24, 48, 72, 168])), max_size=6),
    st.sampled_from([24, 48, 72, 168]),
)
def test_what_any_life_of_the_retention_period_removed_is_told(
    arrived: int, clear: int, changes: list[tuple[int, int]], hours: int
) -> None:
    """Unless the record of the position would have expired by the present period as well.

    ``changes``: so many hours ago the period was so long, for a moment.
    """
    horizon = min([hours, *(ago_ + period for ago_, period in changes)])
    position = after(arrived, min(clear, arrived))
    if arrived <= horizon:
        return  # the record is there
    is_lost = min(clear, arrived) > horizon
    tells = has_lost(position, NOW, hours * HOUR)
    if is_lost and arrived < hours:
        assert tells
    if tells:
        assert min(clear, arrived) > 24 or arrived < 24, "nothing younger is ever removed"


@pytest.mark.parametrize(
    ("position", "is_older"),
    [
        (AtTimestamp(NOW - 2 * MINUTE - 1), True),
        (AtTimestamp(NOW - 2 * MINUTE), False),
        (AtTimestamp(NOW + MINUTE), False),
        (AfterRecord("7", clear_until=NOW - 3 * MINUTE), True),
        (AfterRecord("7", clear_until=NOW - 3 * MINUTE, arrived_ms=NOW + 1), False),
        (AfterRecord("7", clear_until=NOW + MINUTE, arrived_ms=NOW - 9 * MINUTE), False),
        (AfterRecord("7"), False),
        (TRIM_HORIZON, False),
        (LATEST, False),
        (SHARD_END, False),
    ],
)
def test_a_stream_that_was_created_after_a_stored_position_is_another(
    position: Position, is_older: bool
) -> None:
    assert is_of_another_stream(position, created_ms=NOW) is is_older


def test_a_service_that_does_not_tell_when_a_stream_was_created_has_one_stream() -> None:
    assert not is_of_another_stream(AtTimestamp(1), created_ms=0)


def summary(hours: int = 24, created_ms: int = 0) -> StreamSummary:
    return StreamSummary(hours * HOUR, NOW, created_ms=created_ms)


class Losses(list[str]):
    """The losses that a check has told."""

    def check(self, stream: StreamSummary | None = None) -> RetentionCheck:
        """Without a summary, a check that calls nothing."""

        def describe() -> StreamSummary:
            assert stream is not None, "a position whose record exists costs no call"
            return stream

        return RetentionCheck(client(), on_loss=self.append, describe=describe)


def client() -> StreamClient:
    return StreamClient(StreamAddress("flights", None, "us-east-1"))


def page(*records: Record | str, behind: int | None = 0) -> Fetched:
    found = [Record(data=b"", sequence_number=r) if isinstance(r, str) else r for r in records]
    return Fetched(Page(records=found, millis_behind_latest=behind), 0, NOW)


def numbers(records: Sequence[Record] | None) -> list[str] | None:
    return None if records is None else [record.sequence_number for record in records]


def packed(*datas: bytes) -> Record:
    (blob,) = aggregate([("k", None, data) for data in datas])
    return Record(data=blob.data, sequence_number="7")


HOLDS_NOTHING = sealed(GOLDEN_MESSAGE[:4])
"""An aggregate of no user record, in place of which a query may read the record itself."""


@pytest.mark.parametrize(
    ("record", "done", "expected"),
    [
        (packed(b"0", b"1", b"2"), None, False),
        (packed(b"0", b"1", b"2"), NONE_OF_IT, True),
        (packed(b"0", b"1", b"2"), 1, True),
        (packed(b"0", b"1", b"2"), 2, False),
        (Record(data=b"plain", sequence_number="7"), 0, False),
        (Record(data=b"plain", sequence_number="7"), NONE_OF_IT, True),
        (HOLDS_NOTHING, NONE_OF_IT, True),
    ],
)
def test_a_record_is_read_again_if_some_of_it_is_not_done(
    record: Record, done: int | None, *, expected: bool
) -> None:
    place = AfterRecord("7", sub_sequence_number=done)
    assert holds_more(record, place) is expected
    begun = Losses().check().check_start(SHARD, place, page(record, "8", "9"))
    assert numbers(begun) == (["7", "8", "9"] if expected else ["8", "9"])


def test_a_page_that_shows_nothing_tells_nothing_of_its_start() -> None:
    place = after(30, 30)
    for behind in (5, None):
        assert Losses().check().check_start(SHARD, place, page(behind=behind)) is None
    told = Losses()
    assert told.check(summary()).check_start(SHARD, place, page(behind=0)) == []
    assert len(told) == 1, "nothing is there, so the position's record is not"


@pytest.mark.parametrize("start", [after(2, 2), AtTimestamp(ago(2)), TRIM_HORIZON])
def test_what_is_kept_in_any_stream_is_no_loss_and_costs_no_call(start: Position) -> None:
    """But a record so young."""
    told = Losses()
    if isinstance(start, AfterRecord):
        assert numbers(told.check(summary()).check_start(SHARD, start, page("8"))) == ["8"]
        assert len(told) == 1
        start = AfterRecord("7", ago(2))
    assert numbers(Losses().check().check_start(SHARD, start, page("8", "9"))) == ["8", "9"]


NOW_SHORTER = "keeps records for 72 hours now, but kept them for a shorter time before"


@pytest.mark.parametrize(
    ("start", "stream", "expected"),
    [
        (after(30, 30), summary(24), "has expired: the stream keeps records for 24 hours, and"),
        (after(30, 30), summary(72), NOW_SHORTER),
        (after(None, 30), summary(72), None),
        (after(80, 30), summary(72), None),
        (after(80, 80), summary(72), "has expired: the stream keeps records for 72 hours, and"),
        (AtTimestamp(ago(80)), summary(72), "has expired: the stream keeps records for 72 hours,"),
        (after(30, 30), summary(24, ago(29)), "belongs to a deleted stream of the same name"),
        # An instant that a user chose may be older than the stream.
        (AtTimestamp(ago(30)), summary(72, ago(29)), None),
    ],
)
def test_a_start_that_is_gone_is_told_with_the_reason(
    start: Position, stream: StreamSummary, expected: str | None
) -> None:
    told = Losses()
    assert numbers(told.check(stream).check_start(SHARD, start, page("8", "9"))) == ["8", "9"]
    if expected is None:
        assert told == []
        return
    (text,) = told
    assert expected in text
    assert f"{start}" in text
    assert f"shard {SHARD}" in text
    assert "stream 'flights' in us-east-1" in text


def test_where_nothing_shows_whether_retention_was_shorter_it_is_said_if_wanted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A record's position: no other record of the shard can show it."""
    start = after(None, 30)
    check = RetentionCheck(client(), describe=lambda: summary(72))
    for number, each in enumerate((check, replace(check, logs_doubt=True))):
        assert numbers(each.check_start(SHARD, start, page("8"))) == ["8"]
        assert len(caplog.messages) == number
    assert f"{start} in shard {SHARD} of stream 'flights' in us-east-1" in caplog.text
    assert "is older than 24 hours" in caplog.text
    assert "keeps records for 72 hours" in caplog.text


PLANNED = ShardRange(SHARD, TRIM_HORIZON, AfterRecord("300"), first="20")


@pytest.mark.parametrize(
    ("first", "is_there"), [("20", True), ("3", True), ("21", False), ("100", False), (None, False)]
)
def test_the_first_record_of_a_plan_is_owed(first: str | None, *, is_there: bool) -> None:
    told = Losses()
    record = None if first is None else Record(data=b"", sequence_number=first)
    assert told.check(summary(48)).check_planned_first(PLANNED, record) is is_there
    if not is_there:
        (text,) = told
        assert f"The record 20 in shard {SHARD} of stream 'flights' in us-east-1 has" in text
        assert "from TRIM_HORIZON to 300 when the batch was planned" in text
        assert "keeps records for 48 hours" in text
    unknown = ShardRange(SHARD, TRIM_HORIZON, AfterRecord("300"))
    assert Losses().check().check_planned_first(unknown, record)


@pytest.mark.parametrize(
    ("start", "first", "is_lost"),
    [
        (AtTimestamp(ago(30)), None, False),
        (AtTimestamp(ago(30)), "20", True),
        (AtTimestamp(ago(50)), None, True),
        (TRIM_HORIZON, None, True),
        (AfterRecord("7", ago(1)), None, True),
    ],
)
def test_an_end_that_is_gone_is_a_loss_unless_the_user_chose_it_before_the_start(
    start: Position, first: str | None, *, is_lost: bool
) -> None:
    told = Losses()
    wanted = ShardRange(SHARD, start, AfterRecord("300"), first=first)
    told.check(summary(48)).report_missing_end(wanted, page("400"))
    expected = f"The position 300 in shard {SHARD} of stream 'flights' in us-east-1 has expired"
    assert [expected in text for text in told] == [True] * is_lost
    assert all("keeps records for 48 hours" in text for text in told)


@pytest.mark.parametrize(
    ("shards", "created_ms", "skip_older_than"),
    [
        (5_000, NOW, None),
        (1, NOW - 2 * HOUR, None),
        (2, NOW - HOUR + 1, 3600.0),
        (2, NOW - HOUR, 3600.0),
    ],
)
def test_a_deleted_stream_is_told_with_some_of_many_shards_unless_what_is_as_old_is_skipped(
    shards: int, created_ms: int, skip_older_than: float | None
) -> None:
    told = Losses()
    check = told.check()
    ids = [f"shardId-{n:012}" for n in range(shards)]
    positions: dict[str, Position] = {shard: AtTimestamp(n) for n, shard in enumerate(ids)}
    there = {"shardId-later": AtTimestamp(created_ms)}
    stream = summary(created_ms=created_ms)
    given = {**dict(reversed(positions.items())), **there}
    assert check.report_other_stream(given, stream, skip_older_than) == set(ids)
    assert check.report_other_stream(there, stream, skip_older_than) == frozenset()
    if created_ms == NOW - HOUR:
        assert told == []
        return
    (text,) = told
    named = ", ".join(f"{shard} at AT_TIMESTAMP:{n}" for n, shard in enumerate(ids[:10]))
    more = " and of 4990 other shards: the" if shards > 10 else ": the"
    assert f"the position of shard {named}{more} position belongs to a deleted stream" in text


def test_when_a_stream_was_made_anew_is_told_and_no_longer_retention_is_advised() -> None:
    check = RetentionCheck(client())
    made = summary(created_ms=1_790_000_000_000)
    with pytest.raises(DataLossError) as caught:
        check.report_other_stream({SHARD: AtTimestamp(1)}, made)
    text = str(caught.value)
    assert "was created at 2026-09-21T14:13:20+00:00, which is later" in text
    assert text.endswith(" a batch read with another startingPosition).")


def test_a_loss_is_raised_or_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    place = f"The position 7 in shard {SHARD} of stream 'flights' in us-east-1 has expired"
    refused = PositionNotFoundError("It is gone. Set the option failOnDataLoss to false, or not.")
    counted: list[str] = []
    for fails in (True, False):
        check = RetentionCheck(
            client(), fails, on_accepted=lambda: counted.append("one"), describe=lambda: summary(48)
        )
        silent = RetentionCheck(client(), fails, describe=lambda: summary(48))

        def told(report: Callable[[], None], fails: bool = fails) -> str:
            """What was raised or logged."""
            caplog.clear()
            if not fails:
                report()
                (text,) = caplog.messages
                return text
            with pytest.raises(DataLossError) as caught:
                report()
            assert not caplog.messages
            return str(caught.value)

        for one in (check, silent):
            text = told(functools.partial(one.report_loss, SHARD, AfterRecord("7")))
            assert text.startswith(place)
            assert "keeps records for 48 hours, and" in text
            assert text.endswith(
                ". To have more time in future, raise the stream's retention period."
                if fails
                else " Resuming from the oldest record kept."
            )
            assert ("Set the option failOnDataLoss to false" in text) is fails
            text = told(functools.partial(one.accept_or_raise, refused))
            assert text == (
                str(refused) if fails else "It is gone. Resuming from the oldest record kept."
            )
        assert counted == ([] if fails else ["one", "one"])
