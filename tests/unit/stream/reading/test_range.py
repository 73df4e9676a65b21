"""Where a page is cut at the end of a range: after a record, before one, or not at all."""

from __future__ import annotations

import pytest

from sparkinesis.stream.page import Record
from sparkinesis.stream.position import NONE_OF_IT, SHARD_END, AfterRecord
from sparkinesis.stream.reading.range import cut_at_end


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
