"""`sparkinesis leases` and `sparkinesis reset`, beside workers that run or do not."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from sparkinesis.lease.extended_sequence_number import TRIM_HORIZON, ExtendedSequenceNumber
from sparkinesis.lease.lease import PendingCheckpoint
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Fault
from sparkinesis.monitor import lags
from tests.command import Command, Result, asked, failure, objects, place_of
from tests.integration.worker.conftest import FAILOVER_TIME
from tests.integration.worker.scene import FIRST, SECOND, Scene


def by_shard(result: Result) -> dict[str, dict[str, Any]]:
    assert result.stderr == ""
    return {one["shard"]: one for one in objects(result)}


def table_of(result: Result) -> dict[str, list[str]]:
    """The cells of each row by its first, with the header as ``shard``."""
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout, "colours are for terminals"
    rows = [line.split("  ") for line in result.stdout.splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    return {row[0]: row for row in cells if row}


def test_a_running_application(scene: Scene, run: Command) -> None:
    """One record is checkpointed, the next one only processed: the application is behind by it."""

    def checkpoint_the_first(batch: Any, checkpointer: Any) -> None:
        if batch.records[0].data == b"first":
            checkpointer.checkpoint(batch.records[0])

    scene.start(worker_id="a", on_records=checkpoint_the_first)
    number = scene.put(b"first")
    scene.journal.wait_for_data(b"first")
    scene.put(b"second")
    scene.journal.wait_for_data(b"second")

    # A renewal is due in each third of the failover time.
    options = ("--stream", scene.stream, "--watch-for", str(FAILOVER_TIME))
    found = by_shard(run("leases", *options, "--json"))
    assert sorted(found) == [FIRST, SECOND]
    first, second = found[FIRST], found[SECOND]
    assert (first["owner"], first["state"]) == ("a", "held")
    assert first["checkpoint"] == {"sequence_number": number, "sub_sequence_number": 0}
    assert first["millis_behind_latest"] > 0
    assert second["checkpoint"]["sequence_number"] == TRIM_HORIZON
    assert second["millis_behind_latest"] == 0
    for one in (first, second):
        assert 0 <= one["renewed_seconds_ago"] <= one["watched_seconds"]
        assert one["watched_seconds"] >= round(FAILOVER_TIME, 1)
        assert one["handed_over_to"] is one["pending_checkpoint"] is None

    rows = table_of(run("leases", *options))
    assert " ".join(rows["shard"]) == "shard owner state checkpoint behind renewed KB/s"
    assert rows[FIRST][:4] == [FIRST, "a", "held", f"…{number[-10:]}:0"]
    assert rows[FIRST][4].endswith(" s")
    assert rows[FIRST][4] != "0.0 s"
    assert rows[SECOND][4] == "0.0 s"
    assert rows[FIRST][5].endswith(" s ago")


def test_an_application_whose_worker_is_gone(
    table: LeaseTable, kinesis: Any, stream: str, call: Command
) -> None:
    """Rows as crashes leave them: nobody renews; without a stream there is no lag."""
    rows = {row.key: row for row in table.leases()}
    held = table.write(requests.take(rows[FIRST], "dead"))
    held = table.write(requests.take(held, "gone"))
    table.write(
        requests.prepare(held, PendingCheckpoint(ExtendedSequenceNumber("12345678901234567890", 3)))
    )
    found = table_of(call("leases", "--watch-for", "1.2"))
    assert found["shard"][-2:] == ["switches", "pending"]
    assert found[FIRST][1:] == [
        "gone", "held", TRIM_HORIZON, "-", "none in 1 s", "1", "…1234567890:3",
    ]  # fmt: skip
    assert found[SECOND][1:] == ["-", "unowned", TRIM_HORIZON, "-", "-", "-", "-"]

    pending = table.get(FIRST)
    assert pending is not None
    table.write(requests.initiate_handoff(pending, "thief"))
    table.write(requests.add_children(rows[SECOND], ["child"]))
    found = table_of(call("leases", "--watch-for", "0"))
    assert found[FIRST][1:3] == ["gone", "handed over to thief"]
    assert found[FIRST][5] == "not watched"
    shards = by_shard(call("leases", "--watch-for", "0", "--json"))
    assert (shards[SECOND]["parents"], shards[SECOND]["children"]) == ([], ["child"])
    one = shards[FIRST]
    assert (one["owner"], one["handed_over_to"]) == ("gone", "thief")
    assert one["renewed_seconds_ago"] is None
    assert one["pending_checkpoint"]["sub_sequence_number"] == 3


def test_a_dead_owner_is_told_without_further_options(
    table: LeaseTable, stream: str, call: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shard is unread for as long as the command watches by default."""
    table.write(requests.take(table.leases()[0], "dead"))
    now = 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    in_no_time = partial(lags.watch_table, clock=lambda: now, wait=wait)
    monkeypatch.setattr(lags, "watch_table", in_no_time)
    found = by_shard(call("leases", "--stream", stream, "--json"))[FIRST]
    assert (found["unread_for_seconds"], found["millis_behind_latest"]) == (8.0, 8000)


