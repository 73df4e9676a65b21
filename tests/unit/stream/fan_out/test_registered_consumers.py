"""When a stream has as many consumers as it may."""

from __future__ import annotations

import pytest

from sparkinesis.stream.fan_out.registered_consumers import RegisteredConsumer, is_full


@pytest.mark.parametrize(
    ("active", "creating", "deleting", "full"),
    [
        (20, 0, 0, True),
        (16, 4, 0, True),
        (19, 0, 0, False),  # too many calls a second, then
        (14, 5, 0, False),
        (30, 5, 0, False),  # more than 20 are permitted here; those five will be ACTIVE soon
        (19, 0, 1, False),  # there will be room
    ],
)
def test_is_full(active: int, creating: int, deleting: int, full: bool) -> None:
    states = ["ACTIVE"] * active + ["CREATING"] * creating + ["DELETING"] * deleting
    assert (
        is_full([RegisteredConsumer(f"c{n}", f"arn-{n}", state) for n, state in enumerate(states)])
        is full
    )
