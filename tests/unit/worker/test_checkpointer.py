"""Which checkpoints are permitted (W2): within what was delivered, never backwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, ClassVar, cast
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from sparkinesis.errors import CheckpointError, LeaseLostError, LeaseTableUnavailableError
from sparkinesis.lease.held import HeldLease
from sparkinesis.metrics.tally import Distribution, Tally
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, AtTimestamp
from sparkinesis.stream.reading.retention import CLOCK_MARGIN_MS
from sparkinesis.worker.batches.batch import make_batch
from sparkinesis.worker.batches.user_record import UserRecord
from sparkinesis.worker.checkpoint_rules import Permitted, known_after
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.reporting.shard_reporter import ShardMeasures
from sparkinesis.worker.sink.sink import ShardSinks
from tests.unit.worker.delivering import SHARD, Held, at

NOW_MS = 1_790_000_000_000


@pytest.mark.parametrize(
    ("last", "largest", "asked", "written"),
    [
        ("TRIM_HORIZON", "20:3", (None, None), "20:3"),
        ("TRIM_HORIZON", "20:3", ("20", 1), "20:1"),
        ("TRIM_HORIZON", "20:3", ("20", None), "20:0"),
        ("LATEST", "20:3", ("9", None), "9:0"),
        ("20:1", "20:3", ("20", 1), "20:1"),
        ("20:1", "20:3", ("20", 2), "20:2"),
        ("9", "10", ("10", None), "10:0"),
        ("TRIM_HORIZON", "TRIM_HORIZON", (None, None), "TRIM_HORIZON"),
    ],
)
def test_a_checkpoint_within_what_was_delivered(
    last: str, largest: str, asked: tuple[str | None, int | None], written: str
) -> None:
    assert Permitted(at(last), at(largest)).resolve(*asked) == at(written)


@pytest.mark.parametrize(
    ("last", "largest", "asked", "why"),
    [
        ("20:1", "20:3", ("20", 0), "before the last checkpoint"),
        ("20:1", "20:3", ("9", 7), "before the last checkpoint"),
        ("20:1", "20:3", ("20", 4), "beyond the last record that was processed"),
        ("20:1", "20:3", ("20", 4), r"The records in between would be lost\.$"),
        ("20:1", "20:3", ("100", None), "beyond the last record that was processed"),
        ("TRIM_HORIZON", "TRIM_HORIZON", ("5", None), "beyond the last record that was processed"),
        ("20:1", "20:3", ("LATEST", None), "checkpointer.reset"),
        ("20:1", "20:3", ("TRIM_HORIZON", None), "checkpointer.reset"),
        ("20:1", "20:3", ("SHARD_END", None), r"Checkpoint the end in shard_ended\(\)\."),
        ("20:1", "20:3", ("2x", None), "not a sequence number"),
        ("20:1", "20:3", ("²", None), "not a sequence number"),
        ("20:1", "20:3", ("\u0663", None), "not a sequence number"),
        ("20:1", "20:3", ("", None), "not a sequence number"),
        ("20:1", "20:3", ("20", -1), "negative"),
        ("20:1", "20:3", (None, 2), "without a sequence number"),
    ],
)
def test_any_other_is_refused_with_the_reason(
    last: str, largest: str, asked: tuple[str | None, int | None], why: str
) -> None:
    with pytest.raises(CheckpointError, match=why):
        Permitted(at(last), at(largest)).resolve(*asked)


@pytest.mark.parametrize("asked", [(None, None), ("20", 3), ("SHARD_END", None)])
@pytest.mark.parametrize("last", ["TRIM_HORIZON", "20:1", "20:3"])
def test_the_last_record_of_an_ended_shard_is_its_end_even_if_it_was_checkpointed_before(
    last: str, asked: tuple[str | None, int | None]
) -> None:
    """The KCL compares first, writes nothing, and calls ``shardEnded`` for ever."""
    ended = Permitted(at(last), at("SHARD_END"), end=at("20:3"))
    assert ended.resolve(*asked).is_shard_end


def test_at_its_end_a_shard_may_be_checkpointed_as_a_whole() -> None:
    ended = Permitted(at("10"), at("20:3")).ended()
    assert ended == Permitted(at("10"), at("SHARD_END"), end=at("20:3"))
    assert ended.ended() is ended


def test_an_arrival_is_known_with_the_margin_of_clocks() -> None:
    assert known_after(at("20"), 90_000) == AfterRecord(
        "20", 90_000 - CLOCK_MARGIN_MS, arrived_ms=90_000
    )
    assert known_after(at("20"), None) is known_after(at("LATEST"), 90_000) is None


def test_an_earlier_record_of_an_ended_shard_is_itself() -> None:
    ended = Permitted(at("TRIM_HORIZON"), at("SHARD_END"), end=at("20:3"))
    assert ended.resolve("20", 2) == at("20:2")


def test_a_checkpoint_that_an_earlier_owner_prepared_is_permitted_and_nothing_else_beyond() -> None:
    resumed = Permitted(at("10"), at("10"), pending=at("20:3"))
    assert resumed.resolve("20", 3) == at("20:3")
    for other in (("20", 2), ("15", None), ("21", None), ("SHARD_END", None)):
        with pytest.raises(CheckpointError, match="beyond the last record that was processed"):
            resumed.resolve(*other)
    assert resumed.resolve(None, None) == at("10"), "what was delivered, not what is pending"
    with pytest.raises(CheckpointError, match="before the last checkpoint"):
        Permitted(at("30"), at("30"), pending=at("20:3")).resolve("20", 3)


def prepared(last: str, pending: str | None) -> tuple[Held, Checkpointer]:
    held = Held(last, pending)
    return held, Checkpointer(cast(HeldLease, held), lambda: 0)


def test_what_was_committed_at_once_counts_as_delivered() -> None:
    held, checkpointer = prepared("10", "20:3")
    checkpointer.commit_pending()
    assert held.written == ["20:3"]
    assert checkpointer.settled == at("20:3")
    checkpointer.permit(at("15"))  # from before, fetched already
    assert checkpointer.settled == at("20:3")
    checkpointer.checkpoint()
    assert held.written == ["20:3"]
    with pytest.raises(CheckpointError, match=f"No checkpoint of {SHARD} is prepared"):
        checkpointer.commit_pending()


@pytest.mark.parametrize("undo", ["dropped", "prepared 12:0", "12:0"])
def test_what_is_dropped_or_replaced_is_not_permitted_any_more(undo: str) -> None:
    held, checkpointer = prepared("10", "20:3")
    checkpointer.permit(at("12"))
    if undo == "dropped":
        checkpointer.drop_pending()
    elif undo == "12:0":
        checkpointer.checkpoint()
    else:
        checkpointer.prepare()
    assert held.written == [undo]
    assert checkpointer.is_prepared == undo.startswith("prepared")
    with pytest.raises(CheckpointError, match="beyond the last record"):
        checkpointer.checkpoint("20", 3)
    checkpointer.drop_pending()
    assert not checkpointer.is_prepared


def test_a_pending_checkpoint_may_be_prepared_again_with_another_state() -> None:
    held, checkpointer = prepared("10", "20:3")
    checkpointer.prepare("20", 3, state=b"2").checkpoint()
    assert held.written == ["prepared 20:3", "20:3"]


def test_a_pending_end_of_the_shard_waits_for_its_end() -> None:
    held, checkpointer = prepared("10", "SHARD_END")
    with pytest.raises(CheckpointError, match=r"shard_ended\(\)"):
        checkpointer.commit_pending()
    checkpointer.permit(at("12"))
    checkpointer.end()
    checkpointer.commit_pending()
    assert held.written == ["SHARD_END"]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("half done", "state is of the type str; it must be bytes"),
        (bytearray(b"x"), "state is of the type bytearray"),
        ({"step": 1}, "state is of the type dict"),
        (b"x" * 400_001, "state has 400,001 bytes; it may have 400,000. DynamoDB stores at most"),
    ],
)
def test_a_state_that_cannot_be_stored_is_refused_before_anything_is_written(
    state: Any, why: str
) -> None:
    held, checkpointer = prepared("10", None)
    checkpointer.permit(at("12"))
    with pytest.raises(CheckpointError, match=why):
        checkpointer.prepare(state=state)
    assert held.written == []
    checkpointer.prepare(state=b"x" * 400_000)
    assert held.written == ["prepared 12:0"]


def test_a_prepared_checkpoint_is_checked_again_when_it_is_committed() -> None:
    held, checkpointer = prepared("10", None)
    checkpointer.permit(at("20:3"))
    early, last = checkpointer.prepare("15"), checkpointer.prepare()
    checkpointer.checkpoint()
    with pytest.raises(CheckpointError, match="before the last checkpoint"):
        early.checkpoint()
    checkpointer.end()
    last.checkpoint()
    assert held.written == ["prepared 15:0", "prepared 20:3", "20:3", "SHARD_END"]


def test_an_arrival_is_stored_only_with_the_checkpoint_of_its_record() -> None:
    stored: list[AfterRecord | None] = []

    class Noting(Held):
        def checkpoint(self, at: Any, timestamp_ms: int | None = None, **more: Any) -> None:
            stored.append(more["known"])
            super().checkpoint(at, timestamp_ms, **more)

    held = Noting("10")
    held.lease = replace(held.lease, known=AfterRecord("11", arrived_ms=9_000))
    checkpointer = Checkpointer(cast(HeldLease, held), lambda: 0)
    checkpointer.permit(at("15"))
    for number in ("11", "12", "15"):
        checkpointer.checkpoint(number)
    assert stored == [known_after(at("11"), 9_000), None, None]


@pytest.fixture
def checkpointer() -> Checkpointer:
    return Checkpointer(cast(HeldLease, Held()), lambda: 1_790_000_000_000)


def test_a_checkpoint_is_settled_once_nothing_that_was_delivered_lies_behind_it(
    checkpointer: Checkpointer,
) -> None:
    """Silence behind it may be noted then: of an aggregate, all user records are done."""
    settled = [checkpointer.settled]
    checkpointer.permit(at("20:3"))
    settled.append(checkpointer.settled)
    checkpointer.checkpoint("20", 1)  # two more user records of the same record are left
    settled.append(checkpointer.settled)
    checkpointer.checkpoint("20", 3)
    settled.append(checkpointer.settled)
    checkpointer.end()
    settled.append(checkpointer.settled)
    checkpointer.checkpoint()
    settled.append(checkpointer.settled)
    assert settled == [at("TRIM_HORIZON"), None, None, at("20:3"), None, None]


@pytest.mark.parametrize(
    ("to", "why"),
    [
        (datetime(2026, 1, 1), "reset to is 2026-01-01T00:00:00, an instant without a time zone"),
        ("SHARD_END", "reset to is 'SHARD_END', which is not a position; it takes latest"),
    ],
)
def test_a_shard_is_moved_to_a_position_only(checkpointer: Checkpointer, to: Any, why: str) -> None:
    with pytest.raises(CheckpointError, match=why):
        checkpointer.reset(to)
    checkpointer.reset(datetime(2026, 1, 1, tzinfo=timezone.utc))


def test_nothing_is_settled_while_a_shard_is_moved(checkpointer: Checkpointer) -> None:
    checkpointer.reset("TRIM_HORIZON")
    assert checkpointer.settled is None
    assert checkpointer.take_reset() is not None
    assert checkpointer.settled == at("TRIM_HORIZON")


def test_what_is_delivered_after_a_reset_does_not_undo_it() -> None:
    """The batch was fetched before the reset, and its call is on its way."""
    held = Held()
    moved = Checkpointer(cast(HeldLease, held), lambda: 0)
    moved.permit(at("20"))
    moved.reset("TRIM_HORIZON")
    moved.permit(at("30"))
    moved.checkpoint()
    with pytest.raises(CheckpointError, match="beyond the last record"):
        moved.checkpoint("30")
    assert held.written == ["TRIM_HORIZON"]
    assert moved.age == 0.0
    moved.take_reset()
    moved.permit(at("5"))
    moved.checkpoint()
    assert held.written == ["TRIM_HORIZON", "5:0"]


def test_a_reset_beside_java_workers_stores_the_record_that_stands_for_the_instant() -> None:
    held, now_ms = Held("20:3"), 1_790_000_000_000
    places = {now_ms: at("19"), now_ms - 1: None}
    moved = Checkpointer(cast(HeldLease, held), lambda: now_ms, place_at=places.get)
    moved.reset("LATEST")
    assert moved.take_reset() == AtTimestamp(now_ms)
    assert (held.written, moved.last) == (["19:0"], at("19"))
    assert held.moved_ms == now_ms
    moved.reset(AtTimestamp(now_ms - 1).instant)
    assert (held.written[1:], moved.last) == (["AT_TIMESTAMP"], at("AT_TIMESTAMP"))
    assert held.moved_ms == now_ms


def test_a_reset_is_told_once_it_can_be_seen() -> None:
    """The shard's consumer may be idle, and another thread of the program may move the shard."""
    seen: list[bool] = []
    moved = Checkpointer(
        cast(HeldLease, Held()), lambda: 0, on_reset=lambda: seen.append(moved.is_reset)
    )
    with pytest.raises(CheckpointError):
        moved.reset("SHARD_END")
    moved.reset("TRIM_HORIZON")
    assert seen == [True]


