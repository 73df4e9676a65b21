"""The map of shards, and the lines of the last hour."""

from __future__ import annotations

from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, NumeralTickFormatter, Range1d
from bokeh.plotting import figure

MAP_HEIGHT = 400
_LINES = {"lag": "#d63a3a", "kbps": "#3b7dd8", "records": "#3f9d5a"}


def map_figure(source: ColumnDataSource) -> Any:
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
        height=MAP_HEIGHT,
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


def line_chart(name: str, title: str, source: ColumnDataSource) -> Any:
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
