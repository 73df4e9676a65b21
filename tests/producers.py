"""Records as producers write them, and hostile ones."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from dataclasses import dataclass
from typing import Any

from tests.documents import ROOT, Block, blocks

_FIXTURES = ROOT / "tests" / "fixtures"


def _fixture(path: str) -> Any:
    return json.loads((_FIXTURES / path).read_text("utf-8"))


GLUE = _fixture("glue/records.json")
SPRING = _fixture("spring/records.json")
"""Records of the mapper of Spring Cloud Stream's Kinesis binder."""
CONNECT = _fixture("connect/records.json")
"""Records of Kafka Connect's converter for JSON."""
DECIMALS: dict[str, str] = CONNECT["decimals of scale 2"]
DEBEZIUM = _fixture("connect/debezium.json")
"""Records of Debezium's engine, from a Postgres."""


def change(**dynamodb: Any) -> bytes:
    """A change of DynamoDB, as its developer guide shows one, with other fields of an image."""
    return json.dumps(
        {
            "awsRegion": "eu-west-1",
            "eventID": "f8a7-1",
            "eventName": "MODIFY",
            "userIdentity": None,
            "recordFormat": "application/json",
            "tableName": "flights",
            "dynamodb": {
                "ApproximateCreationDateTime": 1_790_000_000_123,
                "Keys": {"plane": {"S": "N14228"}},
                "SizeBytes": 99,
                **dynamodb,
            },
            "eventSource": "aws:dynamodb",
        }
    ).encode()


_DEEP = b'{"dynamodb":' * 100_000
_SPRING = b64decode(SPRING["flight"])

HOSTILE = [
    b"",
    b"\x00",
    b"\xff" * 64,
    b"null",
    b"[]",
    b"5",
    b"9" * 100_000,
    b'{"dynamodb": 5}',
    b'{"dynamodb": {"Keys": null}}',
    _DEEP,
    _DEEP + b"1" + b"}" * 100_000,
    gzip.compress(_DEEP),
    gzip.compress(b"\x00" * 3_000_000)[:-20],
    gzip.compress(b"") * 1000,
    b"\x1f\x8b" + b"\xff" * 50,
    b"\x03\x05" + b"\xff" * 50,
    b"\x7f\xff\xff\xff{" + b"?" * 20,
    b"\xff\xff\xff\xff{" + b"?" * 20,
    b"\xff\xff\xff\xfc{\x00\x00\x00",
    b"\x00\x00\x00\x00{\x00\x00\x00",
    b"\x00\x00\x00\x01{\x00\x00\x00\x00",
    b"\x00\x00\x00\x02[]\x00\x00\x00\x00",
    _SPRING[:-1],
    _SPRING[:3],
    b"\x00" + _SPRING,
    _SPRING + b"\x00",
    b"\x03\x00" + bytes(16),
    change(NewImage={"plane": {"S": "\ud800"}, "delay": {"N": "9" * 5000}}),
    change(NewImage={"delay": {"N": "1e400000000"}, "price": {"N": "-1e-400000000"}}),
    change(NewImage={"plane": {"S": {"S": []}}, "delay": {"N": [1]}, "tags": {"SS": 5}}),
    change(NewImage={"plane": "N14228", "tags": [], "seats": {"M": {"row": {"M": 5}}}}),
    change(NewImage=[]),
    change(ApproximateCreationDateTime=2**63 - 1),
    change(ApproximateCreationDateTime=-(2**63)),
    change(ApproximateCreationDateTime=2**62, ApproximateCreationDateTimePrecision="MICROSECOND"),
    change(ApproximateCreationDateTime=2**70),
    change(ApproximateCreationDateTime=1e300),
    change()[:-5],
    change().replace(b"flights", b"\xc3\x28"),
]
"""Records that are cut, nested, huge, or no text."""


_PAGE = ROOT / "docs" / "payloads.md"
PROGRAMS = [block for block in blocks(_PAGE) if block.language == "python"]
"""The programs of ``docs/payloads.md``; the first makes applications of a function `handle`."""
SHOWN = [block.text for block in blocks(_PAGE) if block.language == "text"]
_SERVICES = 7


@dataclass(frozen=True)
class Service:
    """What a service or framework writes, and what the page's programs make of it."""

    program: Block
    shown: str
    handler: Block
    records: list[bytes]
    damaged: list[bytes]
    handled: list[str]
    """The lines that `handle` prints."""


def _service(place: int, records: list[Any], damaged: list[bytes], handled: list[str]) -> Service:
    program, handler = PROGRAMS[-2 * _SERVICES :][2 * place : 2 * place + 2]
    encoded = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in records]
    return Service(program, SHOWN[-_SERVICES:][place], handler, encoded, damaged, handled)