class Rows(ShardSinks):
    """Sinks that always have rows, and note when these are stored."""

    has_rows = True

    def __init__(self, held: Held) -> None:
        super().__init__()
        self._held = held

    def flush(self, after: object, until: object) -> None:
        self._held.written.append(f"rows after {after} up to {until}")


def with_rows(last: str = "TRIM_HORIZON") -> tuple[Held, Checkpointer]:
    held = Held(last)
    return held, Checkpointer(cast(HeldLease, held), lambda: NOW_MS, Rows(held))


def test_rows_are_stored_before_each_checkpoint_that_covers_their_records() -> None:
    held, checkpointer = with_rows("10")
    checkpointer.permit(at("20:3"))
    checkpointer.checkpoint()
    checkpointer.checkpoint()  # it is there, and there may be more rows of its records
    checkpointer.permit(at("30"))
    checkpointer.prepare()
    checkpointer.rewind(AfterRecord("15"))
    checkpointer.reset("TRIM_HORIZON")
    checkpointer.checkpoint()
    assert held.written == [
        "rows after 10:0 up to 20:3",
        "20:3",
        "rows after 20:3 up to 20:3",
        "rows after 20:3 up to 30:0",
        "prepared 30:0",
        "rows after 20:3 up to 30:0",
        "15:0",
        "rows after 15:0 up to 15:0",
        "TRIM_HORIZON",
        "rows after TRIM_HORIZON up to TRIM_HORIZON",
    ]


