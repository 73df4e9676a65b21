from __future__ import annotations

from pathlib import Path

import pytest

from tests import check, pace
from tests.pace import Deadline


def test_a_deadline_is_put_off_while_the_machine_is_slower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("src/sparkinesis/lease/rules/taker.py", "tests/unit/lease/rules/test_taker.py"),
        ("tests/unit/test_pace.py", "tests/unit/test_pace.py"),
        ("src/sparkinesis/__init__.py", None),
        ("tests/pace.py", None),
    ],
)
def test_a_file_is_checked_by_the_test_at_its_path(path: str, test: str | None) -> None:
    assert check.its_test(Path(path)) == (None if test is None else Path(test))


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("lease/rules/taker.py", "tests/unit/lease/rules/test_taker.py"),
        ("local/wire/http2.py", "tests/integration/local/test_http2.py"),
        ("cli/top.py", "tests/integration/worker/test_top_command.py"),
        ("stream/kpl/joined_binary.py", "tests/unit/stream/kpl/test_unpack.py"),
    ],
    ids=["at its path", "of its name", "of its command", "of what imports it"],
)
def test_a_module_without_a_test_of_its_own_has_near_ones(path: str, nearest: str) -> None:
    found = check.nearest(check.SOURCE / path)
    assert found[0] == Path(nearest)
    assert check.commands(check.SOURCE / path)[-1][-len(found) :] == [str(test) for test in found]


def test_each_module_has_tests_that_exist() -> None:
    for path in (check.ROOT / check.SOURCE).rglob("[!_]*.py"):
        found = check.nearest(path.relative_to(check.ROOT))
        assert 1 <= len(found) <= 3, path
        assert all((check.ROOT / test).is_file() for test in found)
