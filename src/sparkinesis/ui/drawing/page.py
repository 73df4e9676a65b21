"""The page: tables and charts of Bokeh, and how a look fills them.

Each browser has a document of its own. All of them show the looks of one `Watcher`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bokeh.layouts import column, row
from bokeh.models import (
    ColumnDataSource,
    CustomJS,
    Div,
    InlineStyleSheet,
    RadioButtonGroup,
    Select,
)

from sparkinesis.ui import columns, texts
from sparkinesis.ui.drawing.charts import MAP_HEIGHT, line_chart, map_figure
from sparkinesis.ui.drawing.tables import (
    MOST_SHARDS,
    MOST_WORKERS,
    height_for,
    shard_table,
    worker_table,
)

if TYPE_CHECKING:
    from bokeh.document import Document

    from sparkinesis.ui.look import Look
    from sparkinesis.ui.watcher import Watcher

STATIC = Path(__file__).with_name("static")

_ASK_EVERY_MS = 500
"""How often a document asks whether there is a new look."""


def _text(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def open_page(document: Document, watcher: Watcher) -> None:
    """Fill a new document, and keep it up to date as long as its browser shows it."""
    page = Page(watcher)
    document.title = watcher.look.view.title
    document.template = _text("page.html")
    document.template_variables.update(style=_text("page.css"), script=_text("page.js"))
    document.add_root(page.layout)
    document.add_periodic_callback(page.update, _ASK_EVERY_MS)
    gone = "document.getElementById('gone').hidden = {}"
    document.js_on_event("connection_lost", CustomJS(code=gone.format("false")))
    document.js_on_event("client_reconnected", CustomJS(code=gone.format("true")))


class Page:
    """The parts of one browser's page."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._number = -1
        look = watcher.look
        style = InlineStyleSheet(css=_text("parts.css"))
        self._heading = _div("heading", style)
        self._messages = _div("messages", style)
        self._failures = _div("failures", style)
        self._shards = ColumnDataSource(columns.shard_columns(look), name="shards")
        self._workers = ColumnDataSource(columns.worker_columns(look), name="workers")
        self._chart = ColumnDataSource(columns.chart_columns(look), name="chart")
        names = list(look.stream_names)
        self._stream = Select(
            title="Stream", value=names[0], options=names, visible=len(names) > 1, name="stream"
        )
        self._stream.on_change("value", self._choose)
        self._map = ColumnDataSource(columns.map_columns(look, self._chosen(look)), name="map")
        self._set_range: tuple[float, float] | None = None
        self._plot = map_figure(self._map)
        self._records = line_chart("records", "Records per second", self._chart)
        self._worker_table = worker_table(self._workers, style)
        self._filter, self._shard_table = shard_table(self._shards, style, self._stream)
        self.layout = column(
            self._heading,
            self._messages,
            row(
                _titled("Shards over time", self._map_options(), self._plot, style=style),
                column(
                    line_chart("lag", "Behind, in seconds", self._chart),
                    line_chart("kbps", "KB/s", self._chart),
                    self._records,
                    width=430,
                    height=MAP_HEIGHT + 130,
                    css_classes=["panel"],
                    stylesheets=[style],
                ),
                sizing_mode="stretch_width",
            ),
            _titled("Workers", self._worker_table, style=style),
            _titled("Shards", self._filter, self._shard_table, style=style),
            _titled("Failures", self._failures, style=style),
            sizing_mode="stretch_width",
            name="page",
        )
        self.update()

    def update(self) -> None:
        """Show the latest look, if it is new."""
        look = self._watcher.look
        self._watcher.show_map_of(self._chosen(look))
        if look.number == self._number:
            return
        self._number = look.number
        _set_text(self._heading, texts.heading(look))
        _set_text(self._messages, texts.messages(look))
        _set_text(self._failures, texts.failures(look))
        names = list(look.stream_names)
        if names != self._stream.options:
            self._stream.update(options=names, visible=len(names) > 1)
            if self._stream.value not in names:
                self._stream.value = names[0]
        _set(self._shards, columns.shard_columns(look))
        _set(self._workers, columns.worker_columns(look))
        self._worker_table.height = height_for(len(self._workers.data["worker"]), MOST_WORKERS)
        self._shard_table.height = height_for(len(look.view.shards), MOST_SHARDS)
        self._records.visible = bool(look.reported.worker_rates)
        self._chart.data = columns.chart_columns(look)
        self._draw_map(look)

    def _choose(self, attr: str, old: str, new: str) -> None:  # noqa: ARG002 - as Bokeh calls it
        self._set_range = None
        self._draw_map(self._watcher.look)

    def _chosen(self, look: Look) -> Any:
        return look.stream_names.get(self._stream.value)

    def _draw_map(self, look: Look) -> None:
        stream = self._chosen(look)
        self._watcher.show_map_of(stream)
        found = columns.map_columns(look, stream)
        _set(self._map, found)
        x_range = self._plot.x_range
        if self._set_range in (None, (x_range.start, x_range.end)):  # else somebody has zoomed
            self._set_range = columns.map_edges(found, look.at)
            x_range.update(start=self._set_range[0], end=self._set_range[1])

    def _map_options(self) -> Any:
        colour = RadioButtonGroup(labels=["by owner", "by lag"], active=0, width=170)
        boxes = self._plot.select_one({"name": "boxes"})
        colour.js_on_change(
            "active",
            CustomJS(
                args={"boxes": boxes},
                code="boxes.glyph.fill_color = {field: ['by_owner', 'by_lag'][cb_obj.active]}",
            ),
        )
        return row(self._stream, colour)


def _set(source: ColumnDataSource, data: columns.Columns) -> None:
    """Send columns to the browser, unless they are there already."""
    if source.data != data:
        source.data = data


def _set_text(div: Div, text: str) -> None:
    if div.text != text:
        div.update(text=text, visible=bool(text))


def _div(name: str, style: InlineStyleSheet) -> Div:
    return Div(name=name, text="", visible=False, sizing_mode="stretch_width", stylesheets=[style])


def _titled(title: str, *parts: Any, style: InlineStyleSheet) -> Any:
    heading = Div(text=f"<h2>{title}</h2>", stylesheets=[style])
    return column(
        heading, *parts, sizing_mode="stretch_width", css_classes=["panel"], stylesheets=[style]
    )