def test_the_rows_of_a_shards_end_are_those_up_to_its_last_record() -> None:
    held, checkpointer = with_rows("10")
    checkpointer.permit(at("20:3"))
    checkpointer.end()
    checkpointer.checkpoint()
    assert held.written == ["rows after 10:0 up to 20:3", "SHARD_END"]


def test_without_the_lease_no_row_is_stored() -> None:
    """The next owner stores them again."""
    held, checkpointer = with_rows()
    held.held = False
    with pytest.raises(LeaseLostError, match=r"^checkpoint$"):
        checkpointer.checkpoint()
    checkpointer.permit(at("20"))
    acts: dict[str, Callable[[], object]] = {
        "checkpoint": checkpointer.checkpoint,
        "prepare a checkpoint": checkpointer.prepare,
        "reset the checkpoint": lambda: checkpointer.reset("LATEST"),
        "read records again": lambda: checkpointer.rewind(AfterRecord("1")),
    }
    for doing, act in acts.items():
        with pytest.raises(LeaseLostError, match=rf"^{doing}$"):
            act()
    assert held.written == []
    assert not checkpointer.is_reset


@pytest.mark.parametrize(
    ("to", "written", "timestamp_ms"),
    [
        (AfterRecord("15", sub_sequence_number=1), ["15:1"], None),
        (AtTimestamp(5_000), ["AT_TIMESTAMP"], 5_000),
        (TRIM_HORIZON, ["TRIM_HORIZON"], None),
        (AfterRecord("30"), [], None),
        (AfterRecord("31"), [], None),
    ],
)
def test_a_checkpoint_behind_records_that_were_left_out_is_moved_back(
    to: Any, written: list[str], timestamp_ms: int | None
) -> None:
    held, told = Held("30"), list[bool]()
    moved = Checkpointer(
        cast(HeldLease, held), lambda: NOW_MS, on_reset=lambda: told.append(moved.is_reset)
    )
    moved.permit(at("40"))
    moved.prepare()
    held.written.clear()
    moved.rewind(to)
    assert held.written == written
    assert (held.timestamp_ms, held.moved_ms) == (timestamp_ms, NOW_MS if written else None)
    assert moved.last == at(written[0] if written else "30")
    assert told == [True]
    assert moved.age == 0.0
    assert not moved.is_prepared
    with pytest.raises(CheckpointError, match="beyond the last record"):
        moved.checkpoint("40")
    assert moved.take_reset() == to
    assert not moved.is_reset


