"""Each conditional write: what it demands of the row, what it changes, what it leaves."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.update import Update, has_landed
from sparkinesis.stream.address import StreamMark
from sparkinesis.stream.position import AfterRecord, AtTimestamp

AT = ExtendedSequenceNumber("500", 3)
LATEST = ExtendedSequenceNumber("LATEST")
KNOWN = AfterRecord("500", 9)
FREE = Lease("s", "s", ExtendedSequenceNumber("100", 1), counter=7)
MINE = replace(FREE, owner="me", owner_switches=2)
THEIRS = replace(MINE, owner="other")
ASKED = replace(MINE, owner="thief", checkpoint_owner="me")
ENDED = replace(ASKED, checkpoint=ExtendedSequenceNumber("SHARD_END"))
PREPARED = replace(
    MINE, pending=PendingCheckpoint(ExtendedSequenceNumber("101")), timestamp_ms=1_790_000_000_000
)
STOPPED = replace(MINE, stopped_by=("other",))
STOPPED_BY_ALL = replace(MINE, stopped_by=("a", "b", "other", "z"))
STOPPED_BY_THIEF = replace(ASKED, stopped_by=("thief",))
PENDING = "pendingCheckpoint, pendingCheckpointSubSequenceNumber, pendingCheckpointState"
UNCHANGED = "leaseCounter = 7"
STILL_MINE = "leaseCounter = 7 AND leaseOwner = 'me' AND attribute_not_exists(checkpointOwner)"
HANDED_OVER = "leaseOwner = 'thief' AND checkpointOwner = 'me'"
NOT_ASKED = "leaseOwner = 'me' AND attribute_not_exists(checkpointOwner)"
GIVEN = "SET leaseOwner = 'me', leaseCounter = 8"
TAKE = f"{GIVEN}, fencingToken = 674"
SWITCH = f"{TAKE} ADD ownerSwitchesSinceCheckpoint 1 REMOVE checkpointOwner"
AT_500_3 = "checkpoint = '500', checkpointSubSequenceNumber = 3"
AT_LATEST = "checkpoint = 'LATEST', checkpointSubSequenceNumber = 0"
NO_SWITCHES = "ownerSwitchesSinceCheckpoint = 0"
PREPARE = "pendingCheckpoint = '500', pendingCheckpointSubSequenceNumber = 3"

MARK = StreamMark("eu-west-1", "1", "flights", 5)
ANEW = replace(
    FREE,
    checkpoint=ExtendedSequenceNumber("TRIM_HORIZON"),
    parent_ids=("p",),
    hash_range=(100, 199),
    application_ms=0,
    made_ms=6,
    counter=0,
    mark=MARK,
)
FORMER = replace(ASKED, child_ids=("c",), hash_range=(0, 9), stopped_by=("other",), known=KNOWN)

CASES: dict[str, tuple[Update, str, str, Lease]] = {
    "make a row of a former stream anew": (
        requests.make_anew(FORMER, ANEW),
        UNCHANGED,
        (
            "SET leaseCounter = 9, checkpoint = 'TRIM_HORIZON', checkpointSubSequenceNumber = 0, "
            "applicationTimestamp = 0, leaseTimestamp = 6, parentShardId = ['p'], "
            "startingHashKey = '100', endingHashKey = '199', ownerSwitchesSinceCheckpoint = 0, "
            "streamMark = 'eu-west-1:1:flights:5' REMOVE leaseOwner, checkpointOwner, "
            f"{PENDING}, checkpointTimestamp, checkpointPosition, childShardIds, stoppedBy"
        ),
        replace(ANEW, counter=9),
    ),
    "take a row that names no stream": (
        requests.take(FREE, "me", mark=MARK),
        UNCHANGED,
        f"{TAKE}, streamMark = 'eu-west-1:1:flights:5' REMOVE checkpointOwner",
        replace(FREE, owner="me", counter=8, fencing_token=674, mark=MARK),
    ),
    "renew": (
        requests.renew(MINE),
        STILL_MINE,
        "SET leaseCounter = 8",
        replace(MINE, counter=8),
    ),
    "renew with a throughput, rounded": (
        requests.with_throughput(requests.renew(MINE), 0.0000125),
        STILL_MINE,
        "SET leaseCounter = 8, throughputKBps = 0.000013",
        replace(MINE, counter=8, throughput_kbps=0.000013),
    ),
    "renew with what is known of arrival times": (
        requests.renew(MINE, known=AtTimestamp(9)),
        STILL_MINE,
        "SET leaseCounter = 8, checkpointPosition = 'AT_TIMESTAMP:9'",
        replace(MINE, counter=8, known=AtTimestamp(9)),
    ),
    "renew while somebody waits for it": (
        requests.renew(ASKED),
        f"leaseCounter = 7 AND {HANDED_OVER}",
        "SET leaseCounter = 8",
        replace(ASKED, counter=8),
    ),
    "take what nobody has": (
        requests.take(FREE, "me"),
        UNCHANGED,
        f"{TAKE} REMOVE checkpointOwner",
        replace(FREE, counter=8, owner="me", fencing_token=674),
    ),
    "take what was mine": (
        requests.take(MINE, "me"),
        f"{UNCHANGED} AND leaseOwner = 'me'",
        f"{TAKE} REMOVE checkpointOwner",
        replace(MINE, counter=8, fencing_token=674),
    ),
    "take at a time later than its token": (
        requests.take(replace(MINE, fencing_token=40), "me", 50),
        f"{UNCHANGED} AND leaseOwner = 'me' AND fencingToken = 40",
        f"{GIVEN}, fencingToken = 674 REMOVE checkpointOwner",
        replace(MINE, counter=8, fencing_token=674),
    ),
    "take by a clock that is behind its token": (
        requests.take(replace(MINE, fencing_token=2674), "me", 39),
        f"{UNCHANGED} AND leaseOwner = 'me' AND fencingToken = 2674",
        f"{GIVEN}, fencingToken = 3674 REMOVE checkpointOwner",
        replace(MINE, counter=8, fencing_token=3674),
    ),
    "take from another": (
        requests.take(THEIRS, "me"),
        f"{UNCHANGED} AND leaseOwner = 'other'",
        SWITCH,
        replace(MINE, counter=8, owner_switches=3, fencing_token=674),
    ),
    "take what one waited for in vain": (
        requests.take(replace(ASKED, owner="me", checkpoint_owner="other"), "me"),
        f"{UNCHANGED} AND leaseOwner = 'me' AND checkpointOwner = 'other'",
        SWITCH,
        replace(MINE, counter=8, owner_switches=3, fencing_token=674),
    ),
    "assign at the end of a handoff": (
        requests.assign(ASKED, "thief"),
        HANDED_OVER,
        (
            "SET leaseOwner = 'thief' "
            "ADD leaseCounter 1, ownerSwitchesSinceCheckpoint 1 REMOVE checkpointOwner"
        ),
        replace(MINE, owner="thief", counter=8, owner_switches=3),
    ),
    "assign what nobody has": (
        requests.assign(FREE, "thief"),
        (
            "attribute_exists(leaseKey) AND attribute_not_exists(leaseOwner) "
            "AND attribute_not_exists(checkpointOwner)"
        ),
        "SET leaseOwner = 'thief' ADD leaseCounter 1 REMOVE checkpointOwner",
        replace(FREE, owner="thief", counter=8),
    ),
    "assign what a silent worker has": (
        requests.assign_vacant(THEIRS, "me"),
        f"{UNCHANGED} AND leaseOwner = 'other' AND attribute_not_exists(checkpointOwner)",
        f"{GIVEN} ADD ownerSwitchesSinceCheckpoint 1 REMOVE checkpointOwner",
        replace(MINE, counter=8, owner_switches=3),
    ),
    "release of a shard that was stopped, as on another worker": (
        requests.with_stop(STOPPED, requests.release(STOPPED, "me"), "me"),
        f"{NOT_ASKED} AND {UNCHANGED} AND stoppedBy = ['other']",
        "SET stoppedBy = ['me', 'other'] ADD leaseCounter 1 REMOVE leaseOwner, checkpointOwner",
        replace(STOPPED, owner=None, counter=8, stopped_by=("me", "other")),
    ),
    "release of a shard that many have stopped": (
        requests.with_stop(STOPPED_BY_ALL, requests.release(STOPPED_BY_ALL, "me"), "me"),
        f"{NOT_ASKED} AND {UNCHANGED} AND stoppedBy = ['a', 'b', 'other', 'z']",
        (
            "SET stoppedBy = ['a', 'b', 'me', 'other', 'z'] "
            "ADD leaseCounter 1 REMOVE leaseOwner, checkpointOwner"
        ),
        replace(STOPPED, owner=None, counter=8, stopped_by=("a", "b", "me", "other", "z")),
    ),
    "release of a stopped shard to a worker that had stopped it alone": (
        requests.with_stop(STOPPED_BY_THIEF, requests.release(STOPPED_BY_THIEF, "me"), "me"),
        f"{HANDED_OVER} AND stoppedBy = ['thief'] AND {UNCHANGED}",
        (
            "SET leaseOwner = 'thief', stoppedBy = ['me'] "
            "ADD leaseCounter 1, ownerSwitchesSinceCheckpoint 1 REMOVE checkpointOwner"
        ),
        replace(MINE, owner="thief", counter=8, owner_switches=3, stopped_by=("me",)),
    ),
    "take of a shard that a process of this id has stopped": (
        requests.take(replace(STOPPED, stopped_by=("me", "other")), "me"),
        f"{UNCHANGED} AND leaseOwner = 'me' AND stoppedBy = ['me', 'other']",
        f"{GIVEN}, stoppedBy = ['other'], fencingToken = 674 REMOVE checkpointOwner",
        replace(STOPPED, counter=8, fencing_token=674),
    ),
    "restart": (
        requests.restart(STOPPED),
        "stoppedBy = ['other']",
        "REMOVE stoppedBy",
        MINE,
    ),
    "mark as converted": (
        requests.mark_converted(ASKED, "a:s"),
        UNCHANGED,
        "SET leaseCounter = 9, convertedTo = 'a:s' REMOVE leaseOwner, checkpointOwner",
        replace(FREE, counter=9, owner_switches=2),
    ),
    "keep what was marked as converted": (
        requests.keep_converted(MINE),
        UNCHANGED,
        "REMOVE convertedTo",
        MINE,
    ),
    "initiate a handoff": (
        requests.initiate_handoff(MINE, "thief"),
        NOT_ASKED,
        "SET leaseOwner = 'thief', checkpointOwner = 'me'",
        ASKED,
    ),
    "withdraw from a handoff": (
        requests.withdraw_handoff(ASKED),
        HANDED_OVER,
        "SET leaseOwner = 'me' REMOVE checkpointOwner",
        MINE,
    ),
    "release": (
        requests.release(MINE, "me"),
        f"{NOT_ASKED} AND {UNCHANGED}",
        "ADD leaseCounter 1 REMOVE leaseOwner, checkpointOwner",
        replace(MINE, owner=None, counter=8),
    ),
    "release of what a hand has given to nobody": (
        requests.release(replace(MINE, owner=None, checkpoint_owner="me"), "me"),
        f"attribute_not_exists(leaseOwner) AND checkpointOwner = 'me' AND {UNCHANGED}",
        "ADD leaseCounter 1 REMOVE checkpointOwner",
        replace(MINE, owner=None, counter=8),
    ),
    "release to the worker that waits for it": (
        requests.release(ASKED, "me"),
        f"{HANDED_OVER} AND {UNCHANGED}",
        (
            "SET leaseOwner = 'thief' "
            "ADD leaseCounter 1, ownerSwitchesSinceCheckpoint 1 REMOVE checkpointOwner"
        ),
        replace(MINE, owner="thief", counter=8, owner_switches=3),
    ),
    "release of what is finished, while a worker waits for it": (
        requests.release(ENDED, "me"),
        f"{HANDED_OVER} AND {UNCHANGED}",
        "ADD leaseCounter 1 REMOVE leaseOwner, checkpointOwner",
        replace(ENDED, owner=None, checkpoint_owner=None, counter=8),
    ),
    "evict": (
        requests.evict(MINE),
        NOT_ASKED,
        "ADD leaseCounter 1 REMOVE leaseOwner, checkpointOwner",
        replace(MINE, owner=None, counter=8),
    ),
    "evict what somebody waits for": (
        requests.evict(ASKED),
        HANDED_OVER,
        "ADD leaseCounter 1 REMOVE checkpointOwner",
        replace(ASKED, checkpoint_owner=None, counter=8),
    ),
    "checkpoint": (
        requests.checkpoint(PREPARED, AT),
        STILL_MINE,
        (
            f"SET leaseCounter = 8, {AT_500_3}, {NO_SWITCHES} "
            f"REMOVE {PENDING}, checkpointTimestamp, checkpointPosition"
        ),
        replace(MINE, checkpoint=AT, counter=8, owner_switches=0),
    ),
    "checkpoint of a record whose arrival is known, the first of a row that began at LATEST": (
        requests.checkpoint(replace(MINE, checkpoint=LATEST, timestamp_ms=5), AT, known=KNOWN),
        STILL_MINE,
        (
            f"SET leaseCounter = 8, {AT_500_3}, checkpointPosition = '500@9', "
            f"applicationTimestamp = 5, {NO_SWITCHES} REMOVE {PENDING}, checkpointTimestamp"
        ),
        replace(MINE, checkpoint=AT, counter=8, owner_switches=0, known=KNOWN, application_ms=5),
    ),
    "checkpoint an instant": (
        requests.checkpoint(MINE, LATEST, 1_800_000_000_123),
        STILL_MINE,
        (
            f"SET leaseCounter = 8, {AT_LATEST}, checkpointTimestamp = 1800000000123, "
            f"{NO_SWITCHES} REMOVE {PENDING}, checkpointPosition"
        ),
        replace(
            MINE, checkpoint=LATEST, counter=8, owner_switches=0, timestamp_ms=1_800_000_000_123
        ),
    ),
    "move by a record processor, which is not the application's beginning": (
        requests.checkpoint(MINE, LATEST, 1_800_000_000_123, moved_ms=1_800_000_000_124),
        STILL_MINE,
        (
            f"SET leaseCounter = 8, {AT_LATEST}, checkpointTimestamp = 1800000000123, "
            f"leaseTimestamp = 1800000000124, applicationTimestamp = 0, {NO_SWITCHES} "
            f"REMOVE {PENDING}, checkpointPosition"
        ),
        replace(
            MINE,
            checkpoint=LATEST,
            counter=8,
            owner_switches=0,
            timestamp_ms=1_800_000_000_123,
            application_ms=0,
            made_ms=1_800_000_000_124,
        ),
    ),
    "fix the instant of a KCL's LATEST": (
        requests.fix_instant(replace(MINE, checkpoint=LATEST), 7),
        STILL_MINE,
        (
            f"SET leaseCounter = 8, {AT_LATEST}, checkpointTimestamp = 7, "
            "applicationTimestamp = 0 REMOVE checkpointPosition"
        ),
        replace(MINE, checkpoint=LATEST, counter=8, timestamp_ms=7, application_ms=0),
    ),
    "prepare": (
        requests.prepare(MINE, PendingCheckpoint(AT)),
        STILL_MINE,
        f"SET leaseCounter = 8, {PREPARE} REMOVE pendingCheckpointState",
        replace(MINE, pending=PendingCheckpoint(AT), counter=8),
    ),
    "prepare with a state": (
        requests.prepare(MINE, PendingCheckpoint(AT, b"\x00state")),
        STILL_MINE,
        rf"SET leaseCounter = 8, {PREPARE}, pendingCheckpointState = b'\x00state'",
        replace(MINE, pending=PendingCheckpoint(AT, b"\x00state"), counter=8),
    ),
    "drop a prepared checkpoint": (
        requests.prepare(replace(MINE, pending=PendingCheckpoint(AT, b"state")), None),
        STILL_MINE,
        f"SET leaseCounter = 8 REMOVE {PENDING}",
        replace(MINE, counter=8),
    ),
    "add children": (
        requests.add_children(MINE, ["c2", "c1"]),
        "attribute_exists(leaseKey)",
        "SET childShardIds = ['c1', 'c2']",
        replace(MINE, child_ids=("c1", "c2")),
    ),
    "add the hash range": (
        requests.add_hash_range(MINE, (0, 2**128 - 1)),
        "attribute_exists(leaseKey)",
        f"SET startingHashKey = '0', endingHashKey = '{2**128 - 1}'",
        replace(MINE, hash_range=(0, 2**128 - 1)),
    ),
    "reset": (
        requests.reset(replace(PREPARED, owner="thief", checkpoint_owner="me"), AT),
        UNCHANGED,
        (
            f"SET leaseCounter = 9, {AT_500_3}, {NO_SWITCHES} REMOVE leaseOwner, "
            f"checkpointOwner, {PENDING}, checkpointTimestamp, checkpointPosition"
        ),
        replace(FREE, checkpoint=AT, counter=9),
    ),
    "reset to LATEST, where the application begins from then on": (
        requests.reset(replace(FREE, application_ms=1, known=KNOWN), LATEST, 5, 6),
        UNCHANGED,
        (
            f"SET leaseCounter = 9, {AT_LATEST}, checkpointTimestamp = 5, "
            f"applicationTimestamp = 5, leaseTimestamp = 6, {NO_SWITCHES} "
            f"REMOVE leaseOwner, checkpointOwner, {PENDING}, checkpointPosition"
        ),
        replace(FREE, checkpoint=LATEST, timestamp_ms=5, counter=9, application_ms=5, made_ms=6),
    ),
}


KINDS = {(str, "S"), (str, "N"), (list, "SS"), (bytes, "B")}


def with_values(expression: str, values: dict[str, Any]) -> str:
    """An expression with its values in place of their names; a number has no quotes."""

    def shown(name: re.Match[str]) -> str:
        ((kind, value),) = values[name.group()].items()
        assert (type(value), kind) in KINDS
        return value if kind == "N" else repr(value)

    return re.sub(r":\w+", shown, expression)


@pytest.mark.parametrize("name", CASES)
def test_the_condition_the_change_and_the_row_afterwards(name: str) -> None:
    update, condition, change, after = CASES[name]
    request = update.request("app")
    assert request["TableName"] == "app"
    assert request["Key"] == {"leaseKey": {"S": "s"}}
    values = request.get("ExpressionAttributeValues", {})
    condition_sent, change_sent = request["ConditionExpression"], request["UpdateExpression"]
    assert with_values(condition_sent, values) == condition
    assert with_values(change_sent, values) == change
    used = re.findall(r":\w+", f"{condition_sent} {change_sent}")
    assert set(values) == set(used), "the service refuses a value that no expression names"
    assert request["ReturnValues"] == "ALL_NEW"
    assert request["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    assert update.after == after


def test_a_renewal_as_a_statement() -> None:
    assert requests.with_throughput(requests.renew(MINE), 1.5).statement("my-app") == {
        "Statement": 'UPDATE "my-app" SET leaseCounter=? SET throughputKBps=? '
        "WHERE leaseKey=? AND leaseCounter=? AND leaseOwner=? AND checkpointOwner IS MISSING",
        "Parameters": [{"N": "8"}, {"N": "1.500000"}, {"S": "s"}, {"N": "7"}, {"S": "me"}],
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    assert requests.renew(ASKED).statement("my-app")["Statement"] == (
        'UPDATE "my-app" SET leaseCounter=? '
        "WHERE leaseKey=? AND leaseCounter=? AND leaseOwner=? AND checkpointOwner=?"
    )


def test_what_makes_no_sense_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ValueError, match="no children"):
        requests.add_children(MINE, [])
    for lease in (FREE, ASKED):
        with pytest.raises(ValueError, match="no owner to ask, or was asked already"):
            requests.initiate_handoff(lease, "thief")
    with pytest.raises(ValueError, match="was not asked for"):
        requests.withdraw_handoff(MINE)


def test_a_lease_is_deleted_as_it_is_known() -> None:
    for lease, name, value in (
        (FREE, "leaseCounter", {"N": "7"}),
        (ENDED, "checkpoint", {"S": "SHARD_END"}),
    ):
        assert requests.delete(lease, "app") == {
            "TableName": "app",
            "Key": {"leaseKey": {"S": "s"}},
            "ConditionExpression": f"{name} = :known_{name}",
            "ExpressionAttributeValues": {f":known_{name}": value},
        }


def test_a_reset_keeps_the_applications_first_instant_unless_it_begins_anew() -> None:
    old = replace(MINE, checkpoint=LATEST, timestamp_ms=5)
    cases: list[tuple[Lease, tuple[Any, ...], int | None]] = [
        (old, (AT,), 5),  # which the row held only in its checkpoint
        (replace(MINE, application_ms=5), (AT,), 5),
        (replace(MINE, application_ms=5), (LATEST, 6), 6),
        (replace(MINE, application_ms=5), (AT, None, None, 7), 7),
        (MINE, (AT,), None),
        (replace(MINE, application_ms=5), (LATEST,), 5),
    ]
    for lease, given, kept in cases:
        after = requests.reset(lease, *given).after
        assert (after.checkpoint, after.application_ms) == (given[0], kept)
    no_news = requests.reset(replace(MINE, application_ms=5), AT)
    assert "applicationTimestamp" not in {*no_news.set, *no_news.remove}


def test_a_probe_has_to_be_refused_and_sets_what_never_changes() -> None:
    assert requests.probe(MINE) is None, "such a row has nothing of the kind"
    with_keys = replace(MINE, hash_range=(100, 199))
    probe = requests.probe(with_keys)
    assert probe is not None
    assert probe.statement("app") == {
        "Statement": 'UPDATE "app" SET startingHashKey=? WHERE leaseKey=? AND leaseCounter=?',
        "Parameters": [{"S": "100"}, {"S": "s"}, {"N": "-1"}],
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    # The row as it is before is not taken for what an earlier try has left.
    assert not has_landed(probe, with_keys)


def test_a_take_has_not_landed_where_the_row_has_another_token() -> None:
    """A second process with the same worker id has taken the lease, or the row was made again."""
    update = requests.take(FREE, "me", 50)
    assert has_landed(update, update.after)
    assert not has_landed(update, replace(update.after, fencing_token=1674))
