"""What is wrong with the rows by which a fleet coordinates itself."""

from __future__ import annotations

from typing import Any

from tests.interop.kcl.led import row_problems

_LOCK = {"ownerName": {"S": "w1"}, "leaseDuration": {"S": "5000"}, "recordVersionNumber": {"S": ""}}


def _among(key: str, kind: str, **attributes: Any) -> dict[str, dict[str, Any]]:
    return {key: {"leaseKey": {"S": key}, "entityType": {"S": kind}, **attributes}}


def test_a_row_among_the_leases_has_the_attributes_of_its_kind() -> None:
    lock, extra = _among("Leader", "LEADER", **_LOCK), _among("Leader", "LEADER", lut={"N": "1"})
    assert row_problems(lock, lock) == []
    assert row_problems(extra, extra) == ["the row Leader has lut"]


def test_rows_in_tables_of_their_own_are_not_among_the_leases() -> None:
    rows = {"Leader": {"key": {"S": "Leader"}, **_LOCK}}
    assert row_problems({}, rows) == []
    mixed = {"w1": {"wid": {"S": "w1"}, "lut": {"N": "1"}, "ownerName": {"S": "w1"}}}
    assert row_problems({}, mixed) == ["the row w1 has lut, ownerName"]
    (problem,) = row_problems(_among("Leader", "LEADER", **_LOCK), rows)
    assert problem.startswith("the row Leader is in the lease table")