@pytest.mark.parametrize(
    ("last", "to"), [("TRIM_HORIZON", AfterRecord("10")), ("LATEST", TRIM_HORIZON)]
)
def test_a_shard_that_was_never_checkpointed_is_read_again_without_a_write(
    last: str, to: Any
) -> None:
    held = Held(last)
    moved = Checkpointer(cast(HeldLease, held), lambda: NOW_MS)
    moved.permit(at("40"))
    moved.rewind(to)
    assert (held.written, moved.last, moved.take_reset()) == ([], at(last), to)


def test_a_start_of_the_processors_own_becomes_the_checkpoint() -> None:
    held, checkpointer = prepared("30", None)
    checkpointer.permit(at("40"))
    checkpointer.begin_at(at("20:1"))
    assert (held.written, held.moved_ms) == (["20:1"], 0)
    assert checkpointer.last == checkpointer.settled == at("20:1")


@pytest.mark.parametrize(
    ("to", "position", "written", "timestamp_ms"),
    [
        ("LATEST", AtTimestamp(NOW_MS), "LATEST", NOW_MS),
        ("TRIM_HORIZON", TRIM_HORIZON, "TRIM_HORIZON", None),
        (AtTimestamp(NOW_MS + 60_000).instant, AtTimestamp(NOW_MS + 60_000), "AT_TIMESTAMP", ...),
    ],
)
def test_a_reset_stores_where_it_goes_on(
    to: Any, position: Any, written: str, timestamp_ms: Any
) -> None:
    held = Held("20")
    moved = Checkpointer(cast(HeldLease, held), lambda: NOW_MS)
    moved.permit(at("30"))
    moved.prepare()
    moved.reset(to)
    assert held.written == ["prepared 30:0", written]
    assert held.timestamp_ms == (NOW_MS + 60_000 if timestamp_ms is ... else timestamp_ms)
    assert held.moved_ms == NOW_MS
    assert not moved.is_prepared
    assert moved.take_reset() == position
    assert moved.take_reset() is None


