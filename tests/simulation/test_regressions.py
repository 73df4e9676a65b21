"""Simplified histories that once broke an invariant; none may break it again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation import history as h
from tests.simulation.histories import CALM, QUICK
from tests.simulation.history import (
    Behaviour,
    Crash,
    Deregister,
    Foreign,
    History,
    Lag,
    Merge,
    Pause,
    Put,
    Reset,
    Shutdown,
    Split,
    Start,
    Storm,
    Trouble,
)
from tests.simulation.several.rough import rough_several
from tests.simulation.several.subject import SEVERAL
from tests.simulation.subject import planted
from tests.simulation.ways import written
from tests.simulation.workers import WAYS, WORKERS

_EVEN: dict[str, Any] = {"preempt": 0.0, "staleness": 0.0}
"""Threads in a fixed order, and no stale reads."""


def _history(*events: tuple[float, h.Event], shards: int = 1, **more: Any) -> History:
    """The history of a worker that starts at once."""
    return History(shards=shards, events=((0.0, Start(0)), *events), **more)


KEPT = {
    # A leader moved a lease again seconds after it had moved it: the look between was behind, and
    # did not show who had had the lease.
    "a scan of the table is behind when a lease has moved": _history(
        (3.0, Storm(4, 4.0, 16)),
        (5.0, Start(1)),
        seed=6,
        shards=4,
        options={
            **QUICK,
            "failover_time": 5.0,
            "handoff_timeout": 2.0,
            "parent_poll_interval": 3.0,
            "balance": "throughput",
        },
        preempt=0.0,
        staleness=0.5,
        duration=20.0,
    ),
    # A listing older than a shard made its finished lease go before that of its parent, which then
    # stayed for as long as records are kept.
    "ListShards is behind when leases are cleaned up": _history(
        (0.0, Put(0, 8)),
        (0.0, Lag(15.0, 16.0)),
        (0.1, Split(0.0)),
        (0.2, Put(0)),
        (0.2, Split(0.0)),
        (4.8, Put(1)),
        behaviour=Behaviour(slow=0.1, slowest=15.0),
        options=QUICK,
        **_EVEN,
        duration=120.0,
    ),
    # A merged child whose other parent a listing did not know yet was read before it.
    "ListShards is behind when a shard ends by a merge": _history(
        (0.0, Lag(15.0, 30.0)),
        (0.1, Split(0.0)),
        (0.2, Put(0)),
        (0.3, Split(0.0)),
        (0.4, Merge(0.5)),
        behaviour=Behaviour(slow=1.0, slowest=5.0),
        **_EVEN,
    ),
    # No worker ever began: ListShards tells of both sides of a reshard at its instant.
    "an application begins at the instant of a reshard": History(
        shards=1,
        events=((0.0, Put(0)), (10.0, Split(0.0)), (11.0, Put(0)), (15.0, Start(0))),
        initial_position=10.0,
    ),
    # Processors of a shard that had ended, and whose children waited for the leases of another
    # parent, had no last chance to checkpoint when their worker was shut down.
    **{
        f"a worker leaves before a merged child has its lease ({seed})": _history(
            *((3.0 + key / 10, Put(key, 2)) for key in range(8)),
            (5.0, Split(0.5)),
            (5.5, Merge(0.0)),
            (10.0, Shutdown(0)),
            seed=seed,
            behaviour=Behaviour(checkpoint=0.0, slow=1.0, slowest=15.0),
            shards=2,
        )
        for seed in (1, 8)
    },
    # Each worker asked twice for the stream's summary, of which an account may have 20 a second.
    "many workers start at once": History(
        shards=4,
        events=tuple((0.0, Start(n)) for n in range(18)),
        options={"retrieval": "efo"},
    ),
    # Each shard's subscription did so, to learn whether the stream or the consumer was gone.
    "the consumer of many shards is deregistered": _history(
        (30.0, Deregister()), shards=30, options={"retrieval": "efo"}
    ),
    # The record behind a checkpoint went to the dead letters with the bad ones before it.
    **{
        f"a processor checkpoints, and fails, before the last record ({seed})": _history(
            *((3.0, Put(key)) for key in (0, 1, 0, 1)),
            seed=seed,
            behaviour=Behaviour(odd_checkpoint=1.0, poison=0),
            on_error="dead letter",
            preempt=0.0,
            staleness=0.0,
        )
        for seed in (3, 5)
    },
    # A dead-letter target that refused a record was waited for as if it had refused it at each try
    # of the batch that the record was in: half a minute for each, as a rule.
    "a dead-letter target refuses some of many records": _history(
        *((3.0, Put(0, 8)) for _ in range(20)),
        behaviour=Behaviour(fail_elsewhere=0.3, poison=0),
        on_error="dead letter",
    ),
    # A reader that had slept for longer than records are kept went on with the oldest one, and did
    # not say that others had been removed.
    "a machine is suspended for longer than records are kept": _history(
        (1.0, Put(0, 3)),
        (30.0, Pause(0, 93_600.0, True)),
        (60.0, Put(0, 2)),
        (93_600.0, Put(0, 2)),
        (93_700.0, Put(1, 2)),
        options=CALM,
        duration=93_800.0,
        patience=1600.0,
    ),
    # The finished lease of a shard that had expired was cleaned up before an audit made those of
    # the shards that were left. The application began anew: nobody told of the records that were
    # gone, and LATEST passed over those that were there.
    **{
        f"all shards between the first and the present ones expire, {position}": _history(
            (1.0, Put(0, 3)),
            (30.0, Crash(0)),
            (40.0, Split(0.0)),
            (50.0, Split(0.0)),
            (51.0, Split(0.99)),
            *((1000.0 + key, Put(key, 2)) for key in range(8)),
            *((80_000.0 + key, Put(key, 2)) for key in range(8)),
            (97_200.0, Start(0)),
            options=QUICK,
            initial_position=position,
            duration=97_300.0,
        )
        for position in ("latest", "trim_horizon")
    },
    # The same, but a shard in between was left, whose children got their leases from it.
    "some shards between the first and the present ones expire": _history(
        (1.0, Put(0, 3)),
        (30.0, Crash(0)),
        (40.0, Split(0.0)),
        (50.0, Split(0.99)),
        *((1000.0 + key, Put(key, 2)) for key in range(8)),
        (70_000.0, Split(0.0)),
        *((80_000.0 + key, Put(key, 2)) for key in range(8)),
        (97_200.0, Start(0)),
        options=QUICK,
        initial_position="trim_horizon",
        duration=97_300.0,
    ),
    # A hand deleted a lease, and its shard was merged before anybody had noticed: the other parent
    # waited for that lease for ever, which no audit missed, as the merged shard had one.
    "a lease is deleted, and its shard merged at once": _history(
        (5.0, Split(0.5)),
        (20.0, Foreign("delete", 0.75)),
        (20.02, Merge(0.25)),
        (21.0, Put(0, 2)),
        options={"idle_time": 2.0},
    ),
    # Where skip_older_than makes a reader jump to an instant, that may lie before what it has read:
    # arrival times are approximate. The records in between came once more.
    "a jump to an instant, with arrivals out of order": _history(
        *((n / 10, Put(0)) for n in range(10, 400)),
        behaviour=Behaviour(slow=0.1, slowest=8.0),
        options={"skip_older_than": 3.0, "idle_time": 2.0, "max_records": 5},
        arrival_jitter=2.0,
    ),
    # Shards came and expired while nobody read. A merge did not wait for its other parent, whose
    # own parent was not listed any more; nor did anybody read one of whose line no lease was left.
    "a parent has expired of a shard that is merged": _history(
        (10.0, Crash(0)),
        (11.0, Split(0.25)),
        (99_999.0, Start(0)),
        (100_020.0, Merge(0.4)),
        options=CALM,
        duration=100_100.0,
        patience=1600.0,
        shards=2,
    ),
    "all has expired that a merged shard came from": _history(
        (10.0, Crash(0)),
        (11.0, Split(0.4)),
        (13.0, Split(0.4)),
        *((99_920.0, Put(key)) for key in range(24)),
        (99_940.0, Start(0)),
        (99_990.0, Merge(0.6)),
        options=CALM,
        duration=100_100.0,
        patience=1600.0,
        shards=2,
    ),
    # Shards that had come too lately for ListShards to know them were taken for expired ones:
    # their leases were ended, and nobody read what was put there.
    "an operator moves the application when ListShards is behind": _history(
        (5.0, Split(0.0)), (8.0, Lag(15.0, 20.0)), (10.0, Reset("TRIM_HORIZON"))
    ),
    # Who was once not permitted to renew leases together never did so again.
    "a policy is changed, and changed back": _history(
        (10.0, Trouble("denied", 0.5, 10.0, "dynamodb")),
        shards=8,
        options={"idle_time": 20.0},
        duration=1500.0,
    ),
    # Good records were skipped, as their checkpoint was not permitted for a few seconds.
    "a policy is changed when records are to be skipped": _history(
        (20.0, Trouble("denied", 1.0, 3.0, "dynamodb")), (20.0, Put(0, 3)), on_error="skip"
    ),
    # Each shard that came from one without a record asked what the stream is like: more calls in a
    # second than all of an account may make.
    "empty shards end one after the other": _history(
        (0.0, Start(1)),
        (0.0, Put(0, 4)),
        (54.4, Split(0.0)),
        (54.6, Storm(20, 60.0)),
        (54.6, Storm(20, 60.0)),
        options={"idle_time": 2.0, "audit_interval": 20.0, "max_leases": 3},
        **_EVEN,
        duration=240.0,
    ),
    # A subscription whose last event had only records that were read before began again for ever.
    "a shard ends behind empty pages, on a server that begins early": _history(
        (5.0, Put(0, 8)),
        (10.0, Split(0.0)),
        (15.0, Put(0, 4)),
        options={"idle_time": 2.0, "audit_interval": 20.0, "retrieval": "efo"},
        empty_pages=2,
        names_children=False,
        begins_early=3,
        duration=60.0,
    ),
}


KEPT_OF_SEVERAL = {
    # A worker that did not lead kept the time since which a stream was out, although the stream had
    # returned, and deleted its leases a few seconds after it had left once more.
    "a stream leaves, returns, and leaves": rough_several(99),
    # The record processors of an epoch were given the records of the next one, as long as the
    # shards had no checkpoints. Only the elected worker noticed that a stream was gone.
    "streams are made anew after two seconds": rough_several(2),
    "a stream is never made anew": rough_several(9),
    # A stream that was gone when it was to be opened was opened by its former name later on, with
    # the shards of the stream that was made meanwhile.
    "a stream is made anew before it is opened": h.History(
        streams=(h.OneOf(2), h.OneOf()),
        events=((0.0, h.Start(0)), (0.1, h.Anew(0, 2.0, 1))),
        patience=1100.0,
        **_EVEN,
    ),
    # The same for one try to open it, which lasted a minute.
    "a stream is made anew while its shards are listed": h.History(
        streams=(h.OneOf(2), h.OneOf()),
        events=(
            (0.0, h.Start(0)),
            (0.15, h.Trouble("error", 1.0, 60.0, "kinesis", None, 0)),
            (10.0, h.Anew(0, 2.0, 1)),
        ),
        patience=1100.0,
        **_EVEN,
    ),
    # The same for a stream that was identified, and waited until another one had been asked for.
    "a stream is made anew while another one is not found": h.History(
        streams=(h.OneOf(2), h.OneOf()),
        events=(
            (0.0, h.Start(0)),
            (0.0, h.Trouble("timeout", 1.0, 5.0, "kinesis", None, 1)),
            (17.0, h.Anew(0, 10.0, 1)),
        ),
        patience=1100.0,
        **_EVEN,
    ),
    # A worker that had found no leases listed the shards only after a reshard. It began once more,
    # at a later LATEST, and the records in between were skipped.
    "the shards are listed half a minute after a look at an empty table": h.History(
        streams=(h.OneOf(1, "latest"), h.OneOf()),
        events=(
            *((0.0, h.Start(number)) for number in range(3)),
            (0.15, h.Trouble("error", 1.0, 30.0, "kinesis", None, 0)),
            (5.0, h.On(0, h.Split(0.0))),
            (10.0, h.On(0, h.Split(0.0))),
            *((15.0 + key, h.On(0, h.Put(key))) for key in range(8)),
        ),
    ),
}


KEPT_OF_SEVERAL |= {
    # A worker that was told of a stream, and could not read it at once, made the leases that were
    # missing as if the application had begun then: it skipped what was put before.
    "a lease is deleted, and who makes it anew begins in trouble": h.History(
        streams=(h.OneOf(2, "latest"), h.OneOf()),
        events=(
            (0.0, h.Start(0)),
            (10.0, h.Crash(0)),
            (11.0, h.Foreign("delete", 0.99)),
            *((15.0 + key, h.On(0, h.Put(key))) for key in range(8)),
            (30.0, h.Start(0)),
            (30.0, h.Trouble("denied", 1.0, 10.0, "kinesis", None, 0)),
        ),
        duration=60.0,
    ),
    # A leader assigned the leases of a stream that had left, for ever, to workers that did not read
    # it. So they were never deleted.
    "a stream leaves an application with a leader": h.History(
        streams=(h.OneOf(), h.OneOf(2)),
        events=((0.0, h.Start(0)), (0.0, h.Start(1)), (20.0, h.Track((0,)))),
        former=h.Former(delete_after=20.0),
        options={**QUICK, "balance": "throughput"},
        ask_every=10.0,
        patience=400.0,
        **_EVEN,
    ),
    # Where a lease of such a worker was missing, others made one at the oldest record.
    "a lease is deleted whose stream could not be read at once": h.History(
        streams=(h.OneOf(2, "latest"), h.OneOf()),
        events=(
            *((key, h.On(0, h.Put(key))) for key in range(8)),
            (10.0, h.Start(0)),
            (10.0, h.Trouble("denied", 1.0, 10.0, "kinesis", None, 0)),
            (30.0, h.Crash(0)),
            (31.0, h.Foreign("delete", 0.99)),
            (35.0, h.Start(0)),
        ),
        duration=60.0,
    ),
}


KEPT_OF_WAYS = {
    # A coroutine that returned another one, instead of awaiting it, counted as finished: with
    # concurrency, or as a function.
    f"coroutines return before their work is done ({history.way}, {history.options})": history
    for history in (
        written(_history((1.0, Put(0, 8)), behaviour=Behaviour(defers=0.5)), how)
        for how in (
            {"way": "class", "is_async": True, "concurrency": 3},
            {"way": "function", "is_async": True},
        )
    )
}
KEPT_OF_WAYS |= {}


@pytest.mark.parametrize("history", KEPT.values(), ids=KEPT)
def test_what_was_wrong_once_is_in_order(history: History) -> None:
    assert WORKERS.play(history).wrong == []


@pytest.mark.parametrize("history", KEPT_OF_WAYS.values(), ids=KEPT_OF_WAYS)
def test_what_was_wrong_once_of_a_way_to_write_one_is_in_order(history: History) -> None:
    assert WAYS.play(history).wrong == []


@pytest.mark.parametrize("history", KEPT_OF_SEVERAL.values(), ids=KEPT_OF_SEVERAL)
def test_what_was_wrong_once_of_several_streams_is_in_order(history: History) -> None:
    assert SEVERAL.play(history).wrong == []


_LEFT_OUT = planted("""
a reset leaves out closed shards that have no lease | everything_is_processed
    lease.rules.reset_plan:plan_reset
    + shards = list(shards)
    + is_open = {shard.id: shard.is_open for shard in shards}
    + moves = was(leases, shards, to, now_ms)
    + return [move for move in moves if move.create is None or is_open[move.row.shard_id]]
""")


@pytest.mark.parametrize("to", ["TRIM_HORIZON", 5.0])
def test_a_reset_that_leaves_out_a_closed_shard_is_found(to: Any) -> None:
    """An operator moves the application before its first lease."""
    events = ((0.0, Start(0)), (0.0, Put(0, 8)), (0.0, Split(0.0)), (0.2, Reset(to)))
    history = History(seed=3, shards=1, events=events, **_EVEN)
    (bug,) = _LEFT_OUT.values()
    with bug.patch():
        wrong = WORKERS.play(history).wrong
    assert any(one.startswith(f"{bug.caught_by}: k0:0 ") for one in wrong)
