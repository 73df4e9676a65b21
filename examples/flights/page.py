"""The demo's page: the shards over time, rates and lag, and the flights in the air at a moment.

One file of HTML and SVG that needs no network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from examples.flights.board import Heard
from examples.flights.story import Story

Place = tuple[float, float]
"""An airport's longitude and latitude, in degrees."""

WIDTH, LEFT, RIGHT = 960, 78, 16
KMH = 780.0
"""The speed by which an aircraft's place on its way is estimated."""
EARTH_KM = 6371.0

_STYLE = """
:root { color-scheme: light dark; --ink: #1b2733; --dim: #687684; --line: #d5dce3; --back: #ffffff;
  --put: #2a78b8; --out: #d9730d; --kill: #c0342b; --shard: #e3edf6; --sky: #f3f6f9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --dim: #93a1ae; --line: #36424e;
  --back: #14191f; --put: #6fb1e4; --out: #f0a04b; --kill: #f0776e; --shard: #223446;
  --sky: #1a222b; } }
body { margin: 0 auto; max-width: 1000px; padding: 16px; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 22px; margin: 8px 0; } h2 { font-size: 16px; margin: 24px 0 4px; }
p { margin: 4px 0; color: var(--dim); } .wide { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 640px; height: auto; }
text { fill: var(--dim); font: 12px system-ui, sans-serif; } .name { fill: var(--ink); }
.axis { stroke: var(--line); } .put { stroke: var(--put); fill: none; stroke-width: 1.6; }
.out { stroke: var(--out); fill: none; stroke-width: 1.6; } .lag { fill: var(--put); opacity: .3; }
.shard { fill: var(--shard); stroke: var(--put); }
.mark { stroke: var(--dim); stroke-dasharray: 3 3; }
.kill { stroke: var(--kill); } .killed { fill: var(--kill); } .sky { fill: var(--sky); }
.way { stroke: var(--put); fill: none; opacity: .35; } .plane { fill: var(--out); }
.airport { fill: var(--dim); }
"""
_KEY = (
    "<p><span style='color:var(--put)'>put into Kinesis</span>, "
    "<span style='color:var(--out)'>out of Spark</span></p>"
)


def page(story: Story, airports: Mapping[str, Place], summary: Sequence[str]) -> str:
    """Return the page of a run; ``airports``: the places of the airports by their codes."""
    aloft = story.sky.in_the_air
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>Flights through sparkinesis</title><style>{_STYLE}</style></head><body>",
        "<h1>Flights through sparkinesis</h1>",
        *(f"<p>{escape(line)}</p>" for line in summary),
        "<h2>Shards, by hash key, over time</h2>",
        _svg(230, _shards(story)),
        "<h2>Events a second</h2>",
        _KEY,
        _svg(200, _rates(story)),
        "<h2>Lag: events put that are not out of Spark yet</h2>",
        _svg(170, _lag(story)),
        f"<h2>{len(aloft):,} aircraft in the air, at the fullest moment</h2>",
        "<p>Where an aircraft is on its way is estimated by its take-off and the distance.</p>",
        _svg(470, _map(aloft.values(), airports)),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _svg(height: int, drawn: Iterable[str]) -> str:
    picture = f"<svg viewBox='0 0 {WIDTH} {height}' role='img'>{''.join(drawn)}</svg>"
    return f"<div class='wide'>{picture}</div>"


def _times(story: Story) -> Callable[[float], float]:
    scale = (WIDTH - LEFT - RIGHT) / max(story.seconds, 1.0)
    return lambda seconds: round(LEFT + seconds * scale, 1)


def _marks(story: Story, top: int, bottom: int, *, named: bool) -> list[str]:
    x, drawn = _times(story), []
    for number, (seconds, text) in enumerate(story.marks):
        is_kill = "kill" in text
        kind = "mark kill" if is_kill else "mark"
        drawn.append(
            f"<line class='{kind}' x1='{x(seconds)}' x2='{x(seconds)}' y1='{top}' y2='{bottom}'/>"
        )
        if named:
            name = "killed" if is_kill else ""
            anchor = "end" if x(seconds) > WIDTH / 2 else "start"
            shift = -4 if anchor == "end" else 4
            drawn.append(
                f"<text class='{name}' text-anchor='{anchor}' x='{x(seconds) + shift}' "
                f"y='{12 + 14 * (number % 3)}'>{escape(text)}</text>"
            )
    return drawn


def _seconds_axis(story: Story, y: int) -> list[str]:
    x = _times(story)
    step = _step(story.seconds / 6)
    drawn = [f"<line class='axis' x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y}' y2='{y}'/>"]
    for number in range(int(story.seconds / step) + 1):
        at = number * step
        drawn.append(f"<text text-anchor='middle' x='{x(at)}' y='{y + 16}'>{at:g} s</text>")
    return drawn


def _step(least: float) -> float:
    """Return the round number, 1, 2 or 5 times a power of ten, that is not below ``least``."""
    power = 10.0 ** math.floor(math.log10(max(least, 1e-9)))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= least)