_LOGS = {
    "messageType": "DATA_MESSAGE",
    "owner": "111111111111",
    "logGroup": "tower",
    "logStream": "west",
    "subscriptionFilters": ["flights"],
    "logEvents": [
        {"id": str(n), "timestamp": 1_790_000_000_000, "message": f"taxi {n}"} for n in (1, 2)
    ],
}
_CONTROL = {
    "messageType": "CONTROL_MESSAGE",
    "owner": "CloudwatchLogs",
    "logGroup": "",
    "logStream": "",
    "subscriptionFilters": [],
    "logEvents": [
        {
            "id": "",
            "timestamp": 1_790_000_000_000,
            "message": "CWL CONTROL MESSAGE: Checking health of destination Kinesis stream.",
        }
    ],
}
_ZIPPED = [gzip.compress(json.dumps(each).encode()) for each in (_CONTROL, _LOGS)]


def _of_dms(operation: str, delay: int, **others: Any) -> dict[str, Any]:
    return {
        "data": {"plane": "N14228", "delay": delay},
        **others,
        "metadata": {
            "timestamp": "2026-09-21T14:13:20.123456Z",
            "record-type": "data",
            "operation": operation,
            "partition-key-type": "primary-key",
            "schema-name": "public",
            "table-name": "flights",
        },
    }


_OF_DMS = [
    {
        "metadata": {
            "timestamp": "2026-09-21T14:13:19.000001Z",
            "record-type": "control",
            "operation": "create-table",
            "partition-key-type": "task-id",
            "schema-name": "",
            "table-name": "awsdms_apply_exceptions",
        }
    },
    _of_dms("load", 11),
    json.dumps(_of_dms("update", 12, **{"before-image": {"delay": 11}})).encode() + b"\n",
    _of_dms("delete", 12),
]
_EVENT = {
    "version": "0",
    "id": "6a7e8feb-b491-4cf7-a9f1-bf3703467718",
    "detail-type": "Landed",
    "source": "tower",
    "account": "111122223333",
    "time": "2026-09-21T14:13:20Z",
    "region": "eu-west-1",
    "resources": [],
    "detail": {"plane": "N14228", "delay": 11},
}
_MODIFIED = change(
    NewImage={
        "plane": {"S": "N14228"},
        "delay": {"N": "11"},
        "tags": {"SS": ["late", "far"]},
        "note": {"NULL": True},
    },
    OldImage={"plane": {"S": "N14228"}, "delay": {"N": "5"}},
)
_REMOVED = change(
    Keys={"plane": {"S": "N24211"}}, OldImage={"plane": {"S": "N24211"}, "delay": {"N": "5"}}
).replace(b"MODIFY", b"REMOVE")
_PLACE = {"topic": "planes/N14228"}

SERVICES = {
    "cloudwatch": _service(
        0, _ZIPPED, [b"taxi 3", _ZIPPED[1][:-9]], ["tower 1 taxi 1", "tower 2 taxi 2"]
    ),
    "spring": _service(1, [_SPRING], [b"late"], ["application/json 11 N14228"]),
    "dynamodb": _service(
        2, [_MODIFIED, _REMOVED], [b"late"], ["MODIFY N14228 11", "REMOVE N24211 None"]
    ),
    "dms": _service(
        3,
        _OF_DMS,
        [b'{"data": {"plane": "N14228"'],
        ["load N14228 11 None", "update N14228 12 11", "delete N14228 12 None"],
    ),
    "eventbridge": _service(4, [_EVENT], [b"late"], ["tower Landed N14228 11"]),
    "iot": _service(
        5,
        [
            {"delay": 11, **_PLACE, "at": 1_790_000_000_123},
            {"photo": "AP8=", **_PLACE, "at": 1_790_000_000_124},
        ],
        [b"late"],
        [
            "11 planes/N14228 1790000000123 None",
            "None planes/N14228 1790000000124 b'\\x00\\xff'",
        ],
    ),
    "debezium": _service(
        6,
        [*(each.encode() for each in [*DEBEZIUM["plain"][:4], DEBEZIUM["schema"][0]]), b""],
        [b"late"],
        [
            "r N14228 12.34 2026-09-21 12:34:56.123456",
            "u N14228 -0.01 2026-09-21 12:34:56.123456",
            "c N24211 None None",
            "d N14228 -0.01 2026-09-21 12:34:56.123456",
            "u N14228 -0.01 2026-09-21 12:34:56.123456",
        ],
    ),
}
