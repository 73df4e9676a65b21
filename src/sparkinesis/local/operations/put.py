"""The operations that write records: PutRecord and PutRecords."""

from __future__ import annotations

import hashlib
import re

from sparkinesis.local import errors
from sparkinesis.local.encoding import requests, validation
from sparkinesis.local.errors import KinesisError
from sparkinesis.local.model import limits
from sparkinesis.local.model.shard import Shard
from sparkinesis.local.model.stored_record import NewRecord
from sparkinesis.local.model.stream import HASH_SPACE, Stream
from sparkinesis.local.operations.context import ACCOUNT, Context, Json

_HASH_KEY = re.compile(r"0|[1-9]\d{0,38}")
_MAX_KEY_CHARS = 256

# Records for one shard, each with its answer, which is empty or an error that a fault plan gives.
_Taken = list[tuple[NewRecord, dict[str, str]]]


def put_record(context: Context, request: requests.PutRecord) -> Json:
    entry = requests.PutRecordsEntry(request.data, request.partition_key, request.explicit_hash_key)
    _check_names(context, request, SequenceNumberForOrdering=request.sequence_number_for_ordering)
    size = _entry_size(entry, "")
    stream = context.find_serving(request.stream_name, request.stream_arn)
    _check_entry(entry, size, "", stream)
    shard = _shard_for(entry, stream)
    context.shard = shard.id
    if context.limits is not None and not shard.use.admit_write(context.now, size, context.limits):
        raise errors.shard_throttled(shard.id, stream.name, ACCOUNT)
    if request.dry_run:
        raise errors.dry_run()
    record = NewRecord(entry.data, entry.partition_key, size)
    (number,) = _append(context, stream, shard, [record])
    return {"ShardId": shard.id, "SequenceNumber": number, **_encryption(stream)}


def put_records(context: Context, request: requests.PutRecords) -> Json:
    entries = request.records
    _check_names(context, request)
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
    places = [f"records.{i}.member." for i in range(1, len(entries) + 1)]
    sizes = [_entry_size(entry, at) for entry, at in zip(entries, places, strict=True)]
    if sum(sizes) > limits.MAX_PUT_BYTES:
        raise errors.invalid_argument("Records size exceeds 10 MB limit")
    stream = context.find_serving(request.stream_name, request.stream_arn)
    for entry, size, at in zip(entries, sizes, places, strict=True):
        _check_entry(entry, size, at, stream)
    if request.dry_run:
        raise errors.dry_run()
    shards = [_shard_for(entry, stream) for entry in entries]
    now, fault, quota = context.now, context.fault, context.limits
    answers: list[dict[str, str]] = []
    taken: dict[Shard, _Taken] = {}
    for i, (entry, size, shard) in enumerate(zip(entries, sizes, shards, strict=True)):
        answer: dict[str, str] = {}
        if i in fault.entries and fault.code is not None:
            answer = {"ErrorCode": fault.code, "ErrorMessage": fault.message}
        answers.append(answer)
        if answer and not fault.takes_effect:
            continue
        if quota is not None and not shard.use.admit_write(now, size, quota):
            answer["ErrorCode"] = "ProvisionedThroughputExceededException"
            answer["ErrorMessage"] = errors.rate_message(shard.id, stream.name, ACCOUNT)
        else:
            record = NewRecord(entry.data, entry.partition_key, size)
            taken.setdefault(shard, []).append((record, answer))
    for shard, pairs in taken.items():
        _store(context, stream, shard, pairs)
    failed = sum("ErrorCode" in answer for answer in answers)
    return {"FailedRecordCount": failed, "Records": answers, **_encryption(stream)}


def _store(context: Context, stream: Stream, shard: Shard, taken: _Taken) -> None:
    """Store records of one shard; complete those of their answers that are no errors."""
    numbers = _append(context, stream, shard, [record for record, _ in taken])
    for (_, answer), number in zip(taken, numbers, strict=True):
        if not answer:
            answer["SequenceNumber"] = number
            answer["ShardId"] = shard.id


def _append(context: Context, stream: Stream, shard: Shard, records: list[NewRecord]) -> list[str]:
    """Store records of one shard, and return their sequence numbers."""
    context.records += len(records)
    context.bytes += sum(record.size for record in records)
    return shard.append(
        records,
        context.now + context.fault.arrival_skew_ms,
        context.now // 1000,
        encrypted=stream.encryption_key is not None,
    )


def _encryption(stream: Stream) -> Json:
    return {} if stream.encryption_key is None else {"EncryptionType": "KMS"}


def _shard_for(entry: requests.PutRecordsEntry, stream: Stream) -> Shard:
    if stream.distributes_records:
        return stream.next_shard()
    if entry.explicit_hash_key is not None:
        return stream.route(int(entry.explicit_hash_key))
    key = entry.partition_key or ""
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return stream.route(int.from_bytes(digest, "big"))


def _check_names(context: Context, request: requests.StreamRequest, **others: str | None) -> None:
    """Check the members beside the records, as trusting codecs do not. Raises: KinesisError."""
    names = {"StreamName": request.stream_name, "StreamARN": request.stream_arn}
    validation.check_given(context.operation, {**names, **others})


def _entry_size(entry: requests.PutRecordsEntry, where: str) -> int:
    """Return the size of a record: the bytes of its data and partition key.

    Raises: KinesisError, if the record is invalid in any stream.
    """
    key = entry.partition_key or ""
    if entry.partition_key is not None and not 1 <= len(key) <= _MAX_KEY_CHARS:
        bound = "less than or equal to 256" if key else "greater than or equal to 1"
        rule = f"Member must have length {bound}"
        raise errors.validation(validation.violation(f"'{key}'", f"{where}partitionKey", rule))
    if entry.explicit_hash_key is not None:
        _check_hash_key(entry.explicit_hash_key, where)
    size = len(entry.data) + (len(key) if key.isascii() else len(key.encode()))
    if size > limits.MAX_PUT_BYTES:
        raise _too_large(size, limits.MAX_PUT_BYTES, where)
    return size


def _check_hash_key(explicit: str, where: str) -> None:
    if not _HASH_KEY.fullmatch(explicit):
        rule = r"Member must satisfy regular expression pattern: 0|([1-9]\d{0,38})"
        at = f"{where}explicitHashKey"
        raise errors.validation(validation.violation(f"'{explicit}'", at, rule))
    if int(explicit) >= HASH_SPACE:
        raise errors.invalid_argument(
            "Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. "
            f"Specified value was {explicit}"
        )


def _check_entry(entry: requests.PutRecordsEntry, size: int, where: str, stream: Stream) -> None:
    """Raise KinesisError if this stream does not take the record."""
    if entry.partition_key is None and not stream.distributes_records:
        rule = "Member must not be null"
        raise errors.validation(validation.violation("null", f"{where}partitionKey", rule))
    if size > stream.max_record_bytes:
        raise _too_large(size, stream.max_record_bytes, where)


def _too_large(size: int, most: int, where: str) -> KinesisError:
    rule = f"Member must have length less than or equal to {most}"
    value = f"'java.nio.HeapByteBuffer[pos=0 lim={size} cap={size}]'"
    return errors.validation(validation.violation(value, f"{where}data", rule))