def test_a_shard_is_not_moved_to_what_is_not_yet_nor_once_it_has_ended() -> None:
    held = Held("20")
    moved = Checkpointer(cast(HeldLease, held), lambda: NOW_MS)
    with pytest.raises(CheckpointError, match="which is in the future: the stream's clock shows"):
        moved.reset(AtTimestamp(NOW_MS + 60_001).instant)
    moved.end()
    with pytest.raises(CheckpointError, match="The shard has ended"):
        moved.reset("TRIM_HORIZON")
    assert held.written == []
    assert not moved.is_reset


def record(number: int, sub: int = 0, arrived_ms: int | None = None) -> UserRecord:
    arrived = None if arrived_ms is None else AtTimestamp(arrived_ms).instant
    return UserRecord(b"x", "k", str(number), sub, arrived, None, SHARD)


def test_a_record_is_its_place_and_its_arrival() -> None:
    """The arrival is that of the record, whatever was delivered or committed since."""
    held = Held("10")
    checkpointer = Checkpointer(cast(HeldLease, held), lambda: 0)
    checkpointer.permit(at("50"))
    checkpointer.checkpoint(record(20, 2, 5_000))
    assert held.stored_known == known_after(at("20"), 5_000)
    checkpointer.checkpoint(record(30))
    assert held.stored_known is None
    ready = checkpointer.prepare(record(40, 1, 9_000))
    assert ready.at == at("40:1")
    checkpointer.permit(at("60"))
    ready.checkpoint()
    assert held.stored_known == known_after(at("40"), 9_000)
    assert held.written == ["20:2", "30:0", "prepared 40:1", "40:1"]


