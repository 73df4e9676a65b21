"""Each conditional write: what it demands of the row, what it changes, what it leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint
from sparkinesis.lease.table import requests
from sparkinesis.stream.position import AfterRecord, AtTimestamp

AT = ExtendedSequenceNumber("500", 3)
LATEST = ExtendedSequenceNumber("LATEST")
KNOWN = AfterRecord("500", 9)
FREE = Lease("s", "s", ExtendedSequenceNumber("100", 1), counter=7)
MINE = replace(FREE, owner="me", owner_switches=2)
THEIRS = replace(MINE, owner="other")
ASKED = replace(MINE, owner="thief", checkpoint_owner="me")
PREPARED = replace(
    MINE, pending=PendingCheckpoint(ExtendedSequenceNumber("101")), timestamp_ms=1_790_000_000_000
)
PENDING = "pendingCheckpoint, pendingCheckpointSubSequenceNumber, pendingCheckpointState"
SEVEN, EIGHT, NINE = {"N": "7"}, {"N": "8"}, {"N": "9"}
ONE = {":one": {"N": "1"}}
STILL_MINE = (
    "leaseCounter = :known_leaseCounter AND leaseOwner = :known_leaseOwner "
    "AND attribute_not_exists(checkpointOwner)"
)
AS_MINE = {":known_leaseCounter": SEVEN, ":known_leaseOwner": {"S": "me"}}
STILL_ASKED = (
    "leaseCounter = :known_leaseCounter AND leaseOwner = :known_leaseOwner "
    "AND checkpointOwner = :known_checkpointOwner"
)
AS_ASKED = {
    ":known_leaseCounter": SEVEN,
    ":known_leaseOwner": {"S": "thief"},
    ":known_checkpointOwner": {"S": "me"},
}

CASES: dict[str, tuple[requests.Update, str, str, dict[str, Any], Lease]] = {
    "renew": (
        requests.renew(MINE),
        STILL_MINE,
        "SET leaseCounter = :leaseCounter",
        {**AS_MINE, ":leaseCounter": EIGHT},
        replace(MINE, counter=8),
    ),
    "renew with a throughput, rounded": (
        requests.with_throughput(requests.renew(MINE), 0.0000125),
        STILL_MINE,
        "SET leaseCounter = :leaseCounter, throughputKBps = :throughputKBps",
        {
            **AS_MINE,
            ":leaseCounter": EIGHT,
            ":throughputKBps": {"N": "0.000013"},
        },
        replace(MINE, counter=8, throughput_kbps=0.000013),
    ),
    "renew with what is known of arrival times": (
        requests.renew(MINE, known=AtTimestamp(9)),
        STILL_MINE,
        "SET leaseCounter = :leaseCounter, checkpointPosition = :checkpointPosition",
        {**AS_MINE, ":leaseCounter": EIGHT, ":checkpointPosition": {"S": "AT_TIMESTAMP:9"}},
        replace(MINE, counter=8, known=AtTimestamp(9)),
    ),
    "renew while somebody waits for it": (
        requests.renew(ASKED),
        STILL_ASKED,
        "SET leaseCounter = :leaseCounter",
        {**AS_ASKED, ":leaseCounter": EIGHT},
        replace(ASKED, counter=8),
    ),
    "take what nobody has": (
        requests.take(FREE, "me"),
        "leaseCounter = :known_leaseCounter",
        "SET leaseOwner = :leaseOwner, leaseCounter = :leaseCounter REMOVE checkpointOwner",
        {":known_leaseCounter": SEVEN, ":leaseCounter": EIGHT, ":leaseOwner": {"S": "me"}},
        replace(FREE, counter=8, owner="me"),
    ),
    "take what was mine": (
        requests.take(MINE, "me"),
        "leaseCounter = :known_leaseCounter",
        "SET leaseOwner = :leaseOwner, leaseCounter = :leaseCounter REMOVE checkpointOwner",
        {":known_leaseCounter": SEVEN, ":leaseCounter": EIGHT, ":leaseOwner": {"S": "me"}},
        replace(MINE, counter=8),
    ),
    "take from another": (
        requests.take(THEIRS, "me"),
        "leaseCounter = :known_leaseCounter",
        (
            "SET leaseOwner = :leaseOwner, leaseCounter = :leaseCounter "
            "ADD ownerSwitchesSinceCheckpoint :one REMOVE checkpointOwner"
        ),
        {":known_leaseCounter": SEVEN, ":leaseCounter": EIGHT, ":leaseOwner": {"S": "me"}, **ONE},
        replace(MINE, counter=8, owner_switches=3),
    ),
    "take what one waited for in vain": (
        requests.take(replace(ASKED, owner="me", checkpoint_owner="other"), "me"),
        "leaseCounter = :known_leaseCounter",
        (
            "SET leaseOwner = :leaseOwner, leaseCounter = :leaseCounter "
            "ADD ownerSwitchesSinceCheckpoint :one REMOVE checkpointOwner"
        ),
        {":known_leaseCounter": SEVEN, ":leaseCounter": EIGHT, ":leaseOwner": {"S": "me"}, **ONE},
        replace(MINE, counter=8, owner_switches=3),
    ),
    "assign at the end of a handoff": (
        requests.assign(ASKED, "thief"),
        "leaseOwner = :known_leaseOwner AND checkpointOwner = :known_checkpointOwner",
        (
            "SET leaseOwner = :leaseOwner "
            "ADD leaseCounter :one, ownerSwitchesSinceCheckpoint :one REMOVE checkpointOwner"
        ),
        {
            ":known_leaseOwner": {"S": "thief"},
            ":known_checkpointOwner": {"S": "me"},
            ":leaseOwner": {"S": "thief"},
            **ONE,
        },
        replace(MINE, owner="thief", counter=8, owner_switches=3),
    ),
    "assign what nobody has": (
        requests.assign(FREE, "thief"),
        (
            "attribute_exists(leaseKey) AND attribute_not_exists(leaseOwner) "
            "AND attribute_not_exists(checkpointOwner)"
        ),
        "SET leaseOwner = :leaseOwner ADD leaseCounter :one REMOVE checkpointOwner",
        {":leaseOwner": {"S": "thief"}, **ONE},
        replace(FREE, owner="thief", counter=8),
    ),
    "initiate a handoff": (
        requests.initiate_handoff(MINE, "thief"),
        "leaseOwner = :known_leaseOwner AND attribute_not_exists(checkpointOwner)",
        "SET leaseOwner = :leaseOwner, checkpointOwner = :checkpointOwner",
        {
            ":known_leaseOwner": {"S": "me"},
            ":leaseOwner": {"S": "thief"},
            ":checkpointOwner": {"S": "me"},
        },
        ASKED,
    ),
    "withdraw from a handoff": (
        requests.withdraw_handoff(ASKED),
        "leaseOwner = :known_leaseOwner AND checkpointOwner = :known_checkpointOwner",
        "SET leaseOwner = :leaseOwner REMOVE checkpointOwner",
        {
            ":known_leaseOwner": {"S": "thief"},
            ":known_checkpointOwner": {"S": "me"},
            ":leaseOwner": {"S": "me"},
        },
        MINE,
    ),
    "evict": (
        requests.evict(MINE),
        "leaseOwner = :known_leaseOwner AND attribute_not_exists(checkpointOwner)",
        "ADD leaseCounter :one REMOVE leaseOwner, checkpointOwner",
        {":known_leaseOwner": {"S": "me"}, **ONE},
        replace(MINE, owner=None, counter=8),
    ),
    "evict what somebody waits for": (
        requests.evict(ASKED),
        "leaseOwner = :known_leaseOwner AND checkpointOwner = :known_checkpointOwner",
        "ADD leaseCounter :one REMOVE checkpointOwner",
        {":known_leaseOwner": {"S": "thief"}, ":known_checkpointOwner": {"S": "me"}, **ONE},
        replace(ASKED, checkpoint_owner=None, counter=8),
    ),
    "checkpoint": (
        requests.checkpoint(PREPARED, AT),
        STILL_MINE,
        (
            "SET leaseCounter = :leaseCounter, checkpoint = :checkpoint, "
            "checkpointSubSequenceNumber = :checkpointSubSequenceNumber, "
            "ownerSwitchesSinceCheckpoint = :ownerSwitchesSinceCheckpoint "
            f"REMOVE {PENDING}, checkpointTimestamp, checkpointPosition"
        ),
        {
            **AS_MINE,
            ":leaseCounter": EIGHT,
            ":checkpoint": {"S": "500"},
            ":checkpointSubSequenceNumber": {"N": "3"},
            ":ownerSwitchesSinceCheckpoint": {"N": "0"},
        },
        replace(MINE, checkpoint=AT, counter=8, owner_switches=0),
    ),
    "checkpoint of a record whose arrival is known, the first of a row that began at LATEST": (
        requests.checkpoint(replace(MINE, checkpoint=LATEST, timestamp_ms=5), AT, known=KNOWN),
        STILL_MINE,
        (
            "SET leaseCounter = :leaseCounter, checkpoint = :checkpoint, "
            "checkpointSubSequenceNumber = :checkpointSubSequenceNumber, "
            "checkpointPosition = :checkpointPosition, "
            "applicationTimestamp = :applicationTimestamp, "
            "ownerSwitchesSinceCheckpoint = :ownerSwitchesSinceCheckpoint "
            f"REMOVE {PENDING}, checkpointTimestamp"
        ),
        {
            **AS_MINE,
            ":leaseCounter": EIGHT,
            ":checkpoint": {"S": "500"},
            ":checkpointSubSequenceNumber": {"N": "3"},
            ":checkpointPosition": {"S": "500@9"},
            ":applicationTimestamp": {"N": "5"},
            ":ownerSwitchesSinceCheckpoint": {"N": "0"},
        },
        replace(MINE, checkpoint=AT, counter=8, owner_switches=0, known=KNOWN, application_ms=5),
    ),
    "checkpoint an instant": (
        requests.checkpoint(MINE, LATEST, 1_800_000_000_123),
        STILL_MINE,
        (
            "SET leaseCounter = :leaseCounter, checkpoint = :checkpoint, "
            "checkpointSubSequenceNumber = :checkpointSubSequenceNumber, "
            "checkpointTimestamp = :checkpointTimestamp, "
            "ownerSwitchesSinceCheckpoint = :ownerSwitchesSinceCheckpoint "
            f"REMOVE {PENDING}, checkpointPosition"
        ),
        {
            **AS_MINE,
            ":leaseCounter": EIGHT,
            ":checkpoint": {"S": "LATEST"},
            ":checkpointSubSequenceNumber": {"N": "0"},
            ":checkpointTimestamp": {"N": "1800000000123"},
            ":ownerSwitchesSinceCheckpoint": {"N": "0"},
        },
        replace(
            MINE, checkpoint=LATEST, counter=8, owner_switches=0, timestamp_ms=1_800_000_000_123
        ),
    ),
    "move by a record processor, which is not the application's beginning": (
        requests.checkpoint(MINE, LATEST, 1_800_000_000_123, moved_ms=1_800_000_000_124),
        STILL_MINE,
        (
            "SET leaseCounter = :leaseCounter, checkpoint = :checkpoint, "
            "checkpointSubSequenceNumber = :checkpointSubSequenceNumber, "
            "checkpointTimestamp = :checkpointTimestamp, leaseTimestamp = :leaseTimestamp, "
            "applicationTimestamp = :applicationTimestamp, "
            "ownerSwitchesSinceCheckpoint = :ownerSwitchesSinceCheckpoint "
            f"REMOVE {PENDING}, checkpointPosition"
        ),
        {
            **AS_MINE,
            ":leaseCounter": EIGHT,
            ":checkpoint": {"S": "LATEST"},
            ":checkpointSubSequenceNumber": {"N": "0"},
            ":checkpointTimestamp": {"N": "1800000000123"},
            ":leaseTimestamp": {"N": "1800000000124"},
            ":applicationTimestamp": {"N": "0"},
            ":ownerSwitchesSinceCheckpoint": {"N": "0"},
        },
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
            "SET leaseCounter = :leaseCounter, checkpoint = :checkpoint, "
            "checkpointSubSequenceNumber = :checkpointSubSequenceNumber, "
            "checkpointTimestamp = :checkpointTimestamp, "
            "applicationTimestamp = :applicationTimestamp REMOVE checkpointPosition"
        ),
        {
            **AS_MINE,
            ":leaseCounter": EIGHT,
            ":checkpoint": {"S": "LATEST"},
            ":checkpointSubSequenceNumber": {"N": "0"},
            ":checkpointTimestamp": {"N": "7"},
            ":applicationTimestamp": {"N": "0"},
        },
        replace(MINE, checkpoint=LATEST, counter=8, timestamp_ms=7, application_ms=0),
    ),
    "prepare": (
        requests.prepare(MINE, PendingCheckpoint(AT)),
        STILL_MINE,
        (
            "SET leaseCounter = :leaseCounter, pendingCheckpoint = :pendingCheckpoint, "
            "pendingCheckpointSubSequenceNumber = :pendingCheckpointSubSequenceNumber "
            "REMOVE pendingCheckpointState"
        ),
        {
            **AS_MINE,
            ":leaseCounter": EIGHT,
            ":pendingCheckpoint": {"S": "500"},
            ":pendingCheckpointSubSequenceNumber": {"N": "3"},
        },
        replace(MINE, pending=PendingCheckpoint(AT), counter=8),
    ),
    "prepare with a state": (
        requests.prepare(MINE, PendingCheckpoint(AT, b"\x00state")),
        STILL_MINE,
        (
            "SET leaseCounter = :leaseCounter, pendingCheckpoint = :pendingCheckpoint, "
            "pendingCheckpointSubSequenceNumber = :pendingCheckpointSubSequenceNumber, "
            "pendingCheckpointState = :pendingCheckpointState"
        ),
        {
            **AS_MINE,
            ":leaseCounter": EIGHT,
            ":pendingCheckpoint": {"S": "500"},
            ":pendingCheckpointSubSequenceNumber": {"N": "3"},
            ":pendingCheckpointState": {"B": b"\x00state"},
        },
        replace(MINE, pending=PendingCheckpoint(AT, b"\x00state"), counter=8),
    ),
    "drop a prepared checkpoint": (
        requests.prepare(replace(MINE, pending=PendingCheckpoint(AT, b"state")), None),
        STILL_MINE,
        (
            "SET leaseCounter = :leaseCounter REMOVE pendingCheckpoint, "
            "pendingCheckpointSubSequenceNumber, pendingCheckpointState"
        ),
        {**AS_MINE, ":leaseCounter": EIGHT},
        replace(MINE, counter=8),
    ),
    "add children": (
        requests.add_children(MINE, ["c2", "c1"]),
        "attribute_exists(leaseKey)",
        "SET childShardIds = :childShardIds",
        {":childShardIds": {"SS": ["c1", "c2"]}},
        replace(MINE, child_ids=("c1", "c2")),
    ),
    "add the hash range": (
        requests.add_hash_range(MINE, (0, 2**128 - 1)),
        "attribute_exists(leaseKey)",
        "SET startingHashKey = :startingHashKey, endingHashKey = :endingHashKey",
        {":startingHashKey": {"S": "0"}, ":endingHashKey": {"S": str(2**128 - 1)}},
        replace(MINE, hash_range=(0, 2**128 - 1)),
    ),
    "reset": (
        requests.reset(replace(PREPARED, owner="thief", checkpoint_owner="me"), AT),
        "leaseCounter = :known_leaseCounter",
        (
            "SET leaseCounter = :leaseCounter, checkpoint = :checkpoint, "
            "checkpointSubSequenceNumber = :checkpointSubSequenceNumber, "
            "ownerSwitchesSinceCheckpoint = :ownerSwitchesSinceCheckpoint "
            f"REMOVE leaseOwner, checkpointOwner, {PENDING}, checkpointTimestamp, "
            "checkpointPosition"
        ),
        {
            ":known_leaseCounter": SEVEN,
            ":leaseCounter": NINE,
            ":checkpoint": {"S": "500"},
            ":checkpointSubSequenceNumber": {"N": "3"},
            ":ownerSwitchesSinceCheckpoint": {"N": "0"},
        },
        replace(FREE, checkpoint=AT, counter=9),
    ),
    "reset to LATEST, where the application begins from then on": (
        requests.reset(replace(FREE, application_ms=1, known=KNOWN), LATEST, 5, 6),
        "leaseCounter = :known_leaseCounter",
        (
            "SET leaseCounter = :leaseCounter, checkpoint = :checkpoint, "
            "checkpointSubSequenceNumber = :checkpointSubSequenceNumber, "
            "checkpointTimestamp = :checkpointTimestamp, "
            "applicationTimestamp = :applicationTimestamp, leaseTimestamp = :leaseTimestamp, "
            "ownerSwitchesSinceCheckpoint = :ownerSwitchesSinceCheckpoint "
            f"REMOVE leaseOwner, checkpointOwner, {PENDING}, checkpointPosition"
        ),
        {
            ":known_leaseCounter": SEVEN,
            ":leaseCounter": NINE,
            ":checkpoint": {"S": "LATEST"},
            ":checkpointSubSequenceNumber": {"N": "0"},
            ":checkpointTimestamp": {"N": "5"},
            ":applicationTimestamp": {"N": "5"},
            ":leaseTimestamp": {"N": "6"},
            ":ownerSwitchesSinceCheckpoint": {"N": "0"},
        },
        replace(FREE, checkpoint=LATEST, timestamp_ms=5, counter=9, application_ms=5, made_ms=6),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_condition_the_change_and_the_row_afterwards(name: str) -> None:
    update, condition, change, values, after = CASES[name]
    request = update.request("app")
    assert request["TableName"] == "app"
    assert request["Key"] == {"leaseKey": {"S": "s"}}
    assert request["ConditionExpression"] == condition
    assert request["UpdateExpression"] == change
    assert request["ExpressionAttributeValues"] == values
    assert request["ReturnValues"] == "ALL_NEW"
    assert request["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    assert update.after == after


def test_a_renewal_as_a_statement() -> None:
    assert requests.with_throughput(requests.renew(MINE), 1.5).statement("my-app") == {
        "Statement": 'UPDATE "my-app" SET leaseCounter=? SET throughputKBps=? '
        "WHERE leaseKey=? AND leaseCounter=? AND leaseOwner=? AND checkpointOwner IS MISSING",
        "Parameters": [EIGHT, {"N": "1.500000"}, {"S": "s"}, SEVEN, {"S": "me"}],
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    assert requests.renew(ASKED).statement("my-app")["Statement"] == (
        'UPDATE "my-app" SET leaseCounter=? '
        "WHERE leaseKey=? AND leaseCounter=? AND leaseOwner=? AND checkpointOwner=?"
    )


def test_deleting_a_finished_lease_needs_it_finished_any_other_needs_it_as_known() -> None:
    finished = replace(MINE, checkpoint=ExtendedSequenceNumber("SHARD_END"))
    request = requests.delete(finished, "app")
    assert request["ConditionExpression"] == "checkpoint = :known_checkpoint"
    assert request["ExpressionAttributeValues"] == {":known_checkpoint": {"S": "SHARD_END"}}
    request = requests.delete(MINE, "app")
    assert request["ConditionExpression"] == "leaseCounter = :known_leaseCounter"
    assert request["ExpressionAttributeValues"] == {":known_leaseCounter": SEVEN}


def test_what_makes_no_sense_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ValueError, match="no children"):
        requests.add_children(MINE, [])
    for lease in (FREE, ASKED):
        with pytest.raises(ValueError, match="no owner to ask, or was asked already"):
            requests.initiate_handoff(lease, "thief")
    with pytest.raises(ValueError, match="was not asked for"):
        requests.withdraw_handoff(MINE)


def test_a_probe_has_to_be_refused_and_sets_what_never_changes() -> None:
    with_keys = replace(MINE, hash_range=(100, 199))
    probe = requests.probe(with_keys)
    assert probe is not None
    assert probe.statement("app") == {
        "Statement": 'UPDATE "app" SET startingHashKey=? WHERE leaseKey=? AND leaseCounter=?',
        "Parameters": [{"S": "100"}, {"S": "s"}, {"N": "-1"}],
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    # The row as it is before is not taken for what an earlier try has left.
    assert not requests.has_landed(probe, with_keys)


def test_without_hash_keys_there_is_no_probe() -> None:
    assert requests.probe(replace(MINE, hash_range=None)) is None
