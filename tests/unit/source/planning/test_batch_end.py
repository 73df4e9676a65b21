"""The planner's decision: parents before children, no gap, nothing read twice (P2, P3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.source.offsets import ANY_SHARD, Positions, ranges
from sparkinesis.source.planning.batch_end import (
    Finding,
    Finished,
    NoRows,
    Records,
    is_worth_storing,
    known_until,
    missing,
    walk,
    without_missing,
)
from sparkinesis.stream.position import (
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
)
from sparkinesis.stream.shard import Lineage, Shard
from tests.planners import plan, probed, to_probe

SIX_HOURS = 21_600_000
SPLIT = Lineage.of([Shard("p", (), False), Shard("c1", ("p",)), Shard("c2", ("p",))])


def test_silence_moves_only_what_is_known_about_the_past() -> None:
    lineage = Lineage.of([Shard("a"), Shard("b"), Shard("c")])
    start: Positions = {"a": AfterRecord("7", 100), "b": AtTimestamp(100), "c": TRIM_HORIZON}
    planned = plan(start, lineage, dict.fromkeys(start, NoRows(200)))
    assert planned.end == {
        "a": AfterRecord("7", 200),
        "b": AtTimestamp(200),
        "c": AtTimestamp(200),
    }
    assert not planned.has_rows
    assert ranges(start, planned.end) == []


def test_what_is_known_about_the_past_never_moves_backwards() -> None:
    start: Positions = {"a": AfterRecord("7", 300), "b": AtTimestamp(300)}
    planned = plan(start, Lineage.of([Shard("a"), Shard("b")]), dict.fromkeys(start, NoRows(200)))
    assert planned.end == start


def test_children_begin_in_the_same_batch_when_the_parent_has_nothing_left() -> None:
    findings: dict[str, Finding] = {"p": Finished(), "c1": Records("11"), "c2": NoRows(5)}
    planned = plan({"p": AfterRecord("7")}, SPLIT, findings)
    assert planned.end == {"c1": AfterRecord("11"), "c2": AtTimestamp(5)}
    assert planned.childless == ()
    assert [r.shard_id for r in ranges({"p": AfterRecord("7")}, planned.end)] == ["c1"]


def test_an_end_holds_what_tells_a_loss_later() -> None:
    """The first record of the batch is kept only if the start names none."""
    found = {shard: Records("9", 5, 6, "8") for shard in "ab"}
    lineage = Lineage.of([Shard("a"), Shard("b")])
    start: Positions = {"a": TRIM_HORIZON, "b": AfterRecord("7", 3, None, 4, "1")}
    planned = plan(start, lineage, found)
    assert {shard: str(at) for shard, at in planned.end.items()} == {"a": "9@5~6^8", "b": "9@5~6"}
    silent = plan(planned.end, lineage, {"a": NoRows(7), "b": NoRows()})
    assert {shard: str(at) for shard, at in silent.end.items()} == {"a": "9@7~6", "b": "9@5~6"}


def test_a_batch_may_end_before_a_record() -> None:
    planned = plan(
        {"a": AfterRecord("7")}, Lineage.of([Shard("a")]), {"a": Records("9", 5, is_before=True)}
    )
    assert planned.has_rows
    assert str(planned.end["a"]) == "9:-1@5"


def test_a_parent_that_is_not_listed_any_more_does_not_block_its_child() -> None:
    lineage = Lineage.of([Shard("p2", (), False), Shard("c", ("p1", "p2"))])
    planned = plan({"p2": SHARD_END}, lineage, {"c": NoRows()})
    assert planned.end == {"c": TRIM_HORIZON}


def test_a_finished_shard_stays_until_its_children_are_known() -> None:
    lineage = Lineage.of([Shard("p", (), False)])
    planned = plan({"p": AfterRecord("7")}, lineage, {"p": Finished()})
    assert planned.end == {"p": SHARD_END}
    assert planned.childless == ("p",)
    ids = [f"p{n}" for n in range(8)]
    several = Lineage.of([Shard(shard, (), False) for shard in ids])
    findings: dict[str, Finding] = dict.fromkeys(ids, Finished())
    assert plan({ANY_SHARD: TRIM_HORIZON}, several, findings).childless == tuple(ids)


def test_a_parent_of_a_merge_waits_at_its_end_for_the_other_one() -> None:
    lineage = Lineage.of([Shard("p1", (), False), Shard("p2", (), False), Shard("c", ("p1", "p2"))])
    start: Positions = {"p1": AfterRecord("7"), "p2": AfterRecord("8")}
    planned = plan(start, lineage, {"p1": Finished(), "p2": Records("9")})
    assert planned.end == {"p1": SHARD_END, "p2": AfterRecord("9")}
    planned = plan(planned.end, lineage, {"p2": Finished(), "c": Records("11")})
    assert planned.end == {"c": AfterRecord("11")}


def test_what_lies_between_a_finished_shard_and_its_descendants_is_not_read_again() -> None:
    lineage = Lineage.of([Shard("p", (), False), Shard("c", ("p",), False), Shard("d", ("c",))])
    walked = walk({"p": SHARD_END, "d": AfterRecord("7")}, lineage, ())
    assert walked.reached == ("d", "p")


def test_shards_are_taken_up_in_one_order() -> None:
    ids = [f"s{n}" for n in range(8)]
    lineage = Lineage.of([Shard(shard) for shard in ids])
    assert walk(dict.fromkeys(reversed(ids), TRIM_HORIZON), lineage, ()).reached == tuple(ids)


def test_a_child_that_the_start_lists_already_is_reached_once() -> None:
    start: Positions = {"p": SHARD_END, "c1": AfterRecord("7")}
    walked = walk(start, SPLIT, ())
    assert walked.reached == ("c1", "p", "c2")
    assert (walked.finished, walked.past) == ({"p"}, {"p", "c1", "c2"})


def test_when_an_offset_without_rows_is_stored() -> None:
    new: Positions = {ANY_SHARD: TRIM_HORIZON}
    assert is_worth_storing(new, {"a": AtTimestamp(5), "b": AfterRecord("7")})
    assert not is_worth_storing(new, {"a": AtTimestamp(5), "b": TRIM_HORIZON})
    assert not is_worth_storing(new, {})
    old: Positions = {"a": AfterRecord("7", 100), "b": AtTimestamp(90), "c": SHARD_END}
    assert known_until(old) == 90
    assert not is_worth_storing(old, {**old, "b": AtTimestamp(90 + SIX_HOURS)}), "a is as old"
    for later, stored in ((0, False), (1, True)):
        until = 90 + SIX_HOURS + later
        end: Positions = {"a": AfterRecord("7", until), "b": AtTimestamp(until + 1)}
        assert is_worth_storing(old, end) == stored
    assert known_until({"a": AfterRecord("7"), "b": AtTimestamp(9)}) == 0
    assert known_until({"a": TRIM_HORIZON}) is None
    assert not is_worth_storing({"a": TRIM_HORIZON}, end)
    assert not is_worth_storing(old, {"a": SHARD_END})


def test_a_generation_that_ended_empty_is_passed_in_one_plan() -> None:
    lineage = Lineage.of(
        [Shard("a", (), False), Shard("b", ("a",), False), Shard("c", ("b",)), Shard("d", ("b",))]
    )
    findings: dict[str, Finding] = {"a": Finished(), "b": Finished(), "c": NoRows(), "d": NoRows()}
    assert plan({"a": SHARD_END}, lineage, findings).end == {"c": TRIM_HORIZON, "d": TRIM_HORIZON}


def test_the_initial_offset_begins_with_the_oldest_shards_and_its_own_position() -> None:
    start: Positions = {ANY_SHARD: AtTimestamp(9)}
    assert to_probe(start, SPLIT, {}) == {"p": AtTimestamp(9)}
    after = {"c1": AtTimestamp(9), "c2": AtTimestamp(9)}
    assert to_probe(start, SPLIT, {"p": Finished()}) == after


def test_a_shard_that_the_service_forgot_is_missing_unless_it_was_finished() -> None:
    lineage = Lineage.of([Shard("x")])
    start: Positions = {
        ANY_SHARD: TRIM_HORIZON,
        "gone": AfterRecord("7"),
        "also": AtTimestamp(8),
        "done": SHARD_END,
        "x": TRIM_HORIZON,
    }
    assert missing(start, lineage) == ("also", "gone")


def test_going_on_after_a_loss_takes_up_the_oldest_unrelated_shards() -> None:
    lineage = Lineage.of([Shard("y", ("gone",), False), Shard("z", ("y",)), Shard("x")])
    start: Positions = {"gone": AfterRecord("7"), "x": AfterRecord("8")}
    assert without_missing(start, lineage) == {"x": AfterRecord("8"), "y": TRIM_HORIZON}


def test_no_shard_is_read_anew_before_or_behind_one_that_is_listed() -> None:
    chain = [Shard("a", (), False), Shard("b", ("a",), False), Shard("c", ("b",))]
    others = [Shard(f"s{n}") for n in range(8)]
    whole = without_missing({"b": AfterRecord("8")}, Lineage.of([*chain, *reversed(others)]))
    assert list(whole.items()) == [
        ("b", AfterRecord("8")),
        *((shard.id, TRIM_HORIZON) for shard in others),
    ]


# A history: every shard holds a number of records and may be closed by a split or a merge.


@st.composite
def histories(draw: st.DrawFn) -> tuple[Lineage, dict[str, int]]:
    count = draw(st.integers(1, 4))
    open_ids = [f"s{i:03}" for i in range(count)]
    shards = {shard_id: Shard(shard_id) for shard_id in open_ids}
    for _ in range(draw(st.integers(0, 8))):
        index = draw(st.integers(0, len(open_ids) - 1))
        if draw(st.booleans()) or index + 1 == len(open_ids):
            parents: tuple[str, ...] = (open_ids[index],)
            children = 2
        else:
            parents = (open_ids[index], open_ids[index + 1])
            children = 1
        ids = [f"s{len(shards) + i:03}" for i in range(children)]
        for parent in parents:
            shards[parent] = Shard(parent, shards[parent].parents, False)
        shards.update({shard_id: Shard(shard_id, parents) for shard_id in ids})
        open_ids[index : index + len(parents)] = ids
    return Lineage(shards), {s: draw(st.integers(0, 3)) for s in shards}


def probe_of(shard: Shard, done: int, held: int, take: int) -> Finding:
    """The finding in a shard that holds so many records, of which some are done."""
    left = held - done
    if left == 0:
        return NoRows() if shard.is_open else Finished()
    return Records(str(done + min(take, left)))


@given(histories(), st.data())
def test_p2_p3_batches_deliver_every_record_once_and_parents_first(
    history: tuple[Lineage, dict[str, int]], data: st.DataObject
) -> None:
    lineage, held = history
    start: Positions = {ANY_SHARD: TRIM_HORIZON}
    done = dict.fromkeys(held, 0)
    batch_of: dict[tuple[str, int], int] = {}
    for batch in range(100):

        def probe(shard: str, _: Position) -> Finding:
            take = data.draw(st.integers(1, 3))
            return probe_of(lineage.shards[shard], done[shard], held[shard], take)

        planned = plan(start, lineage, probed(start, lineage, probe))
        if not planned.has_rows:
            break
        for wanted in ranges(start, planned.end):
            end = held[wanted.shard_id]
            if isinstance(wanted.end, AfterRecord):
                end = int(wanted.end.sequence_number)
            for number in range(done[wanted.shard_id], end):
                assert (wanted.shard_id, number) not in batch_of
                batch_of[wanted.shard_id, number] = batch
            done[wanted.shard_id] = end
        start = planned.end
    assert done == held
    for (shard_id, _), batch in batch_of.items():
        for parent in lineage.ancestors((shard_id,)):
            assert all(batch_of[parent, other] < batch for other in range(held[parent]))
