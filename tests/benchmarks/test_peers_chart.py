from __future__ import annotations

import xml.etree.ElementTree as ET

from benchmarks.peers.chart import OURS, Bar, Group, svg
from benchmarks.peers.figures import Sample, figures
from benchmarks.peers.plots import drawn
from benchmarks.peers.report import Report

SVG = "{http://www.w3.org/2000/svg}"


def bars_of(drawing: str) -> list[ET.Element]:
    (_background, *bars) = ET.fromstring(drawing).iter(f"{SVG}rect")
    return bars


def test_bars_are_as_long_as_their_medians_within_a_group() -> None:
    groups = [
        Group("a", (Bar("x", 2.0, 1.0, 4.0, "2 s", True), Bar("y", 4.0, 4.0, 4.0, "4 s", False))),
        Group("b", (Bar("z", 400.0, 400.0, 400.0, "400 s", False),)),
    ]
    drawing = svg("title", "subtitle", groups)
    widths = [float(bar.attrib["width"]) for bar in bars_of(drawing)]
    assert widths[1] == widths[2] == 2 * widths[0]
    assert [bar.attrib["fill"] == OURS for bar in bars_of(drawing)] == [True, False, False]
    spread = next(iter(ET.fromstring(drawing).iter(f"{SVG}line"))).attrib
    assert float(spread["x2"]) - float(spread["x1"]) == 1.5 * widths[0]


def a_report() -> Report:
    samples = [
        Sample("backlog", "CPU less the start's", "s", "sparkinesis", 1.0),
        Sample("backlog", "CPU less the start's", "s", "peer", 1.5),
        Sample("backlog", "CPU less the start's", "s", "loser", 0.5, lost=3),
        Sample("start", "CPU", "s", "sparkinesis", 1.0),
        Sample("idle", "CPU a minute", "s", "peer", 1.0),
        Sample("idle", "memory", "MiB", "peer", 100.0),
    ]
    return Report("command", "machine", 1, figures=figures(samples))


def test_a_plot_shows_its_measures_without_those_who_lost_records() -> None:
    plots = drawn(a_report())
    assert sorted(plots) == ["peers-cpu.svg", "peers-idle.svg"]
    texts = [each.text for each in ET.fromstring(plots["peers-cpu.svg"]).iter(f"{SVG}text")]
    assert texts[2:] == ["backlog", "sparkinesis", "1.00 s", "peer", "1.50 s (1.50)"]
    titles = [each.text for each in ET.fromstring(plots["peers-idle.svg"]).iter(f"{SVG}text")]
    assert {"idle: CPU a minute", "idle: memory"} <= set(titles)
