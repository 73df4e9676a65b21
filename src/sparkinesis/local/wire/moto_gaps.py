"""Where moto differs from DynamoDB in a way that a Java KCL notices.

``AttributeUpdates``, which Java KCLs update leases with: moto stores bytes and booleans that such
an update puts as texts, and a set of bytes as a list. A Java KCL would find no state beside a
checkpoint that it had prepared.

An index that exists: moto answers 500, with a traceback on standard error, when two Java workers
that start at the same time create the index of the lease table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_MISTAKEN = {"B", "BOOL", "BS"}


def install() -> None:
    """Make moto, in this process, do these as DynamoDB does them."""
    _install_updates()
    _install_indexes()


def _install_updates() -> None:
    from moto.dynamodb.models.dynamo_type import DynamoType, Item  # noqa: PLC0415

    by_moto = Item.update_with_attribute_updates

    def update(self: Any, attribute_updates: Mapping[str, Mapping[str, Any]]) -> None:
        rest = dict(attribute_updates)
        for name, change in attribute_updates.items():
            value = change.get("Value", {})
            if change.get("Action", "PUT") == "PUT" and value.keys() & _MISTAKEN:
                self.attrs[name] = DynamoType(value)
                del rest[name]
        by_moto(self, rest)

    Item.update_with_attribute_updates = update


def _install_indexes() -> None:
    from moto.dynamodb.exceptions import MockValidationException  # noqa: PLC0415
    from moto.dynamodb.models import DynamoDBBackend  # noqa: PLC0415

    by_moto = DynamoDBBackend.update_table_global_indexes

    def update(self: Any, table: Any, updates: Iterable[Mapping[str, Any]]) -> None:
        updates = list(updates)
        there = {index.name for index in table.global_indexes}
        if any(update.get("Create", {}).get("IndexName") in there for update in updates):
            raise MockValidationException("Attempting to create an index which already exists")
        by_moto(self, table, updates)

    DynamoDBBackend.update_table_global_indexes = update
