"""The message in an aggregated record of the Kinesis Producer Library (KPL).

A record whose data is ``MAGIC + message + MD5(message)``, where the message is an
`AggregatedRecord`, holds many user records; `sparkinesis.stream.kpl.magic` recognises one. The
source of the format is ``aggregation-format.md`` of the KPL.

The message types are built at run time and not by protoc, so that they work with any version of the
protobuf runtime. Their descriptor pool is separate, so that they do not conflict with other
libraries.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE = "sparkinesis.kpl"

_STRING, _BYTES, _UINT64 = Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_UINT64
_REQUIRED, _OPTIONAL, _REPEATED = Field.LABEL_REQUIRED, Field.LABEL_OPTIONAL, Field.LABEL_REPEATED

_SCHEMA: dict[str, list[tuple[str, Field.Label.ValueType, Field.Type.ValueType | str] | None]] = {
    "Tag": [
        ("key", _REQUIRED, _STRING),
        ("value", _OPTIONAL, _STRING),
    ],
    "Record": [
        ("partition_key_index", _REQUIRED, _UINT64),
        ("explicit_hash_key_index", _OPTIONAL, _UINT64),
        ("data", _REQUIRED, _BYTES),
        ("tags", _REPEATED, "Tag"),
    ],
    "AggregatedRecord": [
        ("partition_key_table", _REPEATED, _STRING),
        ("explicit_hash_key_table", _REPEATED, _STRING),
        ("records", _REPEATED, "Record"),
    ],
    "AggregatedEnvelope": [
        ("partition_key_table", _REPEATED, _BYTES),
        ("explicit_hash_key_table", _REPEATED, _BYTES),
        ("records", _REPEATED, _BYTES),
    ],
    "UserRecordFields": [
        ("partition_key_index", _REPEATED, _UINT64),
        ("explicit_hash_key_index", _REPEATED, _UINT64),
        ("data", _REPEATED, _BYTES),
    ],
    "AggregateInColumns": [
        ("partition_key_table", _REPEATED, _STRING),
        ("explicit_hash_key_table", _REPEATED, _STRING),
        ("records", _OPTIONAL, "UserRecordFields"),
    ],
    "KeyedRecord": [
        ("partition_key_index", _REQUIRED, _UINT64),
        None,
        ("data", _REQUIRED, _BYTES),
        ("tags", _REPEATED, "Tag"),
    ],
    "KeyedAggregate": [
        None,
        None,
        ("records", _REPEATED, "KeyedRecord"),
    ],
    "HashedRecord": [
        ("partition_key_index", _REQUIRED, _UINT64),
        ("explicit_hash_key_index", _REQUIRED, _UINT64),
        ("data", _REQUIRED, _BYTES),
        ("tags", _REPEATED, "Tag"),
    ],
    "HashedAggregate": [
        None,
        None,
        ("records", _REPEATED, "HashedRecord"),
    ],
}
"""The proto2 messages. A field's number is its index plus 1; a type in quotes is a message."""


def _message_types() -> dict[str, Any]:
    """Build the message class of each name in the schema."""
    file = FileDescriptorProto(name="sparkinesis/kpl.proto", package=_PACKAGE, syntax="proto2")
    for message_name, fields in _SCHEMA.items():
        message = file.message_type.add(name=message_name)
        for number, declared in enumerate(fields, 1):
            if declared is None:
                continue
            name, label, kind = declared
            field = message.field.add(name=name, number=number, label=label)
            if isinstance(kind, str):
                field.type = Field.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind}"
            else:
                field.type = kind
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _SCHEMA
    }


_TYPES = _message_types()

# A class that is built at run time has no static type.
AggregatedRecord: Any = _TYPES["AggregatedRecord"]
KplRecord: Any = _TYPES["Record"]
"""A user record in an `AggregatedRecord`."""
AggregatedEnvelope: Any = _TYPES["AggregatedEnvelope"]
"""The same wire format as `AggregatedRecord`, with its keys and records as undecoded bytes."""
AggregateInColumns: Any = _TYPES["AggregateInColumns"]
"""The same wire format, whose user records are one message: protobuf appends the fields of each."""
KeyedAggregate: Any = _TYPES["KeyedAggregate"]
"""The user records of an `AggregatedRecord`; each must have a partition key and data."""
HashedAggregate: Any = _TYPES["HashedAggregate"]
"""The same; each must have an explicit hash key, too."""
