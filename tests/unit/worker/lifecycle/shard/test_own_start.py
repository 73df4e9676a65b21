"""What ``initialize`` may return, and whose sequence number a shard's is not."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sparkinesis.errors import ProcessorError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.local.model.sequence import base, tail
from sparkinesis.worker.lifecycle.shard.own_start import encodes_another_shard, returned_start
from tests.kcl import recorded

NAME = "shard s of stream t"
AT = ExtendedSequenceNumber


@pytest.mark.parametrize(
    ("returned", "start"),
    [
        (None, None),
        (AT("7"), AT("7")),
        (AT("7", 3), AT("7", 3)),
        (AT("9" * 128), AT("9" * 128)),
        (AT("TRIM_HORIZON"), AT("TRIM_HORIZON")),
        (AT("TRIM_HORIZON", 4), AT("TRIM_HORIZON")),
    ],
)
def test_a_start(returned: Any, start: Any) -> None:
    assert returned_start(returned, NAME) == start


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        ("7", "returned a str"),
        (7, "returned a int"),
        (("7", 0), "returned a tuple"),
        (False, "returned a bool"),
        (AT("LATEST"), "LATEST, which is not the position of a record"),
        (AT("AT_TIMESTAMP"), "AT_TIMESTAMP, which is not the position of a record"),
        (AT("SHARD_END"), "SHARD_END. Return the shard's last record"),
        (AT(""), "the sequence number ''"),
        (AT("7x"), "the sequence number '7x'"),
        (AT("-7"), "the sequence number '-7'"),
        (AT("\u0667"), "the sequence number '\u0667'"),
        (AT("9" * 129), "the sequence number '999"),
        (AT(7), "the sequence number 7"),  # type: ignore[arg-type]
        (AT("7", -1), "the sub-sequence number -1"),
        (AT("7", 2**62), "the sub-sequence number 46"),
        (AT("7", None), "the sub-sequence number None"),  # type: ignore[arg-type]
        (AT("7", 1.0), "the sub-sequence number 1.0"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_start_is_told(returned: Any, what: str) -> None:
    with pytest.raises(ProcessorError, match=re.escape(what)) as raised:
        returned_start(returned, NAME)
    assert str(raised.value).startswith(f"initialize of {NAME} returned ")
    assert "sparkinesis.ExtendedSequenceNumber(" in str(raised.value)


def test_a_number_tells_the_shard_that_it_is_of() -> None:
    for index in (0, 1, 17, 2**31):
        number = str(base(1_790_000_000, index) + tail(5, 1_790_000_001))
        assert not encodes_another_shard(number, f"shardId-{index:012d}")
        assert encodes_another_shard(number, f"shardId-{index + 1:012d}")


def test_a_number_of_another_layout_and_another_servers_shard_tell_nothing() -> None:
    number = base(1_790_000_000, 1)
    assert not encodes_another_shard("7", "shardId-000000000000")
    assert not encodes_another_shard(str(number + 1), "shardId-000000000000")
    assert not encodes_another_shard(str(number << 1), "shardId-000000000000")
    assert not encodes_another_shard(str(number), "shard-a")


def test_the_numbers_that_a_real_kcl_stored_are_those_of_their_shards() -> None:
    rows = recorded("kcl-3.5.1-several-streams.json")["Items"]
    numbers = {
        (row["shardId"]["S"], row["checkpoint"]["S"])
        for row in rows
        if "shardId" in row and row["checkpoint"]["S"].isdecimal()
    }
    assert numbers
    assert not [one for one in numbers if encodes_another_shard(one[1], one[0])]
