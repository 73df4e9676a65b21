"""A plan hands its tasks the records that it has in hand, within a bound."""

from __future__ import annotations

from sparkinesis.source.planning.batch_end import NoRows, Records
from sparkinesis.source.planning.probing.carried import MOST_BYTES, within_bounds
from sparkinesis.source.planning.probing.end_in_shard import EndInShard
from sparkinesis.source.planning.probing.records_in_hand import (
    KEPT_BYTES,
    UNLIMITED,
    RecordsInHand,
)
from sparkinesis.stream.page import Record


def records(*sizes: int) -> list[Record]:
    return [
        Record(data=bytes(size), sequence_number=f"{number}", approximate_arrival_timestamp=1.0)
        for number, size in enumerate(sizes)
    ]


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


def test_all_records_of_a_shard_are_handed_over_or_none() -> None:
    half = MOST_BYTES // 2
    ends = {
        "empty": EndInShard(NoRows()),
        "a": EndInShard(Records("1"), kept=records(half - 1, 1)),
        "large": EndInShard(Records("9")),
        "b": EndInShard(Records("0"), kept=records(half)),
        "c": EndInShard(Records("0"), kept=records(1)),
    }
    found = within_bounds(ends)
    assert {shard: len(carried) for shard, carried in found.items()} == {"a": 2, "b": 1}
