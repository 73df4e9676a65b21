"""Options of queues that cannot be used are refused, each with its bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.queue.options import QueueOptions


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"wait_time": 0}, "wait_time is 0; it must be a whole number from 1 to 20."),
        ({"wait_time": 9.5}, "from 1 to 20"),
        ({"visibility_timeout": 1}, "from 2 to 43,200"),
        ({"visibility_timeout": True}, "visibility_timeout is True"),
        ({"time_limit": 0}, "time_limit is 0; it must be a number of seconds from 1 to 43200."),
        ({"acknowledge_within": 2}, "from 0 to 1"),
        ({"shutdown_timeout": float("nan")}, "shutdown_timeout is nan"),
        ({"max_held_bytes": 100}, "max_held_bytes is 100"),
        ({"on_event": 5}, "on_event is 5; it must be a plain function that takes an event."),
        ({"on_event": asyncio.sleep}, "on_event is `async def`; it must be a plain function"),
    ],
)
def test_a_value_that_cannot_be_used(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        QueueOptions(**given)
    assert said in str(raised.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(OptionError, match="have 2 errors"):
        QueueOptions(wait_time=0, time_limit=-1)
