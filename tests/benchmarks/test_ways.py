"""The benchmark of the ways to write an application: each way runs, and its results."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.fleet import fill, server
from benchmarks.ways import SHARDS, Side, results, sides


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with server("--no-limits") as client:
        for stream, shards in SHARDS.items():
            fill(client, stream, shards, 20_000)
        yield f"http://127.0.0.1:{client.port}"


@pytest.mark.parametrize(
    "side",
    [each for each in sides(None) if each.wait != "differs"],
    ids=lambda side: f"{side.stream}-{side.way}",
)
def test_each_way_is_measured(endpoint: str, side: Side) -> None:
    told = side.measure(endpoint, 0.1)
    assert told["records"] >= told["batches"] > 0
    assert told["cpu"] > 0
    if side.way == "in turn":
        assert told["records"] <= 100 * told["seconds"] + 1


def test_results_are_medians_beside_the_first_that_does_the_same() -> None:
    def told(records: float, cpu: float) -> dict[str, float]:
        return {"records": records, "batches": records / 10, "seconds": 2.0, "cpu": cpu}

    waits = [Side("", "waiting", way, "same", way) for way in ("in turn", "tasks")]
    idle = [Side("", "idle", way, "", way) for way in ("class", "coroutine", "records")]
    found = results(
        {
            waits[0]: [told(200, 1), told(100, 1), told(300, 1)],
            waits[1]: [told(4_000, 1)],
            idle[0]: [told(1_000, 0.1)],
            idle[1]: [told(1_000, 0.2)],
            idle[2]: [told(1_000, 0.5)],
        }
    )
    assert [(each.value, each.unit, each.ratio) for each in found] == [
        (100, "records/s", 1),
        (2_000, "records/s", 20),
        (pytest.approx(1_000), "µs of CPU a batch", 1),
        (pytest.approx(2_000), "µs of CPU a batch", pytest.approx(0.5)),
        (pytest.approx(500), "µs of CPU a record", 1),
    ]
    assert found[0].note == "50 to 150"
