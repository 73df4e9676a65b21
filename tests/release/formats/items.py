"""Rows of DynamoDB as JSON, which has no bytes; and rows that writes have made."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from sparkinesis.lease.lease import Lease, encode_lease
from sparkinesis.lease.table.rows import read_row
from sparkinesis.lease.table.update import Update
from sparkinesis.local.lease_tables import LocalTable

Item = Mapping[str, Any]


def as_json(item: Item) -> dict[str, Any]:
    """Return a row as JSON: bytes in base64."""
    return {
        name: {"B": base64.b64encode(value["B"]).decode()} if "B" in value else dict(value)
        for name, value in item.items()
    }


def from_json(item: Item) -> dict[str, Any]:
    """Return the row of a JSON that `as_json` returned."""
    return {
        name: {"B": base64.b64decode(value["B"])} if "B" in value else dict(value)
        for name, value in item.items()
    }


def row(lease: Lease, *writes: Callable[[Lease], Update]) -> Item:
    """Return the row of a new lease after some writes, each made of the row before."""
    table = LocalTable("flights-app")
    table.answer("CreateTable", {})
    table.answer("PutItem", {"Item": encode_lease(lease)})
    for write in writes:
        before = read_row(table.rows[lease.key])
        assert isinstance(before, Lease)
        table.answer("UpdateItem", write(before).request(table.name))
    return table.rows[lease.key]
