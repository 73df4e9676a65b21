"""A look as HTML."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from sparkinesis.status import Failure
from sparkinesis.terminal.view import GroupRow, ShardRow, View
from sparkinesis.ui import texts
from sparkinesis.ui.watcher import PageSnapshot, Reported

ATTACK = "<img src=x onerror=alert(1)>"


def look(**given: object) -> PageSnapshot:
    shards = (ShardRow("s-1", "w", "held", 1500, 8.0), ShardRow("s-2", None, "unowned", None, None))
    view = View("app", "updated", "KB/s", (GroupRow("w", 1, 1500, 8.0),), shards)
    return PageSnapshot(1, 1_795_000_000.0, replace(view, **given))  # type: ignore[arg-type]


def test_the_heading_has_the_figures_of_top() -> None:
    text = texts.heading(look())
    for part in (
        "<b>2</b><span>shards: 1 held, 1 unowned</span>",
        "<b>1</b><span>owner</span>",
        "<b>1.5 s</b><span>behind</span>",
        "<b>8.0</b><span>KB/s</span>",
    ):
        assert part in text
    assert "records/s" not in text, "nobody was asked"


def test_workers_that_were_asked() -> None:
    failure = Failure("f", "w", "E", "T", 3, ())
    said = Reported({"w": 12.5}, failures=(failure,))
    text = texts.heading(replace(look(), reported=said))
    assert "<b>12.5</b><span>records/s</span>" in text
    assert "<b>3</b><span>failures</span>" in text


def test_an_unknown_lag_is_no_zero() -> None:
    text = texts.heading(look(shards=()))
    assert "<b>-</b><span>lag unknown</span>" in text
    fresh = (ShardRow("s-1", "w", "held", 0, 8.0),)
    partial = texts.heading(look(shards=fresh, is_partial=True))
    assert "<b>-</b><span>lag unknown</span>" in partial, "others may be late"
    assert "behind at least" in texts.heading(look(is_partial=True))


def test_great_lags_stand_out() -> None:
    late = (ShardRow("s-1", "w", "held", 10_000, 8.0),)
    assert 'class="card late"' in texts.heading(look(shards=late))
    very = (ShardRow("s-1", "w", "held", 60_000, 8.0),)
    assert 'class="card very-late"' in texts.heading(look(shards=very))
    assert "late" not in texts.heading(look())


def test_everything_is_escaped() -> None:
    failure = Failure("f", ATTACK, ATTACK, ATTACK, 1, (ATTACK,))
    said = Reported({"w": 1.0}, messages=(ATTACK,), failures=(failure,))
    attacked = replace(look(title=ATTACK, summary=ATTACK, messages=(ATTACK,)), reported=said)
    for text in (texts.heading(attacked), texts.messages(attacked), texts.failures(attacked)):
        assert "<img" not in text
        assert "&lt;img" in text


def test_messages() -> None:
    assert texts.messages(look()) == ""
    many = texts.messages(look(messages=tuple(f"m{n}" for n in range(40))))
    assert many.count("<li>") == 13
    assert "and 28 more" in many


def test_failures_latest_first() -> None:
    both = tuple(Failure(n, n, n, n, 1, ()) for n in ("older", "newer"))
    text = texts.failures(replace(look(), reported=Reported({"w": 1.0}, failures=both)))
    assert text.index("newer") < text.index("older")
    assert " to " not in text, "when is not known"
    dated = msgspec.structs.replace(both[0], first_ms=1_700_000_000_000, last_ms=1_700_003_661_000)
    text = texts.failures(replace(look(), reported=Reported({"w": 1.0}, failures=(dated,))))
    assert "older (22:13:20 to 23:14:21)</summary>" in text
    assert "None." in texts.failures(replace(look(), reported=Reported({"w": 1.0})))
    assert "--worker" in texts.failures(look())
