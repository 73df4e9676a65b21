"""Bars as SVG: no library is needed, and the text of a file changes only where a figure does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 760
LABEL = 170
VALUE = 150
BAR = 16
ROW = 22
GAP = 14
TITLE = 20
TOP = 56
OURS = "#2f6f4f"
OTHERS = "#b9c2cc"
SPREAD = "#333333"


@dataclass(frozen=True)
class Bar:
    """One competitor's median, and the least and the most of its rounds."""

    name: str
    median: float
    low: float
    high: float
    text: str
    is_ours: bool


@dataclass(frozen=True)
class Group:
    """The bars of one case, which share a scale."""

    title: str
    bars: tuple[Bar, ...]


def svg(title: str, subtitle: str, groups: Sequence[Group]) -> str:
    """A drawing of groups of bars, shorter is better; the line at a bar's end is the spread."""
    body: list[str] = []
    y = TOP
    for group in groups:
        body.append(_text(12, y + 13, group.title, "bold"))
        y += TITLE
        most = max((bar.high for bar in group.bars), default=0.0) or 1.0
        room = WIDTH - LABEL - VALUE
        for bar in group.bars:
            body.append(_text(LABEL - 8, y + 13, bar.name, "normal", "end"))
            color = OURS if bar.is_ours else OTHERS
            width = room * bar.median / most
            body.append(
                f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{color}"/>'
            )
            low, high = (LABEL + room * value / most for value in (bar.low, bar.high))
            middle = y + BAR // 2
            body.append(
                f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" '
                f'stroke="{SPREAD}"/>'
            )
            body.append(_text(LABEL + room * bar.high / most + 8, y + 13, bar.text))
            y += ROW
        y += GAP
    size = f'width="{WIDTH}" height="{y}"'
    box = f'viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="13"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box}>',
        f'<rect {size} fill="#ffffff"/>',
        _text(12, 22, title, "bold"),
        _text(12, 41, subtitle),
    ]
    return "\n".join([*head, *body, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, weight: str = "normal", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" font-weight="{weight}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )
