"""Places for records: how many a receive may ask for, by records and by bytes."""

from __future__ import annotations

from sparkinesis.queue.receiving import _UNKNOWN_SIZE, Places


def test_receives_under_way_share_the_bytes_that_may_be_in_hand() -> None:
    """Each may bring ten records, and nobody knows yet how large they are."""
    places = Places(1_000, 1, 25 * _UNKNOWN_SIZE, 30, lambda: True)
    assert [places.reserve() for _ in range(3)] == [10, 10, 5]
    places.received(10, [])
    assert places.reserve() == 10
    places.received(10, [_UNKNOWN_SIZE] * 4)
    assert places.reserve() == 6
