"""Settings of a fleet that cannot be used, and numbers of workers that are none."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.fleet.fleet_options import FleetOptions


@pytest.mark.parametrize(
    "options",
    [
        {"heartbeat_interval": 0},
        {"heartbeat_interval": -1.0},
        {"heartbeat_interval": True},
        {"lost_after": float("inf")},
        {"lost_after": float("nan")},
        {"lost_after": "10"},
        {"lost_after": None},
        {"first_backoff": 0},
        {"longest_backoff": float("nan")},
        {"port": -1},
        {"port": 65_536},
        {"port": "7077"},
        {"port": 70.5},
        {"port": True},
        {"lost_after": 3.0, "heartbeat_interval": 2.0},
    ],
)
def test_a_setting_that_cannot_be_used_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        FleetOptions(**options)


def test_whole_seconds_and_the_last_port_will_do() -> None:
    options = FleetOptions(heartbeat_interval=5, lost_after=10, port=65_535)
    assert (options.lost_after, options.port) == (10, 65_535)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(OptionError) as caught:
        FleetOptions(lost_after=0, port=-1, host=" ", log_level="LOUD")
    first, *errors = str(caught.value).split("\n- ")
    assert first == "The options have 4 errors:"
    assert [error.split()[0] for error in errors] == ["lost_after", "port", "host", "log_level"]
