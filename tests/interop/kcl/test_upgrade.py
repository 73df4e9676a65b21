"""When two readers are in dispute over a shard, as `make interop ARGS=upgrade` judges."""

from __future__ import annotations

from typing import Any

from tests.interop.kcl.upgrade import disputes


def lines(*told: tuple[float, str, str]) -> list[dict[str, Any]]:
    return [{"at": at, "reader": who, "shard": "s", what: []} for at, who, what in told]


def test_a_shard_that_is_handed_over_is_in_no_dispute() -> None:
    told = lines((1, "a", "from"), (2, "a", "records"), (3, "b", "from"), (4, "b", "records"))
    assert disputes(told) == {}
    again = lines((5, "a", "from"), (6, "a", "records"))
    assert disputes(told + again) == {}


def test_a_reader_that_was_late_counts_until_its_last_records() -> None:
    told = lines((1, "a", "from"), (2, "a", "records"), (3, "b", "from"), (4, "a", "records"))
    assert disputes(told) == {}, "the new one has been given nothing yet"
    both = lines(
        (4.5, "b", "records"), (5, "a", "records"), (6, "b", "records"), (6.5, "a", "records")
    )
    assert disputes(told + both) == {"s": 2.0}
