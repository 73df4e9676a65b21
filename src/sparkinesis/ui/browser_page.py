"""The page: tables of workers and shards, the map of shards, the lines of the last hour.

Each browser has a document of its own. All of them show the snapshots of one `Watcher`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bokeh.layouts import column, row
from bokeh.models import (
    CDSView,
    ColumnDataSource,
    CustomJS,
    CustomJSFilter,
    DataTable,
    Div,
    HoverTool,
    HTMLTemplateFormatter,
    InlineStyleSheet,
    NumeralTickFormatter,
    RadioButtonGroup,
    Range1d,
    Select,
    TableColumn,
    TextInput,
)
from bokeh.plotting import figure

from sparkinesis.ui import page_columns, texts

if TYPE_CHECKING:
    from bokeh.document import Document

    from sparkinesis.ui.watcher import PageSnapshot, Watcher

STATIC = Path(__file__).with_name("static")

_ASK_EVERY_MS = 500
"""The interval at which a document asks for a new snapshot."""


def _text(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def open_page(document: Document, watcher: Watcher) -> None:
    """Fill a new document, and keep it up to date as long as its browser shows it."""
    page = BrowserPage(watcher)
    document.title = watcher.snapshot.view.title
    document.template = _text("page.html")
    document.template_variables.update(style=_text("page.css"), script=_text("page.js"))
    document.add_root(page.layout)
    document.add_periodic_callback(page.update, _ASK_EVERY_MS)
    gone = "document.getElementById('gone').hidden = {}"
    document.js_on_event("connection_lost", CustomJS(code=gone.format("false")))
    document.js_on_event("client_reconnected", CustomJS(code=gone.format("true")))


class BrowserPage:
    """One browser's page: texts, tables, the map of shards, and charts."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._number = -1
        snapshot = watcher.snapshot
        style = InlineStyleSheet(css=_text("parts.css"))
        self._texts = {name: _div(name, style) for name in _TEXTS}
        self._map = _ShardMap(watcher)
        self._tables = _Tables(snapshot, style, self._map.stream)
        self._chart = ColumnDataSource(page_columns.chart_columns(snapshot), name="chart")
        self._records = _line_chart("records", "Records per second", self._chart)
        self.layout = column(
            self._texts["heading"],
            self._texts["messages"],
            row(
                _titled("Shards over time", self._map.options(), self._map.plot, style=style),
                column(
                    _line_chart("lag", "Behind, in seconds", self._chart),
                    _line_chart("kbps", "KB/s", self._chart),
                    self._records,
                    width=430,
                    height=_MAP_HEIGHT + 130,
                    css_classes=["panel"],
                    stylesheets=[style],
                ),
                sizing_mode="stretch_width",
            ),
            _titled("Workers", self._tables.worker_table, style=style),
            _titled("Shards", self._tables.filter, self._tables.shard_table, style=style),
            _titled("Failures", self._texts["failures"], style=style),
            sizing_mode="stretch_width",
            name="page",
        )
        self.update()

    def update(self) -> None:
        """Show the latest snapshot, if it is new."""
        snapshot = self._watcher.snapshot
        self._map.keep_listed(snapshot)
        if snapshot.number == self._number:
            return
        self._number = snapshot.number
        for name, make in _TEXTS.items():
            _set_text(self._texts[name], make(snapshot))
        self._map.offer_streams(snapshot)
        self._tables.update(snapshot)
        self._records.visible = bool(snapshot.reported.worker_rates)
        self._chart.data = page_columns.chart_columns(snapshot)
        self._map.draw(snapshot)


_TEXTS = {"heading": texts.heading, "messages": texts.messages, "failures": texts.failures}


