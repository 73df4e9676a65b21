"""Where a page is cut at the end of a range: after a record, before one, or not at all."""

from __future__ import annotations

import pytest

from sparkinesis.stream.page import Record
from sparkinesis.stream.position import NONE_OF_IT, SHARD_END, AfterRecord
from sparkinesis.stream.reading.range import SMALLEST_PAGE, cut_at_end, page_limit


def page(*numbers: int) -> list[Record]:
    return [Record(data=b"", partition_key="k", sequence_number=str(n)) for n in numbers]


AFTER, BEFORE = AfterRecord("20"), AfterRecord("20", sub_sequence_number=NONE_OF_IT)


@pytest.mark.parametrize(
    ("end", "numbers", "within", "is_over", "is_found"),
    [
        (AFTER, (3, 9), 2, False, False),
        (AFTER, (9, 20), 2, True, True),
        (AFTER, (9, 20, 100), 2, True, True),
        (AFTER, (9, 100), 1, True, False),
        (AFTER, (100,), 0, True, False),
        (BEFORE, (3, 9), 2, False, False),
        (BEFORE, (9, 20), 1, True, True),
        (BEFORE, (9, 20, 100), 1, True, True),
        (BEFORE, (20,), 0, True, True),
        (BEFORE, (9, 100), 1, True, False),
        (SHARD_END, (9, 100), 2, False, False),
        (AFTER, (), 0, False, False),
    ],
)
def test_a_page_is_cut_at_the_end(
    end: AfterRecord, numbers: tuple[int, ...], within: int, *, is_over: bool, is_found: bool
) -> None:
    records = page(*numbers)
    assert cut_at_end(records, end) == (records[:within], is_over, is_found)


def test_pages_are_as_large_as_what_is_left_and_a_little_more() -> None:
    assert page_limit(10_000, None, 9_000) == 10_000
    assert page_limit(10_000, 9_000, 1_000) == 8_401
    assert page_limit(8_400, 9_000, 1_000) == 8_400
    assert page_limit(10_000, 200, 150) == SMALLEST_PAGE == 100
    assert page_limit(10_000, 5_000, 4_990) == 499, "the estimate may be wrong by a tenth"
    assert page_limit(10_000, 5_000, 9_000) == 900
