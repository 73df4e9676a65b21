from __future__ import annotations

import pytest

from tests import pace
from tests.pace import Deadline


def test_a_deadline_is_put_off_while_the_machine_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "AT_START", 2.0)
    monkeypatch.setattr(pace, "slowness", lambda: 5.0)
    now = 100.0
    deadline = Deadline(10.0, lambda: now)
    now = 120.0
    assert not deadline.has_passed()
    now = 149.0
    assert not deadline.has_passed(), "the machine is five times slower by now"
    monkeypatch.setattr(pace, "slowness", lambda: 1.0)
    now = 151.0
    assert deadline.has_passed()
