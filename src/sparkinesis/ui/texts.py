"""A snapshot as HTML: its heading, its messages, and the failures. Pure.

Everything that comes from a table, a stream or a worker is escaped: it may hold any text.
"""

from __future__ import annotations

from datetime import datetime, timezone
from html import escape

from sparkinesis.errors import printable
from sparkinesis.status import Failure
from sparkinesis.terminal.printing import counted
from sparkinesis.terminal.view import behind, lateness, rate_text, total
from sparkinesis.ui.watcher import PageSnapshot

_MOST_MESSAGES = 12
_MOST_FAILURES = 30


def heading(snapshot: PageSnapshot) -> str:
    """Return the title, and the figures as cards."""
    view = snapshot.view
    number, _, kind = counted(len(view.shards), "shard").partition(" ")
    owners, _, owner_kind = counted(len(view.owners), "owner").partition(" ")
    lag = view.shown_lag
    behind_text = "behind at least" if view.is_partial else "behind"
    records = total(snapshot.reported.worker_rates.values())
    failures = sum(one.count for one in snapshot.reported.failures)
    cards = [
        (number, f"{kind}: {view.states}" if view.shards else kind, ""),
        (owners, owner_kind, ""),
        (behind(lag), "lag unknown" if lag is None else behind_text, lateness(lag)),
        (rate_text(view.rate), "rate unknown" if view.rate is None else "KB/s", ""),
    ]
    if snapshot.reported.worker_rates:
        cards.append((rate_text(records), "records/s", ""))
        cards.append((str(failures), "failures", "very-late" if failures else ""))
    boxes = "".join(
        f'<div class="card {level}"><b>{_shown(value)}</b><span>{_shown(what)}</span></div>'
        for value, what, level in cards
    )
    return (
        f'<h1>{_shown(view.title)}</h1><p class="summary">{_shown(view.summary)}; '
        f"looked at {clock_text(snapshot.at)} UTC</p>"
        f'<div class="cards">{boxes}</div>'
    )


def _shown(text: str) -> str:
    """Return a text as HTML that shows it, and only that."""
    return escape(printable(text))


def clock_text(at: float) -> str:
    """Return an instant as the time of its day, in UTC."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%H:%M:%S")


def messages(snapshot: PageSnapshot) -> str:
    """Return what an operator should know, most important first; empty if there is nothing."""
    every = [*snapshot.view.messages, *snapshot.reported.messages]
    said = [f"<li>{_shown(one)}</li>" for one in every[:_MOST_MESSAGES]]
    if len(every) > _MOST_MESSAGES:
        said.append(f"<li>and {len(every) - _MOST_MESSAGES} more</li>")
    return f'<ul class="messages">{"".join(said)}</ul>' if said else ""


def failures(snapshot: PageSnapshot) -> str:
    """Return the failures that workers report, the latest first, each with its traceback."""
    every = snapshot.reported.failures
    if not every:
        is_asked = bool(snapshot.reported.worker_rates)
        text = "None." if is_asked else "Shown with a fleet, or with --worker."
        return f'<p class="none">{text}</p>'
    shown = list(reversed(every))[:_MOST_FAILURES]
    return "".join(map(_failure, shown))


def _since(one: Failure) -> str:
    if not one.last_ms:
        return ""  # reported by a worker of an earlier version
    return f" ({clock_text(one.first_ms / 1000)} to {clock_text(one.last_ms / 1000)})"


def _failure(one: Failure) -> str:
    shards = ", ".join(one.shard_ids)
    return (
        f"<details><summary><b>{one.count}x</b> {_shown(one.error)}{_since(one)}</summary>"
        f"<p>{_shown(one.what)}{f' ({_shown(shards)})' if shards else ''}</p>"
        f"<pre>{escape(printable(one.traceback, lines=True))}</pre></details>"
    )
