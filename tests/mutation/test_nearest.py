"""Which tests are run for a fault, and in which order."""

from __future__ import annotations

from tests.mutation.nearest import Record, stages, unit_tests_of

FILE = "lease/rules/taker.py"
OWN = "tests/unit/lease/rules/test_taker.py"
OTHER = "tests/mutation/test_nearest.py::test_the_nearest_come_first"
SLOW = "tests/mutation/test_nearest.py::test_a_line_is_found_in_a_changed_text"


def recorded(lines: dict[str, list[str]], text: str) -> Record:
    record = Record()
    seconds = {OTHER: 1.0, SLOW: 100.0}
    record.add({"lines": {FILE: lines}, "seconds": seconds, "texts": {FILE: text}})
    return record


def test_a_line_is_found_in_a_changed_text() -> None:
    record = recorded({"3": ["x"], "4": ["y"]}, "a\nb\nc\nd\n")
    assert record.tests_of(FILE, 3, "a\nb\nc\nd\n") == {"x"}
    assert record.tests_of(FILE, 5, "a\nb\nnew\nc\nd\n") == {"y"}
    assert record.tests_of(FILE, 1, "a\nb\nc\nd\n") == {"x", "y"}, "is run by the import"


def test_the_nearest_come_first() -> None:
    import tests.unit.lease.rules.test_children as children  # noqa: PLC0415

    there = next(name for name in vars(children) if name.startswith("test_"))
    unit = f"tests/unit/lease/rules/test_children.py::{there}"
    gone = "tests/unit/lease/rules/test_children.py::test_that_was_renamed"
    record = recorded({}, "")
    record.seconds[unit] = 0.5
    tests = [SLOW, OTHER, unit, gone, f"{OWN}::test_steals"]
    own = unit_tests_of(FILE)
    assert own[0] == OWN
    assert stages(tests, FILE, record, most=60.0) == [[*own, unit], [OTHER]]


def test_a_modules_rules_may_be_tested_beside_those_of_another() -> None:
    others = unit_tests_of("lease/rules/children.py")
    assert "tests/unit/lease/rules/test_shard_sync.py" in others
