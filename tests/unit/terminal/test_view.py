"""How an application is shown: within any terminal, the worst first, nothing by colour alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from rich.console import Console

from sparkinesis.terminal.live import render
from sparkinesis.terminal.printing import short_owners, short_shards
from sparkinesis.terminal.view import GroupRow, ShardRow, View, behind, summary_line

SIZES = [(80, 24), (120, 40), (200, 50)]
UUID = "4f7c1e52-9b1d-4c5e-8d0a-{:012d}"
LONG = [f"ip-10-0-{n}-17.ec2.internal:{UUID.format(n * 7919)}" for n in range(60)]


def shard_id(number: int) -> str:
    return f"shardId-{number:012d}"


def view(
    shards: int,
    owners: int,
    *,
    lags: Sequence[int | None] = (500,),
    messages: tuple[str, ...] = (),
    names: Sequence[str] = LONG,
) -> View:
    """Shards and their lags go to the owners in turn."""
    rows = tuple(
        ShardRow(shard_id(n), names[n % owners], "held", lags[n % len(lags)], 12.5, f"at {n}")
        for n in range(shards)
    )
    mine = {name: [row for row in rows if row.owner == name] for name in names[:owners]}
    return View(
        "delays, stream flights",
        "updated every 2 s",
        "KB/s",
        tuple(
            GroupRow(name, len(its), max((r.millis_behind or 0 for r in its), default=0), 12.5)
            for name, its in mine.items()
        ),
        rows,
        messages,
    )


def shown(what: View, width: int, height: int, *, terminal: bool = False) -> list[str]:
    """The lines, as they are printed."""
    console = Console(
        width=width,
        height=height,
        force_terminal=terminal,
        color_system="truecolor" if terminal else None,
        highlight=False,
    )
    with console.capture() as captured:
        console.print(render(what, width, height))
    return captured.get().splitlines()


def cells(lines: Sequence[str]) -> list[str]:
    """The shards of a view in their order on the screen, column by column."""
    start = next(n for n, line in enumerate(lines) if line.startswith("shards, worst lag first"))
    found: list[list[str]] = []
    for line in lines[start + 1 :]:
        row = [match[1] for match in re.finditer(r"(?:^ *|  +)(\d+) (?:w\d+|-) ", line)]
        if not row or line.startswith("..."):
            break
        for at, shard in enumerate(row):
            found += [[]] if at == len(found) else []
            found[at].append(shard)
    return [shard for column in found for shard in column]


@pytest.mark.parametrize(("width", "height"), [*SIZES, (20, 6), (3, 2), (1, 1)])
@pytest.mark.parametrize("shards", [0, 1, 16, 200])
@pytest.mark.parametrize("owners", [1, 8, 60])
@pytest.mark.parametrize("messages", [(), ("x" * 300, "a\nb", "c", "d", "e", "f")])
def test_it_fits(
    width: int, height: int, shards: int, *, owners: int, messages: tuple[str, ...]
) -> None:
    lags = (None, 0, 12_345, 3_600_000)
    for what in (view(shards, owners, lags=lags, messages=messages), of_streams(5 * shards)):
        lines = shown(what, width, height)
        assert 0 < len(lines) <= height
        assert max(map(len, lines)) <= width
        assert all(line.isascii() and (not line or line.isprintable()) for line in lines)
        assert lines[0] == f"{what.title}  {what.summary}"[:width].rstrip()


def of_streams(count: int, names: Sequence[str] = ()) -> View:
    """A shard of each stream; the shards have the same id, and the last stream is the latest."""
    names = names or [f"stream-{n}" for n in range(count)]
    rows = tuple(
        ShardRow(f"1:{name}:7:{shard_id(0)}", "host-1", "held", n * 1000, 5.0, stream=name)
        for n, name in enumerate(names)
    )
    streams = tuple(GroupRow(name, 1, n * 1000, 5.0) for n, name in enumerate(names))
    owners = (GroupRow("host-1", count, (count - 1) * 1000, 5.0 * count),)
    return View("app, many", "now", "KB/s", owners, rows, streams=streams)


def test_streams_have_a_line_each_and_their_shards_stand_behind_their_names() -> None:
    lines = [line.split() for line in shown(of_streams(3), 80, 24)[3:]]
    assert lines == [
        ["owner", "shards", "behind", "KB/s"],
        ["host-1", "3", "2.0", "s", "15.0"],
        [],
        ["stream", "shards", "behind", "KB/s"],
        ["stream-2", "1", "2.0", "s", "5.0"],
        ["stream-1", "1", "1.0", "s", "5.0"],
        ["stream-0", "1", "0.0", "s", "5.0"],
        [],
        ["shard", "owner", "state", "behind", "KB/s"],
        *([f"stream-{n}/0", "host-1", "held", f"{n}.0", "s", "5.0"] for n in range(3)),
    ]


def test_shards_of_streams_keep_their_own_numbers() -> None:
    places = [("web", 0), ("web", 12), ("app", 12)]
    rows = tuple(
        ShardRow(f"1:{name}:7:{shard_id(n)}", "host-1", "held", 0, 5.0, stream=name)
        for name, n in places
    )
    lines = shown(View("t", "s", "KB/s", (), rows), 80, 24)
    assert {line.split()[0] for line in lines[-3:]} == {"web/0", "web/12", "app/12"}


def test_of_a_thousand_streams_the_latest_are_shown_and_the_rest_is_counted() -> None:
    lines = shown(of_streams(1000), 80, 24)
    start = lines.index("streams, worst lag first: shards, behind, KB/s")
    assert lines[start + 1].split()[0] == "stream-999"
    counts = [line for line in lines if line.startswith("... ")]
    assert len(counts) == 2
    assert counts[1].endswith(" held")
    shards = next(n for n, line in enumerate(lines) if line.startswith("shards, worst lag first"))
    assert lines[shards + 1].split()[:3] == ["stream-999/0", "host-1", "!!17"]


def test_a_cell_without_a_rate_has_the_state_and_streams_that_are_not_read_are_counted() -> None:
    ended = ShardRow(shard_id(999), None, "finished", None, None)
    what = view(40, 1, names=["a"])
    assert any("999 -" in one and "finished" in one for one in shown(
        View("t", "s", "KB/s", what.owners, (*what.shards, ended)), 100, 24
    ))  # fmt: skip
    unread = tuple(GroupRow(f"s{n}", 1, None, None, "x", is_amiss=True) for n in range(100))
    lines = shown(View("t", "s", "KB/s", streams=unread), 60, 12)
    assert any(re.fullmatch(r"\.\.\. \d+ more: \d+ not read", one) for one in lines)


def test_a_long_name_of_a_stream_leaves_room_for_the_rest() -> None:
    names = ["a" * 64 + "b" * 64, "c" * 64 + "d" * 64]
    line = next(line for line in shown(of_streams(2, names), 100, 24) if "/0" in line)
    assert line.startswith("a" * 16 + "…" + "b" * 15 + "/0  host-1  held")


@pytest.mark.parametrize("owners", [1, 8, 60])
@pytest.mark.parametrize("messages", [(), ("one",), ("one", "two", "three")])
def test_a_large_terminal_shows_all_of_200_shards(owners: int, messages: tuple[str, ...]) -> None:
    lines = shown(view(200, owners, messages=messages), 200, 50)
    assert sorted(cells(lines), key=int) == [str(n) for n in range(200)]
    assert [line for line in lines if line in messages] == list(messages)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_worst_lag_is_seen_first(width: int, height: int) -> None:
    lags = [n * 1000 for n in range(200)]
    lines = shown(view(200, 8, lags=lags), width, height)
    order = cells(lines)
    assert len(order) == (200 if width == 200 else len(set(order)))
    worst = [str(n) for n in range(199, -1, -1)]
    late = [shard for shard in worst if int(shard) >= 10]
    assert order[:190] == late[: len(order)]
    if width == 200:
        assert order[190:] == [str(n) for n in range(10)], "hardly late: they keep their places"
    assert "!! 3 min behind" in lines[1]


def test_a_small_terminal_tells_how_many_are_left_and_in_what_state() -> None:
    what = view(200, 8)
    finished = ShardRow(shard_id(200), None, "finished", None, None)
    lines = shown(
        View(*(what.title, what.summary, "KB/s"), what.owners, (*what.shards, finished)), 80, 24
    )
    assert lines[1].startswith("201 shards (200 held, 1 finished)  8 owners  0.5 s behind")
    count = len(cells(lines))
    assert count >= 24
    assert lines[-1] == f"... {201 - count} more: {200 - count} held, 1 finished"


def test_owners_that_do_not_fit_are_counted_and_the_latest_stays() -> None:
    lags = [n * 1000 for n in range(60)]
    lines = shown(view(200, 60, lags=lags), 80, 24)
    assert lines[3] == "owners: shards, behind, KB/s"
    assert LONG[59][:12] in lines[4]
    more = next(line for line in lines if line.startswith("... "))
    assert re.fullmatch(r"\.\.\. \d+ more", more)


def test_owners_and_shards_take_a_line_each_where_there_is_room() -> None:
    lines = shown(view(3, 2, lags=(500, 15_000, None), names=["host-1", "host-2"]), 80, 24)
    assert lines[1] == "3 shards (3 held)  2 owners  ! 15.0 s behind  25.0 KB/s"
    assert [line.split() for line in lines[3:]] == [
        ["owner", "shards", "behind", "KB/s"],
        ["host-1", "2", "0.5", "s", "12.5"],
        ["host-2", "1", "!", "15.0", "s", "12.5"],
        [],
        ["shard", "owner", "state", "behind", "KB/s"],
        ["1", "host-2", "held", "!", "15.0", "s", "12.5", "at", "1"],
        ["0", "host-1", "held", "0.5", "s", "12.5", "at", "0"],
        ["2", "host-1", "held", "-", "12.5", "at", "2"],
    ]
    columns = {line.index("KB/s") + 4 for line in (lines[3], lines[7])}
    columns |= {line.index("12.5") + 4 for line in (*lines[4:6], *lines[8:])}
    assert len(columns) <= 2, "figures stand under their headings"


def test_what_is_amiss_comes_first_though_its_lag_is_not_known() -> None:
    late = ShardRow(shard_id(1), "a", "held", 90_000, 1.0)
    lost = ShardRow(shard_id(2), "a", "held", None, 1.0, "expired", is_amiss=True)
    lines = shown(View("t", "s", "KB/s", (GroupRow("a", 2, 90_000, 1.0),), (late, lost)), 80, 24)
    assert lines[7].split() == ["2", "a", "held", "!!", "-", "1.0", "expired"]
    assert lines[8].split() == ["1", "a", "held", "!!", "90.0", "s", "1.0"]


def test_lag_has_a_colour_on_a_terminal_and_a_sign_everywhere() -> None:
    what = view(4, 1, lags=(9_999, 10_000, 59_999, 60_000), names=["a"])
    coloured = "\n".join(shown(what, 80, 24, terminal=True))
    found = re.findall(r"\x1b\[3([123])m +(!*) *([\d.]+ s)", coloured)[1:]
    assert found == [
        ("1", "!!", "60.0 s"),
        ("3", "!", "60.0 s"),
        ("3", "!", "10.0 s"),
        ("2", "", "10.0 s"),
    ]
    plain = shown(what, 80, 24)
    assert "\x1b" not in "".join(plain)
    assert plain == re.sub(r"\x1b\[[\d;]*m", "", coloured).splitlines()


def test_text_from_elsewhere_cannot_move_the_cursor() -> None:
    evil = "w\x1b[2J\r\nx"
    row = ShardRow(f"{evil}-1", evil, evil, 1, 1.0, evil, is_amiss=True)
    what = View(evil, evil, "KB/s", (GroupRow(evil, 1, 1, 1.0, evil),), (row,), (evil,))
    lines = shown(what, 80, 24)
    assert "\x1b" not in "".join(lines)
    assert len(lines) == 10
    assert "\x1b" not in summary_line(what)
    assert "\n" not in summary_line(what)


def test_wide_characters_take_two_columns() -> None:
    names = ["飛行機の遅延を数える係-1", "飛行機の遅延を数える係-2"]
    console = Console(width=40, height=24, highlight=False)
    lines = console.render_lines(render(view(40, 2, names=names), 40, 24))
    assert len(lines) <= 24
    assert all(sum(segment.cell_length for segment in line) <= 40 for line in lines)


def test_summary_line() -> None:
    assert summary_line(view(3, 2, lags=(500, 15_000, None))) == (
        "delays, stream flights: updated every 2 s; "
        "3 shards (3 held), 2 owners, ! 15.0 s behind, 25.0 KB/s"
    )
    assert (
        summary_line(View("t", "s", "records/s"))
        == "t: s; 0 shards, 0 owners, lag unknown, rate unknown"
    )


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (None, "-"), (0, "0.0 s"), (99_949, "99.9 s"), (99_950, "2 min"), (5_969_000, "99 min"),
        (5_970_000, "1.7 h"), (359_000_000, "99.7 h"), (360_000_000, "4 d"),
        (31_536_000_000, "365 d"),
    ],
)  # fmt: skip
def test_lags_in_six_characters(millis: int | None, text: str) -> None:
    assert behind(millis) == text
    assert len(text) <= 6


def test_short_shards() -> None:
    assert short_shards([shard_id(0), shard_id(12)]) == {shard_id(0): "0", shard_id(12): "12"}
    assert short_shards([shard_id(10)]) == {shard_id(10): "10"}
    ours, theirs = f"1:flights:17:{shard_id(1)}", f"1:delays:18:{shard_id(1)}"
    assert short_shards([ours, theirs]) == {ours: "flights:17:1", theirs: "delays:18:1"}
    assert short_shards([ours]) == {ours: "1:flights:17:1"}
    assert short_shards(["odd", ""]) == {"odd": "odd", "": ""}


def test_short_owners() -> None:
    assert short_owners(["a", "host-1"]) == {"a": "a", "host-1": "host-1"}
    assert short_owners(["worker-a.lan", "worker-b.lan"]) == {
        "worker-a.lan": "a",
        "worker-b.lan": "b",
    }
    assert short_owners(["executor-2", "executor-10"]) == {"executor-2": "w2", "executor-10": "w10"}
    assert short_owners([LONG[1], LONG[0]]) == {LONG[0]: "w1", LONG[1]: "w2"}
    assert short_owners(["executor-1", "executor-1-1"]) == {
        "executor-1": "w1",
        "executor-1-1": "1-1",
    }
    assert short_owners(["executor-", "executor-x"]) == {"executor-": "w1", "executor-x": "w2"}