class _ShardMap:
    """The map of one stream's shards, and the choice of the stream."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        snapshot = watcher.snapshot
        names = list(snapshot.stream_names)
        self.stream = Select(
            title="Stream", value=names[0], options=names, visible=len(names) > 1, name="stream"
        )
        self.stream.on_change("value", self._choose)
        self._source = ColumnDataSource(
            page_columns.map_columns(snapshot, snapshot.stream_names.get(self.stream.value)),
            name="map",
        )
        self._set_range: tuple[float, float] | None = None
        """The range that `draw` has set last; None: it has to set one."""
        self.plot = _map_figure(self._source)

    def options(self) -> Any:
        """Return what the user can choose: the stream, and what the colours mean."""
        colour = RadioButtonGroup(labels=["by owner", "by lag"], active=0, width=170)
        boxes = self.plot.select_one({"name": "boxes"})
        colour.js_on_change(
            "active",
            CustomJS(
                args={"boxes": boxes},
                code="boxes.glyph.fill_color = {field: ['by_owner', 'by_lag'][cb_obj.active]}",
            ),
        )
        return row(self.stream, colour)

    def keep_listed(self, snapshot: PageSnapshot) -> None:
        """Have the shards of the chosen stream listed."""
        self._watcher.show_map_of(snapshot.stream_names.get(self.stream.value))

    def offer_streams(self, snapshot: PageSnapshot) -> None:
        """Offer the streams of a snapshot; the first one, if the chosen one is gone."""
        names = list(snapshot.stream_names)
        if names != self.stream.options:
            self.stream.update(options=names, visible=len(names) > 1)
            if self.stream.value not in names:
                self.stream.value = names[0]

    def draw(self, snapshot: PageSnapshot) -> None:
        self.keep_listed(snapshot)
        found = page_columns.map_columns(snapshot, snapshot.stream_names.get(self.stream.value))
        _set(self._source, found)
        x_range = self.plot.x_range
        if self._set_range in (None, (x_range.start, x_range.end)):  # else a user has zoomed
            self._set_range = page_columns.map_edges(found, snapshot.at)
            x_range.update(start=self._set_range[0], end=self._set_range[1])

    def _choose(self, attr: str, old: str, new: str) -> None:  # noqa: ARG002 - as Bokeh calls it
        self._set_range = None
        self.draw(self._watcher.snapshot)


class _Tables:
    """The tables of workers and shards. ``stream``: the choice of the stream."""

    def __init__(self, snapshot: PageSnapshot, style: InlineStyleSheet, stream: Select) -> None:
        self._workers = ColumnDataSource(page_columns.worker_columns(snapshot), name="workers")
        self._shards = ColumnDataSource(page_columns.shard_columns(snapshot), name="shards")
        self.worker_table = _worker_table(self._workers, style)
        self.filter, self.shard_table = _shard_table(self._shards, style, stream)

    def update(self, snapshot: PageSnapshot) -> None:
        _set(self._shards, page_columns.shard_columns(snapshot))
        _set(self._workers, page_columns.worker_columns(snapshot))
        self.worker_table.height = _height_for(len(self._workers.data["worker"]), _MOST_WORKERS)
        self.shard_table.height = _height_for(len(snapshot.view.shards), _MOST_SHARDS)


def _set(source: ColumnDataSource, data: page_columns.Columns) -> None:
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


_ROW = 26
_MOST_WORKERS, _MOST_SHARDS = 8, 18
"""Rows that are shown at once; the others are scrolled to."""

# `<%- ... %>` escapes: a name in the table may hold any text.
_LAG = '<div class="number <%- late %>"><%- behind %></div>'
_STATE = '<span class="state <%- value.replace(/ /g, "-") %>"><%- value %></span>'
_CHECKPOINT = (
    '<span title="<%- value %>"><%- value.length > 24 ? "…" + value.slice(-20) : value %></span>'
)

_FITS = """
const words = wanted.value_input.toLowerCase().split(/\\s+/).filter(Boolean)
const {lease, owner, state, note} = source.data
return Array.from(lease, (_, i) => {
    const text = [lease[i], owner[i], state[i], note[i]].join(" ").toLowerCase()
    return words.every((word) => text.includes(word))
})
"""
"""The filter of the shards, which runs in the browser: all words are in what is shown."""


def _height_for(rows: int, most: int) -> int:
    """Return the height of a table in pixels."""
    return 34 + _ROW * min(max(rows, 1), most)


def _number(text: str) -> HTMLTemplateFormatter:
    return HTMLTemplateFormatter(template=f'<div class="number"><%- {text} %></div>')


def _columns(*given: tuple[str, str, int, HTMLTemplateFormatter | None]) -> list[TableColumn]:
    return [
        TableColumn(
            field=field,
            title=title,
            width=width,
            formatter=form or HTMLTemplateFormatter(template="<%- value %>"),
        )
        for field, title, width, form in given
    ]


def _table(
    source: ColumnDataSource, style: InlineStyleSheet, view: CDSView | None = None, **given: Any
) -> DataTable:
    view = view or CDSView()
    # Bokeh draws a table anew if its view changes, but not if the view has the same rows as before.
    source.js_on_change("data", CustomJS(args={"view": view}, code="view.change.emit()"))
    return DataTable(
        source=source,
        view=view,
        sizing_mode="stretch_width",
        index_position=None,
        autosize_mode="force_fit",
        row_height=_ROW,
        stylesheets=[style],
        **given,
    )


def _worker_table(source: ColumnDataSource, style: InlineStyleSheet) -> DataTable:
    share = '<div class="bar"><i style="width:<%= +value * 0.56 %>px"></i><%- value %> %</div>'
    name = '<i class="dot" style="background:<%- colour %>"></i><%- value %>'
    given = _columns(
        ("worker", "worker", 260, HTMLTemplateFormatter(template=name)),
        ("shards", "shards", 70, _number("value")),
        ("share", "share", 160, HTMLTemplateFormatter(template=share)),
        ("behind_ms", "behind", 80, _number("behind")),
        ("kbps", "KB/s", 80, _number("kbps_text")),
        ("records", "records/s", 90, _number("records_text")),
        ("note", "", 260, None),
    )
    return _table(
        source, style, columns=given, height=_height_for(1, _MOST_WORKERS), name="worker-table"
    )


def _shard_table(
    source: ColumnDataSource, style: InlineStyleSheet, stream: Select
) -> tuple[Any, ...]:
    wanted = TextInput(placeholder="Filter: a shard, an owner, a state", width=320, name="filter")
    fits = CustomJSFilter(args={"wanted": wanted}, code=_FITS)
    wanted.js_on_change(
        "value_input", CustomJS(args={"source": source}, code="source.change.emit()")
    )
    # A click on a row names its lease in the form that releases one.
    source.selected.js_on_change(
        "indices",
        CustomJS(
            args={"source": source},
            code="if (cb_obj.indices.length)"
            " window.chooseLease(source.data.lease[cb_obj.indices[0]])",
        ),
    )
    given = _columns(
        ("stream", "stream", 120, None),
        ("shard", "shard", 170, None),
        ("owner", "owner", 200, None),
        ("state", "state", 110, HTMLTemplateFormatter(template=_STATE)),
        ("behind_ms", "behind", 80, HTMLTemplateFormatter(template=_LAG)),
        ("kbps", "KB/s", 80, _number("kbps_text")),
        ("records", "records/s", 80, _number("records_text")),
        ("checkpoint", "checkpoint", 190, HTMLTemplateFormatter(template=_CHECKPOINT)),
        ("parents", "from", 70, None),
        ("children", "into", 70, None),
        ("note", "", 200, None),
    )  # fmt: skip
    # The streams of an application may become several while the page is open.
    given[0].visible = stream.visible
    stream.js_link("visible", given[0], "visible")
    table = _table(
        source, style, CDSView(filter=fits), columns=given, height=_height_for(1, _MOST_SHARDS),
        name="shard-table",
    )  # fmt: skip
    return wanted, table


_MAP_HEIGHT = 400
_LINES = {"lag": "#d63a3a", "kbps": "#3b7dd8", "records": "#3f9d5a"}


def _map_figure(source: ColumnDataSource) -> Any:
    tips = [
        ("shard", "@shard (@is_open)"),
        ("owner", "@owner, @state"),
        ("behind", "@behind"),
        ("KB/s", "@kbps"),
        ("parents", "@parents"),
        ("children", "@children"),
        ("since", "@left{%F %T}"),
    ]
    plot = figure(
        height=_MAP_HEIGHT,
        sizing_mode="stretch_width",
        x_axis_type="datetime",
        x_range=Range1d(0, 1),
        y_range=Range1d(0, 100, bounds="auto"),
        tools="xpan,xwheel_zoom,ypan,ywheel_zoom,box_zoom,reset",
        active_scroll=None,
        name="shard-map",
        y_axis_label="hash keys, %",
        toolbar_location="above",
    )
    boxes = plot.quad(
        left="left", right="right", bottom="bottom", top="top", fill_color={"field": "by_owner"},
        fill_alpha="faded", line_color="white", line_width=1.5, line_alpha="edge", source=source,
        name="boxes",
    )  # fmt: skip
    plot.text(
        x="right", y="middle", text="number", source=source, text_baseline="middle",
        text_align="right", x_offset=-4, text_font_size="10px", text_color="white", name="numbers",
    )  # fmt: skip
    plot.add_tools(HoverTool(renderers=[boxes], tooltips=tips, formatters={"@left": "datetime"}))
    plot.grid.visible = False
    _plain(plot)
    return plot


def _line_chart(name: str, title: str, source: ColumnDataSource) -> Any:
    plot = figure(
        height=140, sizing_mode="stretch_both", x_axis_type="datetime", tools="", title=title,
        name=f"{name}-chart", toolbar_location=None,
    )  # fmt: skip
    plot.line("at", name, source=source, line_color=_LINES[name], line_width=2)
    plot.y_range.start = 0
    plot.yaxis.formatter = NumeralTickFormatter(format="0.[0]a")
    plot.yaxis.ticker.desired_num_ticks, plot.xaxis.ticker.desired_num_ticks = 3, 4
    plot.add_tools(
        HoverTool(
            tooltips=[("", f"@{name}{{0,0.[0]}} at @at{{%T}}")],
            formatters={"@at": "datetime"},
            mode="vline",
        )
    )
    _plain(plot)
    return plot


def _plain(plot: Any) -> None:
    plot.background_fill_color = plot.border_fill_color = None
    plot.outline_line_color = None
    plot.title.text_font_size = "12px"
    plot.axis.axis_line_color = plot.axis.major_tick_line_color = "#b6bdc8"
    plot.axis.minor_tick_line_color = None
    plot.axis.axis_label_text_font_style = "normal"
    plot.toolbar.logo = None
