"""L8: which rows of a table are believed of a stream, and which belong to another one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

import pytest
from msgspec.structs import replace

from sparkinesis.errors import LeaseTableError
from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.row_streams import (
    RowStreams,
    require_no_others,
    require_several_streams,
    require_single_stream,
    streams_of_rows,
)
from sparkinesis.lease.table.rows import BrokenLease, TableScan
from sparkinesis.stream.address import StreamIdentifier, StreamMark
from sparkinesis.stream.position import AfterRecord
from sparkinesis.stream.shard import Shard

MADE_MS = 1_790_000_000_123
MARK = StreamMark("eu-west-1", "1", "flights", MADE_MS)
EARLIER = replace(MARK, created_ms=MADE_MS - 700)
LATER = replace(MARK, created_ms=MADE_MS + 700)
OTHERS = [
    replace(MARK, name="gates"),
    replace(MARK, region="eu-west-2"),
    replace(MARK, account="2"),
    replace(EARLIER, name="gates"),
]
SHARD = Shard("shardId-000000000000", (), False, (0, 9), "1000", "2000")
OPEN = replace(SHARD, is_open=True, ending_sequence_number=None)


def lease(mark: StreamMark | None = None, at: str = "TRIM_HORIZON", **fields: object) -> Lease:
    row = Lease(SHARD.id, SHARD.id, ExtendedSequenceNumber(at), hash_range=(0, 9), mark=mark)
    return replace(row, **fields)


def test_a_row_that_names_the_stream_is_believed_whatever_it_holds() -> None:
    rows = [lease(MARK, "7", hash_range=(0, 3), made_ms=1), lease(MARK, SHARD_END)]
    assert streams_of_rows(rows, [SHARD], MARK) == RowStreams()


def test_a_row_that_names_another_stream_is_not_believed() -> None:
    former, newer, others = lease(EARLIER, "1500"), lease(LATER), [lease(one) for one in OTHERS]
    found = streams_of_rows([former, newer, *others], [SHARD], MARK)
    assert found == RowStreams((former,), (newer,), tuple(others))


def test_a_finished_row_of_an_open_shard_is_not_believed() -> None:
    """Its shard would never be read: the row is of an earlier stream, and a KCL wrote it."""
    row = lease(at=SHARD_END)
    ((refused, why),) = streams_of_rows([row], [OPEN], MARK).contradicted
    assert (refused, why) == (row, "it is finished, and the shard is open")
    assert streams_of_rows([row, lease(EARLIER)], [OPEN], MARK).former[-1] == row
    with pytest.raises(LeaseTableError, match="it is finished, and the shard is open"):
        require_no_others(streams_of_rows([row], [OPEN], MARK), MARK, "table")


@pytest.mark.parametrize(
    "at", ["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP", SHARD_END, "1000", "2000"]
)
def test_a_row_that_names_no_stream_is_believed_if_nothing_contradicts_it(at: str) -> None:
    rows = [lease(at=at), lease(at=at, hash_range=None), lease(at=at, made_ms=MADE_MS - 120_000)]
    gone = lease(at=at, shard_id="shardId-000000000007", key="k", hash_range=(7, 8))
    assert streams_of_rows([*rows, gone], [SHARD], MARK) == RowStreams()
    assert streams_of_rows(rows, [replace(SHARD, hash_range=None)], MARK) == RowStreams()


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (lease(hash_range=(0, 8)), "the hash keys (0, 8), and the shard has (0, 9)"),
        (lease(at="999"), "999:0 lies before the shard's first sequence number, 1000"),
        (lease(at="2001"), "2001:0 lies behind the shard's last sequence number, 2000"),
        (lease(at=SHARD_END, made_ms=MADE_MS - 120_001), "before the stream was created"),
        (
            lease(at="1500", known=AfterRecord("1500", clear_until=MADE_MS - 120_001)),
            "before the stream was created",
        ),
    ],
)
def test_a_row_that_names_no_stream_is_not_believed_if_it_cannot_be_of_the_shard(
    row: Lease, why: str
) -> None:
    found = streams_of_rows([row], [SHARD], MARK)
    assert (found.former, found.newer, found.others) == ((), (), ())
    ((refused, text),) = found.contradicted
    assert refused is row
    assert why in text


def test_a_checkpoint_within_the_shard_tells_more_than_the_age_of_its_row() -> None:
    """An older version went on with the rows of a stream that was made anew."""
    old = MADE_MS - 120_001
    gone = lease(at=SHARD_END, made_ms=old, shard_id="shardId-000000000007", key="k")
    assert streams_of_rows([lease(at="1500", made_ms=old), gone], [SHARD], MARK) == RowStreams()
    unread = replace(gone, checkpoint=ExtendedSequenceNumber("TRIM_HORIZON"))
    assert streams_of_rows([unread], [SHARD], MARK).contradicted


def test_an_open_shard_has_no_last_sequence_number() -> None:
    assert streams_of_rows([lease(at="2001")], [OPEN], MARK) == RowStreams()


def test_a_row_that_names_no_stream_beside_one_of_a_former_stream_is_of_that() -> None:
    named, unnamed, fine = lease(EARLIER), lease(at="999"), lease(at="1500")
    ended = lease(at=SHARD_END, key="k")
    both = lease(at=SHARD_END, key="l", hash_range=(0, 8))
    made_anew = lease(MARK, SHARD_END)
    rows = [unnamed, fine, ended, both, made_anew, named]
    found = streams_of_rows(rows, [SHARD], MARK)
    assert found == RowStreams((named, unnamed, ended, both))


def test_the_rows_of_another_stream_are_refused_with_both_names_and_the_way_out() -> None:
    require_no_others(RowStreams((lease(EARLIER),), (lease(LATER),)), MARK, "lease table 'app'")
    found = streams_of_rows([lease(OTHERS[0])], [], MARK)
    with pytest.raises(LeaseTableError) as error:
        require_no_others(found, MARK, "lease table 'app'")
    made = datetime.fromtimestamp(MADE_MS / 1000, timezone.utc).isoformat()
    for part in (
        "The lease table 'app' has the leases of stream 'gates' of account 1 in eu-west-1",
        f"this application reads stream 'flights' of account 1 in eu-west-1 (created at {made})",
        "Nothing was written, and no lease was taken",
        "Give this application another name, or another table_name",
    ):
        assert part in str(error.value)


def test_rows_that_name_no_stream_are_refused_with_what_contradicts_them() -> None:
    undated = replace(MARK, created_ms=0)
    found = streams_of_rows([lease(at="999")], [SHARD], undated)
    with pytest.raises(LeaseTableError) as error:
        require_no_others(found, undated, "lease table 'app'")
    for part in (
        "that name no stream, as those of a Java KCL (shardId-000000000000)",
        "not of stream 'flights' of account 1 in eu-west-1, which",
        "999:0 lies before",
        "another name, or another table_name",
        "delete the table",
    ):
        assert part in str(error.value)


SINGLE, SEVERAL = lease(), lease(key="1:web:7:s", stream=StreamIdentifier("1", "web", 7))
BROKEN_SINGLE, BROKEN_SEVERAL = BrokenLease("s", "why"), BrokenLease("1:web:7:s", "why")


@pytest.mark.parametrize(
    ("scan", "fits_several", "fits_single"),
    [
        (TableScan(), True, True),
        (TableScan((SINGLE,)), False, True),
        (TableScan((), (BROKEN_SINGLE,)), False, True),
        (TableScan((SEVERAL,)), True, False),
        (TableScan((), (BROKEN_SEVERAL,)), True, False),
        # Rows of both kinds: each application has its own.
        (TableScan((SINGLE, SEVERAL)), True, True),
        (TableScan((SEVERAL,), (BROKEN_SINGLE,)), True, True),
        (TableScan((SINGLE,), (BROKEN_SEVERAL,)), False, True),
    ],
)
def test_an_application_does_not_begin_anew_beside_rows_of_the_other_kind(
    scan: TableScan, *, fits_several: bool, fits_single: bool
) -> None:
    if fits_several:
        require_several_streams(scan, "lease table t")
    else:
        with pytest.raises(LeaseTableError, match=r"single stream: .* convert-leases --to several"):
            require_several_streams(scan, "lease table t")
    if fits_single:
        require_single_stream(scan, "lease table t")
    else:
        with pytest.raises(LeaseTableError, match=r"several streams .* convert-leases --to single"):
            require_single_stream(scan, "lease table t")


def test_the_first_streams_of_a_table_of_several_are_named_in_order() -> None:
    rows = [replace(SEVERAL, stream=StreamIdentifier("1", name, 7)) for name in "gbfceda"]
    with pytest.raises(LeaseTableError, match=r"several streams \(a, b, c, d, e\)"):
        require_single_stream(TableScan(tuple(rows)), "lease table t")


@pytest.mark.parametrize("require", [require_several_streams, require_single_stream])
def test_no_worker_begins_while_a_table_is_converted(
    require: Callable[[TableScan, str], None],
) -> None:
    with pytest.raises(LeaseTableError, match=r"^The lease table t is being converted"):
        require(TableScan(is_converting=True), "lease table t")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1_000_123, 1_000_123, True),
        (1_000_123, 1_000_124, True),
        (1_000_123, 1_000_125, False),
        (1_000_000, 1_000_123, True),
        (1_001_000, 1_000_123, True),
        (1_000_000, 1_001_000, False),
        (0, 1_000_123, True),
    ],
)
def test_creation_times_are_compared_as_exactly_as_both_are_known(
    one: int, other: int, same: bool
) -> None:
    first, second = replace(MARK, created_ms=one), replace(MARK, created_ms=other)
    assert first.is_stream(second) is second.is_stream(first) is same
    assert first.is_before(second) is (not same and one < other)
    assert not replace(first, name="gates").is_stream(second)
    assert not replace(first, name="gates", created_ms=5).is_before(second)


def test_a_mark_is_read_from_its_text_and_an_arn() -> None:
    assert StreamMark.parse(str(MARK)) == MARK
    arn = "arn:aws-cn:kinesis:eu-west-1:1:stream/flights"
    assert StreamMark.of(arn, MADE_MS) == MARK
    assert StreamMark.of("flights", 5) == StreamMark("", "", "flights", 5)
    for text in ("", "a:b:c", "a:b:c:x", "a:b::1", "a:b:c:1:2", "a:b:c:" + 15 * "9"):
        with pytest.raises(ValueError, match="is not <region>"):
            StreamMark.parse(text)
