"""Batches: the same records as objects and as columns, and cut where processing has come to."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.stream.page import Record
from sparkinesis.stream.reading import arrow
from sparkinesis.worker.batches import page_rows
from sparkinesis.worker.batches.batch import RecordBatch, make_batch
from sparkinesis.worker.batches.page_rows import Habit
from tests.examples import examples

SHARD = "shardId-000000000007"


def made(records: Sequence[Record], **more: Any) -> tuple[RecordBatch, int]:
    return make_batch(records, stream="s", shard_id=SHARD, millis_behind_latest=5, **more)


def batch_of(*records: Record, **more: Any) -> RecordBatch:
    return made(records, **more)[0]


def plain(number: str, data: bytes = b"x", at: float | None = None) -> Record:
    return Record(
        data=data, partition_key="k", sequence_number=number, approximate_arrival_timestamp=at
    )


def aggregated(sequence_number: str, *datas: bytes) -> Record:
    (packed,) = aggregate([(data.decode(), None, data) for data in datas])
    return plain(sequence_number, packed.data, 1_790_000_000.123)


def test_objects_and_columns_say_the_same() -> None:
    batch = batch_of(
        plain("100", at=1_790_000_000.123),
        aggregated("200", b"0", b"1"),
    )
    assert [(r.data, r.sequence_number, r.sub_sequence_number) for r in batch.records] == [
        (b"x", "100", 0),
        (b"0", "200", 0),
        (b"1", "200", 1),
    ]
    first = batch.records[0]
    assert first.approximate_arrival_timestamp == datetime.fromtimestamp(
        1_790_000_000, timezone.utc
    ).replace(microsecond=123_000)
    assert (first.partition_key, first.explicit_hash_key, first.shard_id) == ("k", None, SHARD)
    assert batch.to_arrow().column("data").to_pylist() == [r.data for r in batch.records]
    of_columns = RecordBatch(batch.to_arrow(), 5).records
    assert of_columns[1].sequence_number is of_columns[2].sequence_number
    assert batch.millis_behind_latest == 5


@pytest.mark.parametrize(
    ("done", "left"),
    [
        (ExtendedSequenceNumber("TRIM_HORIZON"), [b"x", b"0", b"1", b"2", b"y"]),
        (ExtendedSequenceNumber("100"), [b"0", b"1", b"2", b"y"]),
        (ExtendedSequenceNumber("200", 1), [b"2", b"y"]),
        (ExtendedSequenceNumber("200", 2), [b"y"]),
        (ExtendedSequenceNumber("1000"), []),
    ],
)
def test_what_is_left_after_a_place_inside_of_a_record(
    done: ExtendedSequenceNumber, left: list[bytes]
) -> None:
    batch = batch_of(
        plain("100"),
        aggregated("200", b"0", b"1", b"2"),
        plain("1000", b"y"),
    )
    assert [record.data for record in batch.after(done).records] == left


def test_the_hash_range_filter_drops_user_records_and_not_the_aggregate() -> None:
    (packed,) = aggregate([("k", "5", b"mine"), ("k", "50", b"not mine"), ("k", "9", b"mine too")])
    records = [Record(data=packed.data, partition_key="a", sequence_number="200")]
    batch, dropped = made(records, hash_range=(0, 10))
    assert [record.data for record in batch.records] == [b"mine", b"mine too"]
    assert [record.sub_sequence_number for record in batch.records] == [0, 2]
    assert dropped == 1
    assert len(batch_of(*records)) == 3


def page() -> list[Record]:
    """Plain records, sound aggregates and a malformed one at the end."""
    broken = aggregated("600", b"6", b"7")
    return [
        plain("100", at=1_790_000_000.007),
        aggregated("200", b"0", b"1", b"2"),
        Record(data=b"y", partition_key=None, sequence_number="300"),
        aggregated("400", b"3"),
        plain("600", broken.data + b"?", 1_790_000_000.009),
    ]


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("made without having been asked for")


@pytest.fixture
def no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_rows, "make_objects", refuse)


@pytest.fixture
def no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "to_arrow_within", refuse)


@pytest.mark.usefixtures("no_objects", "no_columns")
def test_a_batch_is_delivered_before_anything_is_unpacked() -> None:
    """What the worker asks before it calls the processor for the first time."""
    batch = batch_of(*page())
    assert batch
    assert batch.last == ExtendedSequenceNumber("600")
    assert batch.arrived_ms("600") == 1_790_000_000_009
    assert batch.arrived_ms("300") is None
    assert batch.arrived_ms("500") is None
    assert batch.arrived_ms("700") is None
    assert batch_of(*page()[:2]).last == ExtendedSequenceNumber("200", 2)
    assert not batch_of()


@pytest.mark.usefixtures("no_objects", "no_columns")
def test_plain_records_are_counted_and_cut_without_being_unpacked() -> None:
    batch = batch_of(*(Record(data=b"x", sequence_number=str(n)) for n in range(1, 8)))
    assert len(batch) == 7
    assert batch.last == ExtendedSequenceNumber("7")
    rest = batch.after(ExtendedSequenceNumber("3"))
    assert (len(rest), rest.last, rest.halves()[0].last) == (
        4,
        ExtendedSequenceNumber("7"),
        ExtendedSequenceNumber("5"),
    )
    assert rest.arrived_ms("7") is None
    assert (batch.data_bytes(), rest.data_bytes(), batch_of().data_bytes()) == (7, 4, 0)


@pytest.mark.usefixtures("no_columns")
def test_objects_need_no_columns() -> None:
    batch = batch_of(*page())
    assert [record.data for record in batch.records][:4] == [b"x", b"0", b"1", b"2"]
    assert (len(batch), batch.last) == (7, ExtendedSequenceNumber("600"))
    assert batch.after(batch.records[4].position).records[0].data == b"3"


@pytest.mark.usefixtures("no_objects")
def test_columns_need_no_objects() -> None:
    batch = batch_of(*page())
    assert batch.to_arrow().num_rows == len(batch) == 7
    assert batch.last == ExtendedSequenceNumber("600")
    assert batch.slice(1, 3).to_arrow().column("data").to_pylist() == [b"0", b"1"]


@pytest.mark.parametrize("asks_for_objects", [True, False])
def test_a_length_unpacks_into_the_form_that_was_asked_for_before(
    asks_for_objects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    habit = Habit()
    first = batch_of(*page(), habit=habit)
    _ = first.records if asks_for_objects else first.to_arrow()
    unwanted = (arrow, "to_arrow_within") if asks_for_objects else (page_rows, "make_objects")
    monkeypatch.setattr(*unwanted, refuse)
    second = batch_of(*page(), habit=habit)
    assert (second.last, len(second)) == (ExtendedSequenceNumber("600"), 7)


def test_a_list_of_records_that_is_changed_changes_no_batch() -> None:
    batch = batch_of(*page())
    half, _ = batch.halves()
    batch.records.clear()
    assert (len(batch), len(half.records), batch.last.sequence_number) == (7, 3, "600")


def test_a_slice_beyond_the_end_is_shorter() -> None:
    batch = batch_of(*page())
    assert [record.data for record in batch.slice(3, 100).records[:2]] == [b"2", b"y"]
    assert len(batch.slice(3, 100)) == 4
    assert len(batch.slice(3, 100).slice(1, 100)) == 3
    assert len(batch.slice(5, 2)) == len(batch.slice(50, 60)) == 0
    assert not batch.slice(5, 2)
    with pytest.raises(IndexError, match="-1"):
        batch.slice(-1, 3)


users = st.lists(st.sampled_from([b"0", b"1", b"22"]), min_size=1, max_size=4)


@st.composite
def pages(draw: st.DrawFn) -> list[Record]:
    records: list[Record] = []
    for place in range(draw(st.integers(1, 5))):
        number = str(100 + place * draw(st.integers(1, 3)) * 7 + 30 * place)
        kind = draw(st.sampled_from(["plain", "packed", "broken"]))
        record = aggregated(number, *draw(users))
        data = {"plain": b"p", "packed": record.data, "broken": record.data + b"?"}[kind]
        seconds = draw(st.none() | st.integers(0, 10**6).map(lambda ms: 1.79e9 + ms / 1000))
        records.append(
            Record(
                data=data,
                partition_key=draw(st.sampled_from(["k", None])),
                sequence_number=number,
                approximate_arrival_timestamp=seconds,
            )
        )
    return sorted(records, key=lambda record: int(record.sequence_number))


def seen(batch: RecordBatch) -> list[tuple[object, ...]]:
    """All that a batch says of itself, and of its cuts, without unpacking on purpose."""
    said: list[tuple[object, ...]] = []
    for row in range(len(batch)):
        cut = batch.slice(0, row + 1)
        number = cut.last.sequence_number
        rest = batch.after(cut.last)
        times = batch.arrived_ms(number), cut.arrived_ms(number), cut.arrived_ms("9")
        said.append((bool(cut), cut.last, len(rest), *times))
        said.append((rest.arrived_ms(number), bool(rest), len(cut.halves()[0])))
    sizes = tuple(batch.slice(row, len(batch)).data_bytes() for row in range(len(batch) + 1))
    return [*said, (len(batch), bool(batch), batch.last), sizes]


@settings(max_examples=examples(40), deadline=None)
@given(pages(), st.sampled_from([None, (0, 2**127), (0, 2**128 - 1)]), st.booleans())
def test_a_batch_says_the_same_in_every_form(
    records: list[Record], hash_range: tuple[int, int] | None, deaggregate: bool
) -> None:
    def batch(*forms: str) -> RecordBatch:
        aggregates = None if deaggregate else ()
        one = batch_of(*records, hash_range=hash_range, aggregates=aggregates)
        for form in forms:
            _ = one.to_arrow() if form == "columns" else one.records
        return one

    columns = batch().to_arrow()
    expected = RecordBatch(columns, 5)  # as a test of a record processor makes it
    assert (expected.millis_behind_latest, expected.fetched_at) == (5, None)
    if not columns.num_rows:
        assert not batch()
        assert (batch().records, len(batch())) == ([], 0)
        return
    assert batch().last == expected.last
    for forms in ((), ("columns",), ("objects",), ("objects", "columns"), ("columns", "objects")):
        one = batch(*forms)
        assert seen(one) == seen(expected)
        assert one.records == expected.records
        assert one.data_bytes() == sum(len(record.data) for record in one.records)
        assert one.to_arrow().equals(columns)
        assert one.halves()[1].records == expected.halves()[1].records
        assert one.halves()[1].to_arrow().equals(expected.halves()[1].to_arrow())


class Page(list[Record]):
    """A list that can be watched."""


@pytest.mark.parametrize(
    ("forms", "is_kept"), [("", True), ("o", True), ("c", True), ("oc", False), ("co", False)]
)
def test_packed_records_are_let_go_of_when_both_forms_are_there(forms: str, is_kept: bool) -> None:
    records = Page([aggregated("200", b"0", b"1")])
    watched = weakref.ref(records)
    batch, _ = made(records)
    del records
    for form in forms:
        _ = batch.records if form == "o" else batch.to_arrow()
    gc.collect()
    assert (watched() is not None) == is_kept
    assert [record.data for record in batch.records] == [b"0", b"1"]
