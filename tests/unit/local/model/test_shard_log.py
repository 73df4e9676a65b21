"""Sequence numbers have the service's shape, and their order is the order of records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.local import LocalKinesis, ManualClock
from sparkinesis.local.model.shard_log import SequenceNumber, parse_sequence_number
from tests.unit.local.calls import SHARD_0, SHARD_1, SHARD_2, Stream, sequence_range

fields = st.builds(
    SequenceNumber,
    shard_created=st.integers(0, 2**36 - 1),
    shard_index=st.integers(0, 2**31 - 1),
    counter=st.integers(0, 2**63 - 1),
    second=st.integers(0, 2**36 - 1),
)


@given(fields)
def test_186_bits_in_56_digits_with_the_shard_index_where_the_kcl_looks(n: SequenceNumber) -> None:
    number = int(n)
    assert number.bit_length() == 186
    assert len(str(n)) == 56
    assert (number >> 4) & 0xFFFF_FFFF == n.shard_index
    assert parse_sequence_number(str(n)) == n


def test_known_number_of_the_kinesalite_layout() -> None:
    # '2' created(9) nibble counter(16) '00' second(9) index(8) '2', all hex
    text = "2" + "06b49d200" + "3" + "0000000000000007" + "00" + "06b49d2ff" + "00000013" + "2"
    number = parse_sequence_number(str(int(text, 16)))
    assert number == SequenceNumber(0x06B49D200, 0x13, 7, 0x06B49D2FF)


def test_what_is_no_sequence_number_does_not_parse() -> None:
    good = int(SequenceNumber(1_800_000_000, 3, 5, 1_800_000_000))
    assert parse_sequence_number(str(good)) is not None
    for bad in ("", "x", "-1", "0", "12345", str(good + 1), str(good >> 1), str(good | 1 << 184)):
        assert parse_sequence_number(bad) is None


def test_numbers_grow_within_a_shard_even_if_the_clock_stands_still_or_runs(
    stream: Stream, clock: ManualClock
) -> None:
    found = []
    for step in (0, 0, 1, 999, 5000, 0):
        clock.advance(step)
        found.append(int(stream.put("x")))
    assert found == sorted(set(found))


def test_every_record_lies_within_the_range_of_its_shard(stream: Stream) -> None:
    first = int(stream.put("a"))
    last = int(stream.put("b"))
    stream.split()
    start, end = sequence_range(stream.shards()[0])
    assert end is not None
    assert start < first < last < end


def test_records_of_a_child_are_greater_than_those_of_its_parents_within_one_millisecond(
    kinesis: LocalKinesis,
) -> None:
    stream = Stream(kinesis, shards=2)
    before = [int(stream.put("p", ExplicitHashKey=str(key))) for key in (0, 2**127)]
    stream.merge(SHARD_0, SHARD_1)
    merged = int(stream.put("c"))
    stream.split(SHARD_2)
    after = [int(stream.put("g", ExplicitHashKey=str(key))) for key in (0, 2**127)]
    assert max(before) < merged < min(after)


def test_a_stream_made_anew_does_not_repeat_numbers(kinesis: LocalKinesis) -> None:
    old = Stream(kinesis, shards=1).put("x")
    kinesis.call("DeleteStream", StreamName="s")
    assert int(Stream(kinesis, shards=1).put("x")) > int(old)
