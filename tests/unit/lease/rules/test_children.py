"""Which children get leases before their parents have ended, on graphs of splits and merges."""

from __future__ import annotations

import pytest

from sparkinesis.lease.rules.children import early_children
from sparkinesis.lease.rules.lease_start import ANY_AGE, LeaseStart
from sparkinesis.stream.position import LATEST, TRIM_HORIZON
from tests.unit.lease.rules.test_shard_sync import GRAPH_A, GRAPH_B, NOW, graph, lease

BEGIN = LeaseStart(TRIM_HORIZON, made_ms=NOW, application_ms=7)


def created(text: str, unfinished: str, finished: str = "") -> list[str]:
    leases = [lease(one) for one in unfinished.split()]
    leases += [lease(one, "SHARD_END") for one in finished.split()]
    return [made.shard_id for made in early_children(iter(leases), iter(graph(text)), BEGIN)]


def test_all_generations_get_leases_at_once_in_order_of_creation() -> None:
    assert created(GRAPH_B, "0 1") == ["2", "3", "4", "5", "6", "7", "8", "9", "10"]
    assert created(GRAPH_A, "0 1 2 3 4 5") == ["6", "7", "8", "9", "10"]


@pytest.mark.parametrize(
    ("unfinished", "finished", "expected"),
    [
        ("0", "", []),  # the other parent of the merge has no lease
        ("0", "1", ["2", "3", "4", "5", "6", "7", "8", "9", "10"]),
        ("", "0 1", []),  # their ends created what follows; the audit repairs it otherwise
        ("6 7", "5", ["8", "9", "10"]),
        ("7", "6", ["8", "9", "10"]),
        ("0 1 2 3 4 5 6 7 8 9 10", "", []),
    ],
)
def test_all_parents_have_leases_and_one_is_still_read(
    unfinished: str, finished: str, expected: list[str]
) -> None:
    assert created(GRAPH_B, unfinished, finished) == expected


def test_shards_that_an_operator_has_passed_over_stay_unread() -> None:
    """At LATEST, open shards have leases; their ancestors are finished, or have none."""
    assert created(GRAPH_B, "9 10", "0 1") == []
    assert created(GRAPH_B, "1 9 10", "0") == []


def test_a_shard_without_parents_is_not_created_here() -> None:
    assert created("0 1", "0") == []


def test_children_begin_with_their_first_record() -> None:
    at_latest = LeaseStart(LATEST, NOW, 7, NOW)
    for begin in (BEGIN, at_latest):
        (child,) = early_children([lease("0")], graph("0 1<0"), begin)
        assert str(child.checkpoint) == "TRIM_HORIZON"
        assert child.timestamp_ms is None
        assert (child.parent_ids, child.application_ms) == (("0",), 7)
        assert (child.made_ms, child.known) == (NOW, ANY_AGE)
