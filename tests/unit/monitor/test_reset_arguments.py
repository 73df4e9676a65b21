"""Where to move an application, as an operator writes it."""

from __future__ import annotations

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.rules.reset_plan import ShardCheckpoint
from sparkinesis.monitor.reset_arguments import parse_target
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, InitialPosition


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("latest", LATEST),
        (" TRIM_HORIZON ", TRIM_HORIZON),
        ("1970-01-01T00:00:01.002Z", AtTimestamp(1002)),
        (
            "shardId-000000000007=49",
            ShardCheckpoint("shardId-000000000007", ExtendedSequenceNumber("49")),
        ),
        ("s=49:3", ShardCheckpoint("s", ExtendedSequenceNumber("49", 3))),
    ],
)
def test_places(text: str, place: InitialPosition | ShardCheckpoint) -> None:
    assert parse_target(text) == place


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The position is '', which is not a position"),
        ("earlier", "The position is 'earlier', which is not a position"),
        ("2026-11-21T08:30:00", "for instance 2026-11-21T08:30:00Z"),
        ("s=", "'s=' is not a position in a shard"),
        ("s=1:", "'s=1:' is not a position in a shard"),
        ("s=-1", "is not a position in a shard"),
        ("=1", "is not a position in a shard"),
        ("s=TRIM_HORIZON", "is not a position in a shard"),
    ],
)
def test_what_is_none(text: str, message: str) -> None:
    with pytest.raises(OptionError) as error:
        parse_target(text)
    assert message in str(error.value)
