"""Records in hand keep their data while they are small."""

from __future__ import annotations

from sparkinesis.source.planning.probing.records_in_hand import (
    KEPT_BYTES,
    UNLIMITED,
    RecordsInHand,
)
from sparkinesis.stream.page import Record
from tests.planners import records


def kept(hand: RecordsInHand) -> list[Record] | None:
    return hand.records


def test_records_in_hand_are_kept_while_they_are_small() -> None:
    hand = RecordsInHand()
    small = records(KEPT_BYTES - 2, 1, 1)
    hand.extend(small[:2], UNLIMITED)
    hand.extend(small[2:], UNLIMITED)
    assert kept(hand) == small
    assert hand.after(1).records == small[1:]
    hand.extend(records(1), UNLIMITED)
    assert kept(hand) is None
    hand.extend(records(0), UNLIMITED)
    assert kept(hand) is None, "the first ones are gone"
    assert hand.after(4).records is None
    assert hand.after(5).records == [], "the records that follow are the first ones in hand"
