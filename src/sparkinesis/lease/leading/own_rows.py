"""Reads a worker's own rows of a lease table, in place of the whole table.

The index by owner is the one that a KCL 3.x makes. It holds only keys, so a renewal, which changes
neither key nor owner, costs no write to it. Reads of an index are as of a moment ago.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from sparkinesis.lease.table.rows import TableScan, read_rows
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.timing import second_of

OWNER_INDEX = "LeaseOwnerToLeaseKeyIndex"
MOST_KEYS = 100
"""The most keys of a BatchGetItem call (API reference)."""
_OWNER, _KEY = "leaseOwner", "leaseKey"


def keys_of(table: LeaseTable, owner: str) -> list[str]:
    """Return the keys of the rows that name an owner, by the index.

    Raises what `LeaseTable` does; `ServiceError` if there is no such index, or not yet.
    """
    answers = table.pages(
        "Query",
        IndexName=OWNER_INDEX,
        KeyConditionExpression=f"{_OWNER} = :owner",
        ExpressionAttributeValues={":owner": {"S": owner}},
    )
    return [item[_KEY]["S"] for answer in answers for item in answer["Items"]]


def read_some(table: LeaseTable, keys: Iterable[str]) -> TableScan:
    """Return the rows of these keys that exist, by BatchGetItem; a row may be as of a moment ago.

    Raises what `LeaseTable` does.
    """
    wanted = [{_KEY: {"S": key}} for key in keys]
    items: list[Mapping[str, Any]] = []
    headers: Mapping[str, str] = {}
    for start in range(0, len(wanted), MOST_KEYS):
        headers = _read(table, wanted[start : start + MOST_KEYS], items)
    return msgspec.structs.replace(read_rows(items), second=second_of(headers.get("date")))


def _read(
    table: LeaseTable, keys: Sequence[Mapping[str, Any]], items: list[Mapping[str, Any]]
) -> Mapping[str, str]:
    """Add the rows of at most 100 keys to ``items``; return the headers of the last answer."""
    left: Sequence[Mapping[str, Any]] = keys

    def read(client: Any) -> Mapping[str, str]:
        nonlocal left
        answer = client.batch_get_item(RequestItems={table.name: {"Keys": left}})
        items.extend(answer["Responses"].get(table.name, ()))
        left = answer.get("UnprocessedKeys", {}).get(table.name, {}).get("Keys", ())
        if left:
            said = f"{len(left)} of {len(keys)} keys were not read"
            error = {"Code": "ProvisionedThroughputExceededException", "Message": said}
            raise ClientError({"Error": error}, "BatchGetItem")
        headers: Mapping[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
        return headers

    return table.call("BatchGetItem", read)


def create_index(table: LeaseTable) -> bool:
    """Create the index by owner, unless there is one; return False if it is not to be created.

    The service fills it in the background. Not for a table with provisioned capacity, where an
    index has a capacity, and a price, of its own: whoever wants it there creates it by hand. Raises
    what `LeaseTable` does.
    """
    request = {"TableName": table.name}
    found = table.call("DescribeTable", lambda client: client.describe_table(**request))["Table"]
    if any(one["IndexName"] == OWNER_INDEX for one in found.get("GlobalSecondaryIndexes", ())):
        return True
    if found.get("BillingModeSummary", {}).get("BillingMode") != "PAY_PER_REQUEST":
        return False
    index = {
        "IndexName": OWNER_INDEX,
        "KeySchema": [
            {"AttributeName": _OWNER, "KeyType": "HASH"},
            {"AttributeName": _KEY, "KeyType": "RANGE"},
        ],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    types = [{"AttributeName": name, "AttributeType": "S"} for name in (_KEY, _OWNER)]
    update = {"AttributeDefinitions": types, "GlobalSecondaryIndexUpdates": [{"Create": index}]}
    table.call("UpdateTable", lambda client: client.update_table(**request, **update))
    return True