def test_an_arrival_is_found_in_the_batch_that_is_delivered_and_kept_of_its_last_record() -> None:
    records = [
        Record(
            data=b"x",
            partition_key="k",
            sequence_number=str(number),
            approximate_arrival_timestamp=float(number),
        )
        for number in (20, 30, 40)
    ]
    batch, _ = make_batch(records, stream="s", shard_id=SHARD, millis_behind_latest=0)
    held = Held("10")
    checkpointer = Checkpointer(cast(HeldLease, held), lambda: 0)
    checkpointer.permit(at("40"), batch)
    checkpointer.checkpoint("20")
    assert held.stored_known == known_after(at("20"), 20_000)
    ready = checkpointer.prepare("30")
    checkpointer.end_call()
    ready.checkpoint()
    assert held.stored_known == known_after(at("30"), 30_000)
    checkpointer.checkpoint()
    assert held.stored_known == known_after(at("40"), 40_000)


@pytest.mark.parametrize("wrong", [20, b"20", 2.0])
def test_what_is_neither_a_record_nor_a_sequence_number_is_refused(wrong: Any) -> None:
    held, checkpointer = prepared("10", None)
    checkpointer.permit(at("30"))
    with pytest.raises(CheckpointError, match=type(wrong).__name__):
        checkpointer.checkpoint(wrong)
    assert held.written == []


def test_what_has_failed_is_permitted_no_more_and_what_is_checkpointed_stays() -> None:
    held, checkpointer = prepared("10", None)
    checkpointer.permit(at("20"))
    checkpointer.permit(at("30"))
    checkpointer.take_back(at("20"))
    with pytest.raises(CheckpointError, match="beyond the last record"):
        checkpointer.checkpoint("30")
    checkpointer.checkpoint()
    checkpointer.take_back(at("15"))
    assert checkpointer.settled == at("20")
    checkpointer.checkpoint()
    assert held.written == ["20:0"]


def test_what_the_table_has_not_taken_is_not_so_and_may_be_tried_again() -> None:
    held, checkpointer = prepared("10", "20:3")
    checkpointer.permit(at("12"))
    away = LeaseTableUnavailableError("away")
    acts: dict[str, Callable[[], object]] = {
        "drop_pending": checkpointer.drop_pending,
        "prepare": checkpointer.prepare,
        "checkpoint": lambda: checkpointer.reset("LATEST"),
        "move": lambda: checkpointer.rewind(AfterRecord("5")),
    }
    for method, act in acts.items():
        with patch.object(held, method, side_effect=away), pytest.raises(type(away)):
            act()
    with patch.object(held, "checkpoint", side_effect=away), pytest.raises(type(away)):
        checkpointer.checkpoint("11")
    assert (checkpointer.last, checkpointer.is_reset, checkpointer.is_prepared) == (
        at("10"),
        False,
        False,
    )
    checkpointer.checkpoint("11")
    assert held.written == ["11:0"]