def _shards(story: Story) -> list[str]:
    top, bottom = 46, 206
    x = _times(story)
    drawn = []
    for span in story.spans():
        end = story.seconds if span.closed is None else span.closed
        y, below = (top + (bottom - top) * part for part in (span.first, span.last))
        drawn.append(
            f"<rect class='shard' x='{x(span.opened)}' y='{y:.1f}' rx='3' "
            f"width='{max(x(end) - x(span.opened), 1):.1f}' height='{below - y:.1f}'/>"
            f"<text class='name' x='{x(span.opened) + 6:.1f}' y='{(y + below) / 2 + 4:.1f}'>"
            f"shard {escape(span.name)}</text>"
        )
    drawn.append(
        f"<text x='0' y='{top + 10}'>hash key 0</text><text x='0' y='{bottom}'>2^128</text>"
    )
    return [*drawn, *_marks(story, top, bottom, named=True), *_seconds_axis(story, bottom + 4)]


def _scaled(most: float, top: int, bottom: int) -> tuple[Callable[[float], float], list[str]]:
    """Return the heights of values from 0 to ``most``, and the axis that shows them."""
    step = _step(most / 4)
    highest = step * max(1, math.ceil(most / step))

    def y(value: float) -> float:
        return round(bottom - (bottom - top) * value / highest, 1)

    axis = []
    for number in range(round(highest / step) + 1):
        at = y(number * step)
        axis.append(
            f"<line class='axis' x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{at}' y2='{at}'/>"
            f"<text text-anchor='end' x='{LEFT - 6}' y='{at + 4}'>{number * step:,.0f}</text>"
        )
    return y, axis


def _line(kind: str, points: Iterable[Place]) -> str:
    return f"<polyline class='{kind}' points='{' '.join(f'{x},{y}' for x, y in points)}'/>"


def _rates(story: Story) -> list[str]:
    rates = story.rates()
    y, axis = _scaled(max((max(put, out) for _, put, out in rates), default=1.0), 10, 172)
    x = _times(story)
    return [
        *axis,
        *_marks(story, 10, 172, named=False),
        _line("put", ((x(at), y(put)) for at, put, _ in rates)),
        _line("out", ((x(at), y(out)) for at, _, out in rates)),
        *_seconds_axis(story, 176),
    ]


def _lag(story: Story) -> list[str]:
    lags = [(one.seconds, one.put - one.out) for one in story.samples]
    y, axis = _scaled(max((lag for _, lag in lags), default=1.0), 10, 142)
    x = _times(story)
    corners = [(x(0.0), y(0)), *((x(at), y(lag)) for at, lag in lags), (x(story.seconds), y(0))]
    area = " ".join(f"{across},{up}" for across, up in corners)
    return [
        *axis,
        f"<polygon class='lag' points='{area}'/>",
        *_marks(story, 10, 142, named=False),
        *_seconds_axis(story, 146),
    ]


def _map(aloft: Iterable[Heard], airports: Mapping[str, Place]) -> list[str]:
    """The ways of the aircraft, on a map without distortion at the latitude of New York."""
    flights = [one for one in aloft if one.origin in airports and one.dest in airports]
    now = max((one.at for one in flights), default=0)
    seen = sorted({code for one in flights for code in (one.origin, one.dest)})
    places = {code: airports[code] for code in seen}
    project = _projection(places.values(), 470)
    drawn = [f"<rect class='sky' x='0' y='0' width='{WIDTH}' height='470' rx='6'/>"]
    planes = []
    for one in flights:
        ends = places[one.origin], places[one.dest]
        (x1, y1), (x2, y2) = map(project, ends)
        hours = (now - one.at) / 3_600_000
        part = min(0.97, hours * KMH / max(distance_km(*ends), 1.0))
        drawn.append(f"<line class='way' x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}'/>")
        x, y = x1 + (x2 - x1) * part, y1 + (y2 - y1) * part
        planes.append(f"<circle class='plane' cx='{x:.1f}' cy='{y:.1f}' r='2.4'/>")
    for code, place in places.items():
        x, y = project(place)
        drawn.append(
            f"<circle class='airport' cx='{x}' cy='{y}' r='1.8'/>"
            f"<text x='{x + 4}' y='{y - 3}'>{escape(code)}</text>"
        )
    return drawn + planes


def _projection(places: Iterable[Place], height: int) -> Callable[[Place], Place]:
    places = list(places) or [(-74.0, 40.7)]
    squeeze = math.cos(math.radians(40.7))
    west, east = (f(lon for lon, _ in places) * squeeze for f in (min, max))
    south, north = (f(lat for _, lat in places) for f in (min, max))
    across, up = max(east - west, 1.0), max(north - south, 1.0)
    scale = min((WIDTH - 80) / across, (height - 50) / up)
    left, top = (WIDTH - across * scale) / 2, (height - up * scale) / 2

    def project(place: Place) -> Place:
        lon, lat = place
        return round(left + (lon * squeeze - west) * scale, 1), round(
            top + (north - lat) * scale, 1
        )

    return project


def distance_km(one: Place, other: Place) -> float:
    """Return the distance of two places on a great circle."""
    lon1, lat1, lon2, lat2 = map(math.radians, (*one, *other))
    chord = (
        math.sin((lat2 - lat1) / 2) ** 2
        + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    )
    return 2 * EARTH_KM * math.asin(math.sqrt(chord))
