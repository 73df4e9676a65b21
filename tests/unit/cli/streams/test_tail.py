"""Where `tail` begins."""

from __future__ import annotations

import pytest

from sparkinesis.cli.streams.tail import parse_start
from sparkinesis.errors import OptionError
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, InitialPosition

NOW = 1_790_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("latest", LATEST),
        ("TRIM_HORIZON", TRIM_HORIZON),
        ("2026-09-21T14:13:20Z", AtTimestamp(NOW)),
        ("0s", AtTimestamp(NOW)),
        ("30s", AtTimestamp(NOW - 30_000)),
        (" 10m", AtTimestamp(NOW - 600_000)),
        ("2h", AtTimestamp(NOW - 7_200_000)),
        ("1d", AtTimestamp(NOW - 86_400_000)),
        ("99999999d", AtTimestamp(0)),
    ],
)
def test_positions(text: str, position: InitialPosition) -> None:
    assert parse_start(text, NOW) == position


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10x", "or an age such as 10m"),
        ("-5m", "or an age such as 10m"),
        ("", "is not a position"),
        ("2026-09-21T14:13:20", "an instant without a time zone"),
        ("2026-09-21T14:13:21Z", "an instant that is yet to come"),
    ],
)
def test_others_are_refused(text: str, why: str) -> None:
    with pytest.raises(OptionError, match=f"--from is '{text}'.*{why}"):
        parse_start(text, NOW)
