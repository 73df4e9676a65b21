"""The operations that write records: PutRecord and PutRecords."""

from __future__ import annotations

import hashlib
import re
from binascii import Error as Base64Error
from binascii import a2b_base64

import msgspec

from sparkinesis.local import errors
from sparkinesis.local.encoding import requests, validation
from sparkinesis.local.model import limits
from sparkinesis.local.model.shard import Shard
from sparkinesis.local.model.stream import HASH_SPACE, Stream
from sparkinesis.local.operations.context import ACCOUNT, Context, Json

_HASH_KEY = re.compile(r"0|[1-9]\d{0,38}")
_MAX_KEY_CHARS = 256


def put_record(context: Context, request: requests.PutRecord) -> Json:
    stream = context.find(request.stream_name, request.stream_arn)
    entry = requests.PutRecordsEntry(request.data, request.partition_key, request.explicit_hash_key)
    size = _entry_size(entry, "", stream)
    shard = _shard_for(entry, stream)
    context.shard = shard.id
    if context.limits is not None and not shard.use.admit_write(context.now, size, context.limits):
        raise errors.shard_throttled(shard.id, stream.name, ACCOUNT)
    number = shard.append(
        context.now + context.fault.arrival_skew_ms,
        entry.data,
        _key_json(entry),
        size,
        context.now // 1000,
    )
    context.records, context.bytes = 1, size
    return {"ShardId": shard.id, "SequenceNumber": number}


def put_records(context: Context, request: requests.PutRecords) -> Json:
    stream = context.find(request.stream_name, request.stream_arn)
    entries = request.records
    if not 1 <= len(entries) <= limits.MAX_RECORDS_PER_PUT:
        bound = "greater than or equal to 1"
        if entries:
            bound = f"less than or equal to {limits.MAX_RECORDS_PER_PUT}"
        raise errors.validation(
            validation.violation(
                f"'[{len(entries)} members]'", "records", f"Member must have length {bound}"
            )
        )
    # All entries are checked before one is stored: an invalid entry fails the whole call.
    sizes = [
        _entry_size(entry, f"records.{i}.member.", stream) for i, entry in enumerate(entries, 1)
    ]
    if sum(sizes) > limits.MAX_PUT_BYTES:
        raise errors.invalid_argument("Records size exceeds 10 MB limit")
    shards = [_shard_for(entry, stream) for entry in entries]
    now, fault, quota = context.now, context.fault, context.limits
    second, arrival_ms = now // 1000, now + fault.arrival_skew_ms
    answers: list[dict[str, str]] = []
    for i, (entry, size, shard) in enumerate(zip(entries, sizes, shards, strict=True)):
        failure: dict[str, str] | None = None
        if i in fault.entries and fault.code is not None:
            failure = {"ErrorCode": fault.code, "ErrorMessage": fault.message}
        if failure is not None and not fault.takes_effect:
            answers.append(failure)
        elif quota is not None and not shard.use.admit_write(now, size, quota):
            answers.append(
                {
                    "ErrorCode": "ProvisionedThroughputExceededException",
                    "ErrorMessage": errors.rate_message(shard.id, stream.name, ACCOUNT),
                }
            )
        else:
            number = shard.append(arrival_ms, entry.data, _key_json(entry), size, second)
            answers.append(failure or {"SequenceNumber": number, "ShardId": shard.id})
            context.records += 1
            context.bytes += size
    failed = sum("ErrorCode" in answer for answer in answers)
    return {"FailedRecordCount": failed, "Records": answers}


def _key_json(entry: requests.PutRecordsEntry) -> bytes | None:
    return None if entry.partition_key is None else msgspec.json.encode(entry.partition_key)


def _shard_for(entry: requests.PutRecordsEntry, stream: Stream) -> Shard:
    explicit = None if entry.explicit_hash_key is None else _number(entry.explicit_hash_key)
    if stream.distributes_records:
        return stream.next_shard()
    if explicit is not None:
        return stream.route(explicit)
    key = entry.partition_key or ""
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return stream.route(int.from_bytes(digest, "big"))


def _number(explicit: str) -> int:
    """Parse and check an explicit hash key. Raises: KinesisError."""
    if not _HASH_KEY.fullmatch(explicit):
        rule = r"Member must satisfy regular expression pattern: 0|([1-9]\d{0,38})"
        raise errors.validation(validation.violation(f"'{explicit}'", "explicitHashKey", rule))
    number = int(explicit)
    if number >= HASH_SPACE:
        raise errors.invalid_argument(
            "Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. "
            f"Specified value was {explicit}"
        )
    return number


def _entry_size(entry: requests.PutRecordsEntry, where: str, stream: Stream) -> int:
    """Return the size of a record: the bytes of its data and partition key.

    Raises: KinesisError, if either is invalid.
    """
    key, max_bytes = entry.partition_key, stream.max_record_bytes
    if key is None:
        if not stream.distributes_records:
            rule = "Member must not be null"
            raise errors.validation(validation.violation("null", f"{where}partitionKey", rule))
        key = ""
    elif not 1 <= len(key) <= _MAX_KEY_CHARS:
        bound = "less than or equal to 256" if key else "greater than or equal to 1"
        rule = f"Member must have length {bound}"
        raise errors.validation(validation.violation(f"'{key}'", f"{where}partitionKey", rule))
    size = _decoded_size(entry.data) + (len(key) if key.isascii() else len(key.encode()))
    if size > max_bytes:
        rule = f"Member must have length less than or equal to {max_bytes}"
        value = f"'java.nio.HeapByteBuffer[pos=0 lim={size} cap={size}]'"
        raise errors.validation(validation.violation(value, f"{where}data", rule))
    return size


def _decoded_size(data: str) -> int:
    size = len(data) // 4 * 3 - data.endswith("=") - data.endswith("==")
    try:
        # a2b_base64 skips invalid characters; the decoded size then differs.
        if len(data) % 4 == 0 and len(a2b_base64(data)) == size:
            return size
    except (Base64Error, ValueError):
        pass
    raise errors.serialization(f"'{data[:40]}' can not be converted to a Blob: it is not base64")