def test_a_coroutine_checkpoints_the_same() -> None:
    held, checkpointer = prepared("10", None)
    checkpointer.permit(at("30:5"))
    asyncio.run(checkpointer.checkpoint_async("30", 2))
    asyncio.run(checkpointer.checkpoint_async())
    assert held.written == ["30:2", "30:5"]


def test_a_checkpointer_knows_its_lease() -> None:
    held, checkpointer = prepared("10", None)
    assert (checkpointer.fencing_token, checkpointer.is_held) == (7, True)
    held.held = False
    assert not checkpointer.is_held


def test_what_was_prepared_already_is_prepared_no_more_once_anything_is_checkpointed() -> None:
    held, checkpointer = prepared("10", None)
    checkpointer.permit(at("20"))
    checkpointer.checkpoint()
    assert checkpointer.prepare().at == at("20")
    assert (held.written, checkpointer.is_prepared) == (["20:0"], False), "it is written already"
    checkpointer.permit(at("30"))
    checkpointer.prepare()
    assert checkpointer.is_prepared
    checkpointer.checkpoint()
    assert not checkpointer.is_prepared


def test_the_age_counts_from_the_first_delivery_that_no_checkpoint_covers() -> None:
    now = 100.0
    checkpointer = Checkpointer(cast(HeldLease, Held()), lambda: 0, clock=lambda: now)
    ages = [checkpointer.age]
    for until in ("20", "30"):
        checkpointer.permit(at(until))
        now += 5.0
        ages.append(checkpointer.age)
    assert ages == [0.0, 5.0, 10.0]
    checkpointer.take_back(at("20"))
    assert checkpointer.age == 10.0, "what failed is not done"
    checkpointer.permit(at("30"))
    checkpointer.checkpoint("20", 0)
    now += 2.0
    assert checkpointer.age == 2.0, "since the last checkpoint, as something is left behind it"
    checkpointer.checkpoint()
    now += 60.0
    assert checkpointer.age == 0.0, "silence makes no checkpoint old"
    checkpointer.permit(at("30"))
    now += 1.0
    assert checkpointer.age == 0.0, "nothing new"
    checkpointer.permit(at("40"))
    now += 1.0
    assert checkpointer.age == 1.0
    checkpointer.reset("TRIM_HORIZON")
    assert checkpointer.age == 0.0


def test_checkpoints_are_measured_with_their_results() -> None:
    now, tally = 0.0, Tally()

    class Refusing(Held):
        errors: ClassVar[list[Exception]] = [LeaseTableUnavailableError("a"), LeaseLostError("b")]

        def checkpoint(self, at: Any, timestamp_ms: int | None = None, **more: Any) -> None:
            nonlocal now
            now += 2.0
            if self.errors:
                raise self.errors.pop(0)

    measures = ShardMeasures(tally, "s", "shard", lambda: now)
    checkpointer = Checkpointer(cast(HeldLease, Refusing()), lambda: 0, measures=measures)
    checkpointer.permit(at("20"))
    for kind in (LeaseTableUnavailableError, LeaseLostError):
        with pytest.raises(kind):
            checkpointer.checkpoint()
    checkpointer.checkpoint()
    checkpointer.checkpoint()  # writes nothing: it is there
    checkpointer.reset("LATEST")
    assert [(one.metric, one.labels, one.value) for one in tally.series()] == [
        ("checkpoint.duration", ("s", result), Distribution(counts, total))
        for result, counts, total in (
            ("failed", [*[0] * 10, 1, *[0] * 6], 2.0),
            ("ok", [*[0] * 10, 2, *[0] * 6], 4.0),
            ("refused", [*[0] * 10, 1, *[0] * 6], 2.0),
        )
    ]
