"""A table and a query of version 0.1.0, which read one stream only: both go on as they would have.

`tests.one_stream` says how that version wrote the fixture.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.one_stream import STARTS, Services, decoded, go_on, read_on, services, take_over

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "one-stream-0.1.0.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def at() -> Iterator[Services]:
    with services() as running:
        running.go_on()
        yield running


def test_the_fixture_has_the_shapes_that_a_row_may_have() -> None:
    rows = {row["leaseKey"]["S"]: row for row in decoded(GOLDEN["trim_horizon"]["before"])}
    at_instant = {row["leaseKey"]["S"]: row for row in GOLDEN["instant"]["before"]}
    at_latest = {row["leaseKey"]["S"]: row for row in GOLDEN["latest"]["before"]}
    first = "shardId-000000000000"
    assert rows["shardId-000000000001"]["pendingCheckpointState"]["B"] == b"state\x00\xff"
    assert rows["shardId-000000000003"]["checkpoint"]["S"] == "SHARD_END"
    assert "childShardIds" in rows["shardId-000000000003"]
    assert rows["shardId-000000000004"]["checkpoint"]["S"] == "AT_TIMESTAMP"
    assert rows["shardId-000000000005"]["checkpoint"]["S"] == "LATEST"
    assert rows["shardId-000000000006"]["checkpointOwner"]["S"] == "worker-1"
    assert rows["shardId-000000000007"]["entityType"]["S"] == "LEASE", "a Java KCL's"
    assert rows["shardId-000000000008"]["pendingCheckpoint"]["S"].isdecimal()
    assert rows["Leader"]["entityType"]["S"] == "LEADER"
    assert at_instant[first]["checkpoint"]["S"] == "AT_TIMESTAMP"
    assert at_latest[first]["checkpoint"]["S"] == "LATEST"
    assert "applicationTimestamp" in at_latest[first]
    assert not any("streamName" in row for row in rows.values())


@pytest.mark.parametrize("kind", STARTS)
def test_a_worker_goes_on_in_the_table_of_0_1_0_as_0_1_0_did(at: Services, kind: str) -> None:
    """The same records, and the same rows afterwards, attribute by attribute."""
    found = go_on(at, kind, decoded(GOLDEN[kind]["before"]))
    assert found["records"] == GOLDEN[kind]["after"]["records"]
    assert found["prepared"] == GOLDEN[kind]["after"]["prepared"]
    assert found["rows"] == decoded(GOLDEN[kind]["after"]["rows"])


@pytest.mark.parametrize("kind", STARTS)
def test_a_query_begins_in_the_table_of_0_1_0_as_0_1_0_did(at: Services, kind: str) -> None:
    found = take_over(at, kind, decoded(GOLDEN[kind]["before"]))
    assert found == GOLDEN[kind]["query"]


@pytest.mark.parametrize("kind", STARTS)
def test_a_query_goes_on_from_an_offset_of_0_1_0(at: Services, kind: str) -> None:
    resumed = at.query(kind)
    resumed.checkpoint = GOLDEN[kind]["query"]["offset"]
    assert read_on(resumed) == GOLDEN[kind]["query"]["rows"]
