"""Which shards are stopped, and which of them somebody has restarted, by the lease table."""

from __future__ import annotations

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.moving.stopped_shards import still_stopped, to_restart


def row(
    shard: str = "s", *stopped_by: str, counter: int = 7, at: str = "5", key: str = ""
) -> Lease:
    return Lease(
        key or shard, shard, ExtendedSequenceNumber(at), counter=counter, stopped_by=stopped_by
    )


@pytest.mark.parametrize(
    ("since", "seen", "left"),
    [
        (None, row("s", "me"), {"s": 7}),
        (7, row("s", "me", "other", counter=9), {"s": 7}),
        (7, row("s", counter=7), {}),
        (7, row("s", "other", counter=9), {}),
        (7, row("s", counter=6), {"s": 7}),  # a late scan: from before the stop
        (None, row("s"), {"s": None}),  # the note was not written, or is not seen yet
        (7, row("another"), {}),  # the lease was deleted: who makes it anew wants it read
        (None, row("another"), {"s": None}),
    ],
)
def test_a_shard_is_restarted_once_the_workers_note_is_gone(
    since: int | None, seen: Lease, left: dict[str, int | None]
) -> None:
    assert still_stopped({"s": since}, [seen], "me") == left


STOPPED = row("a", "me")
ELSEWHERE = row("b", "me", "other", key="1:web:9:b")
ENDED = row("c", "me", at=SHARD_END)
FINE = row("d")
ROWS = [STOPPED, ELSEWHERE, ENDED, FINE]


def test_all_that_are_stopped_are_restarted_or_those_that_are_named() -> None:
    assert to_restart(ROWS, [], "table") == [STOPPED, ELSEWHERE]
    assert to_restart(ROWS, ["b"], "table") == [ELSEWHERE]
    assert to_restart(ROWS, ["1:web:9:b", "a", "a"], "table") == [ELSEWHERE, STOPPED]


@pytest.mark.parametrize(
    ("shards", "rows", "text"),
    [
        (["d"], ROWS, "'d' is not stopped, by the table. Stopped are: a, 1:web:9:b"),
        (["a", "c"], ROWS, "'c' is not stopped"),
        (["x"], ROWS, "'x' has no lease"),
        ([], [ENDED, FINE], "No shard is stopped, by the table"),
        (["d"], [FINE], "No shard is stopped"),
    ],
)
def test_what_is_not_stopped_is_not_restarted(
    shards: list[str], rows: list[Lease], text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        to_restart(rows, shards, "table")
