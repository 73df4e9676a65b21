"""Simplified histories that once broke an invariant; none may break it again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from sparkinesis.lease.moving import application_reset
from sparkinesis.lease.rules.reset import LeaseReset, plan_reset
from sparkinesis.stream.shard import Shard
from sparkinesis.worker.options import FanOutOptions
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
from tests.simulation.workers import WORKERS

_EVEN: dict[str, Any] = {"preempt": 0.0, "staleness": 0.0}
"""Threads in a fixed order, and no stale reads."""
_BEFORE_ITS_FIRST_LEASE = History(
    seed=3,
    shards=1,
    events=((0.0, Start(0)), (0.0, Put(0, 8)), (0.0, Split(0.0)), (0.2, Reset("LATEST"))),
    **_EVEN,
)

KEPT = {
    # A listing older than a shard made its finished lease go before that of its parent, which then
    # stayed for as long as records are kept.
    "ListShards is behind when leases are cleaned up": History(
        shards=1,
        events=(
            (0.0, Start(0)),
            (0.0, Put(0, 8)),
            (0.0, Lag(15.0, 16.0)),
            (0.1, Split(0.0)),
            (0.2, Put(0)),
            (0.2, Split(0.0)),
            (4.8, Put(1)),
        ),
        behaviour=Behaviour(slow=0.1, slowest=15.0),
        options=QUICK,
        **_EVEN,
        duration=120.0,
    ),
    # A merged child whose other parent a listing did not know yet was read before it.
    "ListShards is behind when a shard ends by a merge": History(
        shards=1,
        events=(
            (0.0, Start(0)),
            (0.0, Lag(15.0, 30.0)),
            (0.1, Split(0.0)),
            (0.2, Put(0)),
            (0.3, Split(0.0)),
            (0.4, Merge(0.5)),
        ),
        behaviour=Behaviour(slow=1.0, slowest=5.0),
        **_EVEN,
    ),
    # The simulation's own rule was wrong: the time for the shutdown of a worker that failed was up
    # while another processor hung.
    "a worker fails while another shard's processor hangs": History(
        seed=1273,
        shards=3,
        events=(
            (0.0, Start(0)),
            (0.0, Start(1)),
            (0.0, Start(2)),
            (0.0, Put(0)),
            (1.0, Merge(0.0)),
            (1.1, Put(0)),
            (1.1, Put(0, 6, 3)),
            (3.6, Pause(0, 30.0)),
            (5.4, Put(0, 3, 3, 0.0)),
            (22.2, Shutdown(2)),
            *((25.2, Put(1)) for _ in range(2)),
            *((25.7, Put(0, count)) for count in (1, 1, 2)),
            (28.3, Put(0)),
            (34.3, Put(0)),
        ),
        behaviour=Behaviour(checkpoint=0.0, fail=0.1, slowest=2.0, hang=0.02, defers=0.02),
        options={**QUICK, "max_records": 2, "hash_range_filter": True},
        **_EVEN,
        names_children=False,
        table_server="dynalite",
        memory=4000,
        duration=60.0,
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
        f"a worker leaves before a merged child has its lease ({seed})": History(
            seed=seed,
            events=(
                (0.0, Start(0)),
                *((3.0 + key / 10, Put(key, 2)) for key in range(8)),
                (5.0, Split(0.5)),
                (5.5, Merge(0.0)),
                (10.0, Shutdown(0)),
            ),
            behaviour=Behaviour(checkpoint=0.0, slow=1.0, slowest=15.0),
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
    "the consumer of many shards is deregistered": History(
        shards=30,
        events=((0.0, Start(0)), (30.0, Deregister())),
        options={"retrieval": "efo"},
    ),
    # The record behind a checkpoint went to the dead letters with the bad ones before it.
    **{
        f"a processor checkpoints, and fails, before the last record ({seed})": History(
            seed=seed,
            shards=1,
            events=((0.0, Start(0)), *((3.0, Put(key)) for key in (0, 1, 0, 1))),
            behaviour=Behaviour(odd_checkpoint=1.0, poison=0),
            on_error="dead letter",
            preempt=0.0,
            staleness=0.0,
        )
        for seed in (3, 5)
    },
    # A dead-letter target that refused a record was waited for as if it had refused it at each try
    # of the batch that the record was in: half a minute for each, as a rule.
    "a dead-letter target refuses some of many records": History(
        shards=1,
        events=((0.0, Start(0)), *((3.0, Put(0, 8)) for _ in range(20))),
        behaviour=Behaviour(fail_elsewhere=0.3, poison=0),
        on_error="dead letter",
    ),
    # Not the product's: an invariant took the subscription that it ended for one in order.
    "a processor moves its shard, which is subscribed to": History(
        seed=3,
        shards=1,
        events=((0.0, Start(0)), *((5.0 + n, Put(0)) for n in range(0, 50, 3))),
        behaviour=Behaviour(reset=0.2),
        options={"retrieval": "efo"},
    ),
    # Nor this: workers that left at once each found themselves the last.
    "many workers leave at once": History(
        events=(
            *((0.0, Start(n)) for n in range(12)),
            *((40.0, Shutdown(n)) for n in range(12)),
        ),
        options={"retrieval": "efo", "fan_out": FanOutOptions(deregister=True)},
    ),
    # Nor these. A processor whose initialize was tried again, after an operator had moved all
    # shards, was taken to begin before the parent was finished. One whose lease had run out was to
    # be asked before its release, as a checkpoint had landed after all.
    "an operator moves all shards between two tries of initialize": History(
        seed=2,
        shards=1,
        events=(
            (0.0, Start(0)),
            (0.0, Start(1)),
            (5.0, Split(0.5)),
            *((at, Reset("TRIM_HORIZON")) for at in (6.0, 8.0, 10.0)),
        ),
        behaviour=Behaviour(fail_elsewhere=0.3),
    ),
    "a checkpoint lands when the lease has run out": History(
        seed=27,
        shards=1,
        events=(
            (0.0, Start(0)),
            *((half / 2, Put(0)) for half in range(80)),
            (20.0, Trouble("error", 1.0, 10.85, "dynamodb")),
        ),
    ),
    # An operator, who has no worker id, was taken for the owner of what nobody owns.
    "an operator moves finished shards, and the last worker deregisters": History(
        seed=2,
        shards=1,
        events=(
            (0.0, Start(0)),
            (0.0, Put(0)),
            (5.0, Split(0.5)),
            (5.1, Reset("TRIM_HORIZON")),
            (6.0, Reset("LATEST")),
        ),
        options={"retrieval": "efo", "fan_out": FanOutOptions(deregister=True)},
    ),
    # Somebody deregistered a consumer that was gone, but for the next call to the service.
    "a consumer is deregistered twice while nobody calls the service": History(
        events=((0.0, Start(0)), (20.0, Crash(0)), (30.0, Deregister()), (50.0, Deregister())),
        options={"retrieval": "efo"},
        consumer_delay=3.0,
    ),
    # A reader that had slept for longer than records are kept went on with the oldest one, and did
    # not say that others had been removed.
    "a machine is suspended for longer than records are kept": History(
        shards=1,
        events=(
            (0.0, Start(0)),
            (1.0, Put(0, 3)),
            (30.0, Pause(0, 93_600.0, True)),
            (60.0, Put(0, 2)),
            (93_600.0, Put(0, 2)),
            (93_700.0, Put(1, 2)),
        ),
        options=CALM,
        duration=93_800.0,
        patience=1600.0,
    ),
    # The finished lease of a shard that had expired was cleaned up before an audit made those of
    # the shards that were left. The application began anew: nobody told of the records that were
    # gone, and LATEST passed over those that were there.
    **{
        f"all shards between the first and the present ones expire, {position}": History(
            shards=1,
            events=(
                (0.0, Start(0)),
                (1.0, Put(0, 3)),
                (30.0, Crash(0)),
                (40.0, Split(0.0)),
                (50.0, Split(0.0)),
                (51.0, Split(0.99)),
                *((1000.0 + key, Put(key, 2)) for key in range(8)),
                *((80_000.0 + key, Put(key, 2)) for key in range(8)),
                (97_200.0, Start(0)),
            ),
            options=QUICK,
            initial_position=position,
            duration=97_300.0,
        )
        for position in ("latest", "trim_horizon")
    },
    # The same, but a shard in between was left, whose children got their leases from it.
    "some shards between the first and the present ones expire": History(
        shards=1,
        events=(
            (0.0, Start(0)),
            (1.0, Put(0, 3)),
            (30.0, Crash(0)),
            (40.0, Split(0.0)),
            (50.0, Split(0.99)),
            *((1000.0 + key, Put(key, 2)) for key in range(8)),
            (70_000.0, Split(0.0)),
            *((80_000.0 + key, Put(key, 2)) for key in range(8)),
            (97_200.0, Start(0)),
        ),
        options=QUICK,
        initial_position="trim_horizon",
        duration=97_300.0,
    ),
    # A hand deleted a lease, and its shard was merged before anybody had noticed: the other parent
    # waited for that lease for ever, which no audit missed, as the merged shard had one.
    "a lease is deleted, and its shard merged at once": History(
        shards=1,
        events=(
            (0.0, Start(0)),
            (5.0, Split(0.5)),
            (20.0, Foreign("delete", 0.75)),
            (20.02, Merge(0.25)),
            (21.0, Put(0, 2)),
        ),
        options={"idle_time": 2.0},
    ),
    # Where skip_older_than makes a reader jump to an instant, that may lie before what it has read:
    # arrival times are approximate. The records in between came once more.
    "a jump to an instant, with arrivals out of order": History(
        shards=1,
        events=((0.0, Start(0)), *((n / 10, Put(0)) for n in range(10, 400))),
        behaviour=Behaviour(slow=0.1, slowest=8.0),
        options={"skip_older_than": 3.0, "idle_time": 2.0, "max_records": 5},
        arrival_jitter=2.0,
    ),
    # Shards came and expired while nobody read. A merge did not wait for its other parent, whose
    # own parent was not listed any more; nor did anybody read one of whose line no lease was left.
    "a parent has expired of a shard that is merged": History(
        events=(
            (0.0, Start(0)),
            (10.0, Crash(0)),
            (11.0, Split(0.25)),
            (99_999.0, Start(0)),
            (100_020.0, Merge(0.4)),
        ),
        options=CALM,
        duration=100_100.0,
        patience=1600.0,
    ),
    "all has expired that a merged shard came from": History(
        events=(
            (0.0, Start(0)),
            (10.0, Crash(0)),
            (11.0, Split(0.4)),
            (13.0, Split(0.4)),
            *((99_920.0, Put(key)) for key in range(24)),
            (99_940.0, Start(0)),
            (99_990.0, Merge(0.6)),
        ),
        options=CALM,
        duration=100_100.0,
        patience=1600.0,
    ),
    # Two that were thought wrong, and are right. What a hand's deletion has cost is not owed for
    # an operator's earlier move; and what was skipped lies before a checkpoint without a place.
    "a lease is deleted of a shard that an operator had moved": History(
        events=(
            (0.0, Start(0)),
            (3.0, Reset(2.0)),
            (20.0, Foreign("delete", 0.75)),
            *((30.0, Put(key)) for key in range(4)),
            (40.0, Merge(0.25)),
        ),
    ),
    "all that was given is skipped until the shutdown": History(
        seed=1,
        shards=1,
        events=((0.0, Start(0)), (2.0, Put(0, 3)), (20.0, Shutdown(0))),
        behaviour=Behaviour(poison=0, checkpoint=0.0, fail_elsewhere=0.5),
        on_error="skip",
    ),
    # Shards that had come too lately for ListShards to know them were taken for expired ones:
    # their leases were ended, and nobody read what was put there.
    "an operator moves the application when ListShards is behind": History(
        shards=1,
        events=(
            (0.0, Start(0)),
            (5.0, Split(0.0)),
            (8.0, Lag(15.0, 20.0)),
            (10.0, Reset("TRIM_HORIZON")),
        ),
    ),
    # Not the product's: an operator's LATEST finishes a closed shard, though it has no lease yet.
    "an operator moves an application to LATEST before its first lease": _BEFORE_ITS_FIRST_LEASE,
    # Who was once not permitted to renew leases together never did so again.
    "a policy is changed, and changed back": History(
        shards=8,
        events=((0.0, Start(0)), (10.0, Trouble("denied", 0.5, 10.0, "dynamodb"))),
        options={"idle_time": 20.0},
        duration=1500.0,
    ),
    # Records that were put when all faults had ended were waited for in vain: a lease that a hand
    # had deleted was made anew behind them, at LATEST.
    "a hand deletes a lease shortly before faults end": History(
        events=((0.0, Start(0)), (55.0, Foreign("delete", 0.0))),
        options={"audit_interval": 60.0},
        initial_position="latest",
    ),
    # Shards came while nobody was there, from one that expired, and were merged before the audit:
    # records were said to be owed that it passes over, at LATEST, where such a shard is still open.
    "all has expired that a merged shard came from, at LATEST": History(
        shards=1,
        events=(
            (0.0, Start(0)),
            (10.0, Crash(0)),
            (11.0, Split(0.0)),
            (12.0, Split(0.0)),
            (90_000.0, Start(0)),
            *((90_010.0, Put(key)) for key in range(8)),
            (90_020.0, Merge(0.0)),
        ),
        options={"audit_interval": 20.0},
        initial_position="latest",
        duration=90_100.0,
    ),
    # A lease was lost before its processor began, and a renewal that landed then let it be
    # released: the processor should have been asked before, it was said.
    "a lease's time runs out before its processor begins": History(
        seed=2,
        events=((0.0, Start(0)), (0.6, Trouble("refused", 1.0, 11.0))),
        options={"skip_older_than": 20.0},
    ),
    # Good records were skipped, as their checkpoint was not permitted for a few seconds.
    "a policy is changed when records are to be skipped": History(
        shards=1,
        events=(
            (0.0, Start(0)),
            (20.0, Trouble("denied", 1.0, 3.0, "dynamodb")),
            (20.0, Put(0, 3)),
        ),
        on_error="skip",
    ),
    # Each shard that came from one without a record asked what the stream is like: more calls in a
    # second than all of an account may make.
    "empty shards end one after the other": History(
        shards=1,
        events=(
            (0.0, Start(0)),
            (0.0, Start(1)),
            (0.0, Put(0, 4)),
            (54.4, Split(0.0)),
            (54.6, Storm(20, 60.0)),
            (54.6, Storm(20, 60.0)),
        ),
        options={"idle_time": 2.0, "audit_interval": 20.0, "max_leases": 3},
        **_EVEN,
        duration=240.0,
    ),
    # A subscription whose last event had only records that were read before began again for ever.
    "a shard ends behind empty pages, on a server that begins early": History(
        shards=1,
        events=((0.0, Start(0)), (5.0, Put(0, 8)), (10.0, Split(0.0)), (15.0, Put(0, 4))),
        options={"idle_time": 2.0, "audit_interval": 20.0, "retrieval": "efo"},
        empty_pages=2,
        names_children=False,
        begins_early=3,
        duration=60.0,
    ),
    # Right: an operator moves the shard between shard_ended and the automatic checkpoint.
    "a lease is lost before its end is checkpointed automatically": History(
        seed=36,
        shards=1,
        events=(
            (0.0, Start(0)),
            (0.0, Put(0, 48)),
            (0.0, Split(0.0)),
            (0.0, Start(2)),
            (4.9, Crash(0)),
            (21.4, Reset("LATEST")),
        ),
        behaviour=Behaviour(checkpoint=0.0, checkpoint_at_shutdown=False),
        options={"max_records": 2, "checkpoint_seconds": 5.0},
        **_EVEN,
    ),
    # Right: who takes a shard from a worker that was started later may be given older records.
    "each worker skips what is older than itself": History(
        events=(
            (0.0, Start(0)),
            (5.0, Trouble("error", 1.0, 30.0, "kinesis", 0)),
            *((10.0, Put(key)) for key in range(4)),
            (15.0, Start(1)),
            *((30.0, Put(key)) for key in range(4)),
            (40.0, Crash(1)),
        ),
        behaviour=Behaviour(checkpoint=0.0),
        options={"skip_older_than": 0},
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
    # Not the product's: an answer of the tracker was on its way when leases were deleted.
    "a stream returns as its leases are deleted": rough_several(92),
    # Not the product's: a rule looked in vain for writes to a lease that had gone with its stream,
    # while its worker slept.
    "a worker sleeps while its leases are deleted": h.History(
        streams=(h.OneOf(2), h.OneOf(2)),
        events=(
            (0.0, h.Start(0)),
            (0.0, h.Start(1)),
            (19.9, h.Pause(1, 60.0)),
            (20.0, h.Track((0,))),
        ),
        former=h.Former(delete_after=0.0),
        duration=100.0,
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


@pytest.mark.parametrize("history", KEPT.values(), ids=KEPT)
def test_what_was_wrong_once_is_in_order(history: History) -> None:
    assert WORKERS.play(history).wrong == []


@pytest.mark.parametrize("history", KEPT_OF_SEVERAL.values(), ids=KEPT_OF_SEVERAL)
def test_what_was_wrong_once_of_several_streams_is_in_order(history: History) -> None:
    assert SEVERAL.play(history).wrong == []


def test_a_reset_that_leaves_out_a_closed_shard_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_open_shards(leases: Any, shards: Iterable[Shard], *more: Any) -> list[LeaseReset]:
        shards = list(shards)
        is_open = {shard.id: shard.is_open for shard in shards}
        moves = plan_reset(leases, shards, *more)
        return [move for move in moves if move.create is None or is_open[move.row.shard_id]]

    monkeypatch.setattr(application_reset, "plan_reset", of_open_shards)
    before = _BEFORE_ITS_FIRST_LEASE.events[:-1]
    for reset in (Reset("TRIM_HORIZON"), Reset(5.0)):
        moved = replace(_BEFORE_ITS_FIRST_LEASE, events=(*before, (0.2, reset)))
        assert WORKERS.play(moved).wrong[0].startswith("everything_is_processed: k0:0 ")