def test_a_lag_that_is_not_known_does_no_harm_to_the_others(
    table: LeaseTable, kinesis: Any, stream: str, scene: Scene, call: Command
) -> None:
    rows = {row.key: row for row in table.leases()}
    table.write(requests.checkpoint(rows[SECOND], ExtendedSequenceNumber("12")))
    options = ("--stream", stream, "--watch-for", "0")
    found = table_of(call("leases", *options))
    assert [found[key][4] for key in (FIRST, SECOND)] == ["0.0 s", "expired"]

    refused = Fault.error("InvalidArgumentException", "no reason")
    scene.faults(refused, operation="GetRecords", shard=FIRST, stream=stream)
    result = call("leases", *options)
    scene.faults(None)
    assert result.returncode == 0
    assert [line.split()[4] for line in result.stdout.splitlines()[1:]] == ["unknown", "expired"]
    assert result.stderr.count("\n") == 1
    assert f"GetRecords failed on shard {FIRST}" in result.stderr


def test_reset_in_a_pipe_needs_yes_and_changes_nothing_without(
    table: LeaseTable, stream: str, call: Command
) -> None:
    before = table.leases()
    error = failure(call("reset", "--stream", stream, "--to", "latest"))
    assert "no terminal" in error
    assert "--yes" in error
    assert table.leases() == before

    found = by_shard(call("reset", "--stream", stream, "--to", "latest", "--yes", "--json"))
    assert sorted(found) == [FIRST, SECOND]
    assert found[FIRST]["from"]["sequence_number"] == TRIM_HORIZON
    assert found[FIRST]["to"]["sequence_number"] == TRIM_HORIZON, "nothing is older"
    assert found[FIRST]["to"]["timestamp_ms"] > 0
    assert found[FIRST]["written"] is True
    assert [row.counter for row in table.leases()] == [2, 2]


@pytest.mark.parametrize(("answer", "counter"), [("y\n", 2), ("n\n", 0), ("\n", 0)])
def test_reset_on_a_terminal_shows_what_it_will_do_and_asks(
    table: LeaseTable, server: LocalServer, stream: str, *, answer: str, counter: int
) -> None:
    to = "2026-11-01T00:00:00Z"
    given = ["reset", stream, "--stream", stream, "--to", to, *place_of(server)]
    result = asked(answer, *given)
    assert result.stdout.splitlines()[1].split() == [
        FIRST, TRIM_HORIZON, TRIM_HORIZON, "as", "of", "2026-11-01T00:00:00.000Z",
    ]  # fmt: skip
    assert "Move 2 leases of" in result.stderr
    assert [row.counter for row in table.leases()] == [counter] * 2
    assert result.returncode == (0 if counter else 1)
