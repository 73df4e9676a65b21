"""What the doctor tells of a stream's summary, of servers that say more or less."""

from __future__ import annotations

import pytest

from sparkinesis.monitor.doctor.streams import _summary

SUMMARY = {"StreamStatus": "ACTIVE", "RetentionPeriodHours": 24}


@pytest.mark.parametrize(
    ("more", "shards"),
    [({"OpenShardCount": 1}, "1 open shard"), ({"OpenShardCount": 2}, "2 open shards"),
     ({}, "? open shards")],
)  # fmt: skip
def test_the_number_of_shards_is_told_if_the_server_tells_it(
    more: dict[str, int], shards: str
) -> None:
    found = _summary("stream s", {**SUMMARY, **more})
    assert found.what == f"ACTIVE, {shards}, keeps records for 24 h"
