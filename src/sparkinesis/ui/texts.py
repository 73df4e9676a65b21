"""A look as HTML: its heading, its messages, and the failures. Pure.

Everything that comes from a table, a stream or a worker is escaped: it may hold any text.
"""

from __future__ import annotations

from datetime import datetime, timezone
from html import escape

from sparkinesis.status import Failure
from sparkinesis.terminal.view import LATE_MS, VERY_LATE_MS, behind, figures, rate_text
from sparkinesis.ui.look import Look

_MOST_MESSAGES = 12
_MOST_FAILURES = 30


def heading(look: Look) -> str:
    """Return the title, and the figures as cards."""
    view = look.view
    shards, owners, lag, _ = figures(view)
    number, _, kind = shards.partition(" ")
    kind, _, states = kind.partition(" (")
    owner_number, _, owner_kind = owners.partition(" ")
    level = ""
    if view.millis_behind is not None and view.millis_behind >= LATE_MS:
        level = "very-late" if view.millis_behind >= VERY_LATE_MS else "late"
    records = look.reported.records_per_second
    failures = sum(one.count for one in look.reported.failures)
    cards = [
        (number, f"{kind}: {states.rstrip(')')}" if states else kind, ""),
        (owner_number, owner_kind, ""),
        _lag_card(lag, view.millis_behind, level),
        (rate_text(view.rate), "rate unknown" if view.rate is None else "KB/s", ""),
    ]
    if look.reported.worker_rates:
        cards.append((rate_text(records), "records/s", ""))
        cards.append((str(failures), "failures", "very-late" if failures else ""))
    boxes = "".join(
        f'<div class="card {level}"><b>{escape(value)}</b><span>{escape(what)}</span></div>'
        for value, what, level in cards
    )
    return (
        f'<h1>{escape(view.title)}</h1><p class="summary">{escape(view.summary)}; '
        f"looked at {clock_text(look.at)} UTC</p>"
        f'<div class="cards">{boxes}</div>'
    )


def _lag_card(text: str, millis: int | None, level: str) -> tuple[str, str, str]:
    if millis is None:
        return "-", text, level
    return behind(millis), "behind at least" if text.startswith("at least") else "behind", level


def clock_text(at: float) -> str:
    """Return an instant as the time of its day, in UTC."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%H:%M:%S")


def messages(look: Look) -> str:
    """Return what an operator should know, most important first; empty if there is nothing."""
    every = [*look.view.messages, *look.reported.messages]
    said = [f"<li>{escape(one)}</li>" for one in every[:_MOST_MESSAGES]]
    if len(every) > _MOST_MESSAGES:
        said.append(f"<li>and {len(every) - _MOST_MESSAGES} more</li>")
    return f'<ul class="messages">{"".join(said)}</ul>' if said else ""


def failures(look: Look) -> str:
    """Return the failures that workers report, the latest first, each with its traceback."""
    every = look.reported.failures
    if not every:
        is_asked = bool(look.reported.worker_rates)
        text = "None." if is_asked else "Shown with a fleet, or with --worker."
        return f'<p class="none">{text}</p>'
    shown = list(reversed(every))[:_MOST_FAILURES]
    return "".join(map(_failure, shown))


def _failure(one: Failure) -> str:
    shards = ", ".join(one.shard_ids)
    return (
        f"<details><summary><b>{one.count}x</b> {escape(one.error)}</summary>"
        f"<p>{escape(one.what)}{f' ({escape(shards)})' if shards else ''}</p>"
        f"<pre>{escape(one.traceback)}</pre></details>"
    )
