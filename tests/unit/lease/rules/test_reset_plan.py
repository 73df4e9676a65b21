"""Moving an application: which leases change, to what, and in which order."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from sparkinesis.errors import InconsistentShardsError, OptionError
from sparkinesis.lease.extended_sequence_number import (
    AT_TIMESTAMP,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
)
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.lease_start import new_lease
from sparkinesis.lease.rules.reset_plan import (
    LeaseReset,
    ShardCheckpoint,
    at_checkpoint,
    plan_reset,
    require_one_stream,
    retried,
)
from sparkinesis.stream import position as pos
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.position import InitialPosition
from sparkinesis.stream.shard import MAX_HASH_KEY, Shard

NOW = 1_790_000_000_000
MIDDLE = MAX_HASH_KEY // 2

# 0 was split into 1 and 2; 1 was closed and became 3 (say by a merge with what is gone).
ROOT = Shard("0", (), False, (0, MAX_HASH_KEY), "100")
CLOSED = Shard("1", ("0",), False, (0, MIDDLE), "200")
OPEN = Shard("2", ("0",), True, (MIDDLE + 1, MAX_HASH_KEY), "201")
LAST = Shard("3", ("1",), True, (0, MIDDLE), "300")
SHARDS = [LAST, OPEN, CLOSED, ROOT]
WEB, APP = StreamIdentifier("1", "web", 7), StreamIdentifier("1", "app", 7)


def esn(text: str, sub: int = 0) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(text, sub)


def lease(shard_id: str, at: str, children: str = "") -> Lease:
    return Lease(
        shard_id, shard_id, esn(at), owner="w", counter=3, child_ids=tuple(children.split())
    )


def test_to_latest_open_shards_first() -> None:
    root, closed, opened = lease("0", SHARD_END, "1 2"), lease("1", "5"), lease("2", "TRIM_HORIZON")
    moves = plan_reset([root, closed, opened], SHARDS, pos.LATEST, NOW)
    assert moves == [
        LeaseReset("2", esn(LATEST), NOW, lease=opened, now_ms=NOW),
        LeaseReset(
            "3",
            esn(LATEST),
            NOW,
            create=msgspec.structs.replace(
                new_lease(LAST, pos.LATEST, NOW, made_ms=NOW), application_ms=NOW
            ),
            now_ms=NOW,
        ),
        LeaseReset("1", esn(SHARD_END), lease=closed, child_ids=("3",), now_ms=NOW),
    ]


def test_to_latest_a_closed_child_without_a_lease_is_finished_before_its_parent_is() -> None:
    """Else a worker would find it missing, and read it, beside its own children."""
    root = lease("0", SHARD_END)
    moves = plan_reset([root, lease("2", "5"), lease("3", "5")], SHARDS, pos.LATEST, NOW)
    assert [move.key for move in moves] == ["2", "3", "1", "0"]
    passed = msgspec.structs.replace(
        new_lease(CLOSED, pos.TRIM_HORIZON, made_ms=NOW),
        checkpoint=esn(SHARD_END),
        child_ids=("3",),
    )
    assert moves[2] == LeaseReset("1", esn(SHARD_END), create=passed, now_ms=NOW)
    assert moves[3] == LeaseReset("0", esn(SHARD_END), lease=root, child_ids=("1", "2"), now_ms=NOW)


def test_to_latest_a_closed_shard_whose_parents_have_no_leases_needs_none() -> None:
    moves = plan_reset([lease("2", "5"), lease("3", "5")], SHARDS, pos.LATEST, NOW)
    assert [move.key for move in moves] == ["2", "3"]


def test_to_an_instant() -> None:
    moves = plan_reset([], SHARDS, pos.AtTimestamp(NOW), NOW)
    assert [(move.key, move.at, move.timestamp_ms) for move in moves] == [
        (key, esn(AT_TIMESTAMP), NOW) for key in "0123"
    ]
    assert [move.create and move.create.timestamp_ms for move in moves] == [NOW] * 4
    with pytest.raises(OptionError, match="is in the future"):
        plan_reset([], SHARDS, pos.AtTimestamp(NOW + 1), NOW)


def test_the_record_that_was_found_for_an_instant_takes_its_place() -> None:
    row = lease("2", "5")
    for to in (pos.AtTimestamp(NOW), pos.LATEST):
        moves = {move.key: move for move in plan_reset([row], SHARDS, to, NOW)}
        old, new = (at_checkpoint(moves[key], esn("201")) for key in "23")
        assert (old.at, old.create, old.written_ms) == (esn("201"), None, None)
        assert new.create is not None
        assert (new.create.checkpoint, new.create.timestamp_ms) == (esn("201"), None)
        latest = to is pos.LATEST
        assert (old.is_latest, old.began_ms) == (latest, NOW if latest else None)


def test_to_latest_all_generations_without_leases_are_finished() -> None:
    """The first of them is not there for a worker to find, and the second would follow it."""
    closed = msgspec.structs.replace(LAST, is_open=False)
    open_ = Shard("4", ("3",), True, (0, MIDDLE), "400")
    moves = plan_reset([lease("0", "5")], [ROOT, CLOSED, OPEN, closed, open_], pos.LATEST, NOW)
    assert [(move.key, move.at.is_shard_end) for move in moves] == [
        ("2", False),
        ("4", False),
        ("1", True),
        ("3", True),
        ("0", True),
    ]


@pytest.mark.parametrize("to", [pos.LATEST, pos.TRIM_HORIZON, pos.AtTimestamp(1)])
def test_leases_of_shards_that_are_gone(to: InitialPosition) -> None:
    ended, unread = lease("00", SHARD_END), lease("01", "77")
    first, *others = plan_reset([unread, ended], SHARDS, to, NOW)
    assert replace(first, note="") == LeaseReset("01", esn(SHARD_END), lease=unread, now_ms=NOW)
    assert first.note == "01 is no longer listed: its unread records after 77:0 are lost."
    assert "00" not in {move.key for move in others}
    assert not any(move.note for move in others)
    several = [lease(shard_id, "77") for shard_id in ("03", "01", "02")]
    assert [move.key for move in plan_reset(several, SHARDS, to, NOW)][:3] == ["01", "02", "03"]


def test_to_a_place_in_one_shard() -> None:
    row = lease("2", "5")
    there = ShardCheckpoint("2", esn("201", 4))
    assert plan_reset([row, lease("1", "5")], SHARDS, there, NOW) == [
        LeaseReset("2", esn("201", 4), lease=row, now_ms=NOW)
    ]
    new = msgspec.structs.replace(
        new_lease(OPEN, pos.TRIM_HORIZON, made_ms=NOW), checkpoint=esn("201", 4)
    )
    assert plan_reset([], SHARDS, there, NOW) == [
        LeaseReset("2", esn("201", 4), create=new, note="2 had no lease.", now_ms=NOW)
    ]


@pytest.mark.parametrize(
    ("at", "children", "note"),
    [
        (SHARD_END, "1", "0 was finished. Its children 1 may be read at the same time."),
        (SHARD_END, "2 1", "0 was finished. Its children 1, 2 may be read at the same time."),
        (SHARD_END, "", ""),
        ("5", "1 2", ""),
    ],
)
def test_a_shard_is_read_beside_its_children_only_with_a_note(
    at: str, children: str, note: str
) -> None:
    rows = [lease("0", at), *(lease(child, "5") for child in children.split())]
    (move,) = plan_reset(rows, SHARDS, ShardCheckpoint("0", esn("7")), NOW)
    assert (move.key, move.note) == ("0", note)


@pytest.mark.parametrize(
    ("to", "message"),
    [
        (ShardCheckpoint("2", esn("LATEST")), "LATEST is not a position in 2"),
        (ShardCheckpoint("2", esn("12", -1)), "12:-1 is not a position in 2"),
        (ShardCheckpoint("2", esn("x")), "x:0 is not a position in 2"),
        (ShardCheckpoint("2", esn("\N{DEVANAGARI DIGIT ONE}")), "is not a position in 2"),
        (ShardCheckpoint("9", esn("12")), "9 is not a shard of the stream"),
    ],
)
def test_places_that_are_none(to: ShardCheckpoint, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        plan_reset([lease("2", "5")], SHARDS, to, NOW)


def test_a_list_that_cannot_be_right_moves_nothing() -> None:
    with pytest.raises(InconsistentShardsError, match="a hole"):
        plan_reset([lease("2", "5")], [OPEN, ROOT], pos.LATEST, NOW)


@pytest.mark.parametrize("to", [pos.LATEST, pos.TRIM_HORIZON, pos.AtTimestamp(1)])
@pytest.mark.parametrize("at", ["TRIM_HORIZON", SHARD_END])
def test_a_list_older_than_a_lease_moves_nothing(to: InitialPosition, at: str) -> None:
    rows = [lease("5", at), lease("3", SHARD_END, "4 5"), lease("4", at)]
    with pytest.raises(
        InconsistentShardsError, match=r"leases of 4, 5, .* newest listed shard is 3"
    ):
        plan_reset(rows, SHARDS, to, NOW)


def test_a_step_that_met_another_row_is_made_on_that() -> None:
    step = LeaseReset("2", esn(LATEST), NOW, lease=lease("2", "5"))
    now = msgspec.structs.replace(lease("2", "7"), counter=9)
    assert retried(step, now) == replace(step, lease=now)
    new = LeaseReset("2", esn(LATEST), NOW, create=new_lease(OPEN, pos.LATEST, NOW))
    assert retried(new, now) == LeaseReset("2", esn(LATEST), NOW, lease=now)
    assert retried(new, None) == new


def test_a_lease_that_was_deleted_meanwhile_is_made_anew_unless_nothing_is_left_to_read() -> None:
    known = msgspec.structs.replace(
        lease("1", "5"), parent_ids=("0",), hash_range=(0, MIDDLE), application_ms=5
    )
    cases: list[tuple[LeaseReset, InitialPosition, int]] = [
        (LeaseReset("1", esn(AT_TIMESTAMP), 7, lease=known, now_ms=NOW), pos.AtTimestamp(7), 5),
        (LeaseReset("1", esn(LATEST), 8, lease=known, now_ms=NOW), pos.LATEST, 8),
    ]
    for step, to, began_ms in cases:
        made = retried(step, None)
        assert made is not None
        assert made.lease is None
        new = new_lease(CLOSED, to, 8, made_ms=NOW)
        assert made.create == msgspec.structs.replace(new, application_ms=began_ms)
    assert retried(LeaseReset("1", esn(SHARD_END), lease=known, child_ids=("3",)), None) is None


def test_a_shard_that_ended_meanwhile_is_read_again_only_if_it_should_be() -> None:
    known, ended = lease("2", "5"), lease("2", SHARD_END, "8 9")
    assert retried(LeaseReset("2", esn(LATEST), NOW, lease=known), ended) is None
    for children in (("8",), ("8", "9")):
        step = LeaseReset("2", esn(SHARD_END), lease=known, child_ids=children)
        assert retried(step, ended) is None
    for step in (
        LeaseReset("2", esn(TRIM_HORIZON), lease=known),
        LeaseReset("2", esn("5"), lease=known),
        LeaseReset("2", esn(SHARD_END), lease=known, child_ids=("7",)),
        LeaseReset("2", esn(LATEST), NOW, lease=lease("2", SHARD_END)),
    ):
        assert retried(step, ended) == replace(step, lease=ended)


def test_a_table_of_another_stream_or_of_several() -> None:
    other = msgspec.structs.replace(lease("2", "5"), hash_range=(0, 7))
    with pytest.raises(OptionError, match="The lease 2 is not of this stream"):
        plan_reset([other], SHARDS, pos.LATEST, NOW)
    several = lease("2", "5").in_stream(WEB)
    with pytest.raises(OptionError, match=f"{WEB}:2 is not one of the application's only stream"):
        plan_reset([several], SHARDS, pos.LATEST, NOW)
    for stranger in (lease("2", "5"), lease("2", "5").in_stream(APP)):
        with pytest.raises(OptionError, match=f"{stranger.key} is not one of {WEB}"):
            plan_reset([stranger], SHARDS, pos.LATEST, NOW, WEB)


def test_the_leases_of_one_of_several_streams() -> None:
    """New and old rows have the stream's keys; shards and parents keep their own ids."""
    closed = lease("1", SHARD_END, "3").in_stream(WEB)
    moves = plan_reset([closed], SHARDS, pos.TRIM_HORIZON, NOW, WEB)
    assert [move.key for move in moves] == [f"{WEB}:{shard}" for shard in "0123"]
    assert [(move.row.shard_id, move.row.stream) for move in moves] == [(s, WEB) for s in "0123"]
    assert moves[1].lease == closed
    assert moves[2].create == new_lease(OPEN, pos.TRIM_HORIZON, made_ms=NOW).in_stream(WEB)
    assert moves[2].create.parent_ids == ("0",)
    (move,) = plan_reset([], SHARDS, ShardCheckpoint("2", esn("201", 4)), NOW, WEB)
    assert move.key == f"{WEB}:2"
    made = retried(LeaseReset(closed.key, esn(TRIM_HORIZON), lease=closed), None)
    assert made is not None
    assert made.create is not None
    assert (made.create.key, made.create.stream) == (f"{WEB}:1", WEB)


def test_a_place_in_one_shard_needs_one_stream() -> None:
    there = ShardCheckpoint("2", esn("201", 4))
    require_one_stream(there, 1)
    require_one_stream(pos.LATEST, 3)
    with pytest.raises(OptionError, match=r"2=201:4 is a position in one stream.*2: name"):
        require_one_stream(there, 2)
