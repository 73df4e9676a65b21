"""The tables of workers and of shards."""

from __future__ import annotations

from typing import Any

from bokeh.models import (
    CDSView,
    ColumnDataSource,
    CustomJS,
    CustomJSFilter,
    DataTable,
    HTMLTemplateFormatter,
    InlineStyleSheet,
    Select,
    TableColumn,
    TextInput,
)

_ROW = 26
MOST_WORKERS, MOST_SHARDS = 8, 18
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


def height_for(rows: int, most: int) -> int:
    """Return the height of a table in pixels."""
    return 34 + _ROW * min(max(rows, 1), most)


def _cell(template: str) -> HTMLTemplateFormatter:
    return HTMLTemplateFormatter(template=template)


def _number(text: str) -> HTMLTemplateFormatter:
    return _cell(f'<div class="number"><%- {text} %></div>')


def _columns(*given: tuple[str, str, int, HTMLTemplateFormatter | None]) -> list[TableColumn]:
    return [
        TableColumn(field=field, title=title, width=width, formatter=form or _cell("<%- value %>"))
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


def worker_table(source: ColumnDataSource, style: InlineStyleSheet) -> DataTable:
    share = '<div class="bar"><i style="width:<%= +value * 0.56 %>px"></i><%- value %> %</div>'
    name = '<i class="dot" style="background:<%- colour %>"></i><%- value %>'
    given = _columns(
        ("worker", "worker", 260, _cell(name)),
        ("shards", "shards", 70, _number("value")),
        ("share", "share", 160, _cell(share)),
        ("behind_ms", "behind", 80, _number("behind")),
        ("kbps", "KB/s", 80, _number("kbps_text")),
        ("records", "records/s", 90, _number("records_text")),
        ("note", "", 260, None),
    )
    return _table(
        source, style, columns=given, height=height_for(1, MOST_WORKERS), name="worker-table"
    )


def shard_table(
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
        ("state", "state", 110, _cell(_STATE)),
        ("behind_ms", "behind", 80, _cell(_LAG)),
        ("kbps", "KB/s", 80, _number("kbps_text")),
        ("records", "records/s", 80, _number("records_text")),
        ("checkpoint", "checkpoint", 190, _cell(_CHECKPOINT)),
        ("parents", "from", 70, None),
        ("children", "into", 70, None),
        ("note", "", 200, None),
    )  # fmt: skip
    # The streams of an application may become several while the page is open.
    given[0].visible = stream.visible
    stream.js_link("visible", given[0], "visible")
    table = _table(
        source, style, CDSView(filter=fits), columns=given, height=height_for(1, MOST_SHARDS),
        name="shard-table",
    )  # fmt: skip
    return wanted, table
