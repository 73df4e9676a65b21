"""The operations that write records: PutRecord and PutRecords."""

from __future__ import annotations

import hashlib
import re

from sparkinesis.local import service_errors
from sparkinesis.local.encoding import requests, validation
from sparkinesis.local.model import limits
from sparkinesis.local.model.records import NewRecord
from sparkinesis.local.model.shard_log import Shard
from sparkinesis.local.model.stream import HASH_SPACE, Stream
from sparkinesis.local.operations.context import ACCOUNT, Context, Json
from sparkinesis.local.service_errors import KinesisError

_HASH_KEY = re.compile(r"0|[1-9]\d{0,38}")
_MAX_KEY_CHARS = 256
_STORED: dict[str, str] = {}
"""The answer for an entry until its record is stored."""


def put_record(context: Context, request: requests.PutRecord) -> Json:
    entry = requests.PutRecordsEntry(request.data, request.partition_key, request.explicit_hash_key)
    _check_names(context, request, SequenceNumberForOrdering=request.sequence_number_for_ordering)
    size = _entry_size(entry)
    stream = context.find_serving(request.stream_name, request.stream_arn)
    _check_entry(entry, size, None, stream)
    if stream.settings.distributes_records and request.sequence_number_for_ordering is not None:
        raise service_errors.invalid_argument(
            f"SequenceNumberForOrdering must not be set for stream {stream.name} under account "
            f"{ACCOUNT}, whose RecordDistributionStrategy is {stream.settings.distribution}."
        )
    shard = _shard_for(entry, stream)
    context.shard = shard.id
    if context.limits is not None and not shard.use.admit_write(context.now, size, context.limits):
        raise service_errors.shard_throttled(shard.id, stream.name, ACCOUNT)
    context.end_dry_run(request.dry_run, stream)
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
        raise service_errors.validation(
            validation.violation(
                f"'[{len(entries)} members]'", "records", f"Member must have length {bound}"
            )
        )
    # All entries are checked before one is stored: an invalid entry fails the whole call.
    sizes = [_entry_size(entry, i) for i, entry in enumerate(entries, 1)]
    if sum(sizes) > limits.MAX_PUT_BYTES:
        raise service_errors.invalid_argument("Records size exceeds 10 MB limit")
    stream = context.find_serving(request.stream_name, request.stream_arn)
    for i, (entry, size) in enumerate(zip(entries, sizes, strict=True), 1):
        _check_entry(entry, size, i, stream)
    context.end_dry_run(request.dry_run, stream)
    answers, taken = _admit(context, stream, entries, sizes)
    for shard, places in taken.items():
        records = [NewRecord(entries[i].data, entries[i].partition_key, sizes[i]) for i in places]
        numbers = _append(context, stream, shard, records)
        for i, number in zip(places, numbers, strict=True):
            if answers[i] is _STORED:
                answers[i] = {"SequenceNumber": number, "ShardId": shard.id}
    failed = sum("ErrorCode" in answer for answer in answers)
    return {"FailedRecordCount": failed, "Records": answers, **_encryption(stream)}


def _admit(
    context: Context, stream: Stream, entries: list[requests.PutRecordsEntry], sizes: list[int]
) -> tuple[list[dict[str, str]], dict[Shard, list[int]]]:
    """Return the answers so far, and the indexes of the entries that each shard stores."""
    now, fault, quota = context.now, context.fault, context.limits
    answers = [_STORED] * len(entries)
    taken: dict[Shard, list[int]] = {}
    for i, (entry, size) in enumerate(zip(entries, sizes, strict=True)):
        shard = _shard_for(entry, stream)
        if i in fault.entries and fault.code is not None:
            answers[i] = {"ErrorCode": fault.code, "ErrorMessage": fault.message}
            if not fault.takes_effect:
                continue
        if quota is not None and not shard.use.admit_write(now, size, quota):
            answers[i] = {
                "ErrorCode": "ProvisionedThroughputExceededException",
                "ErrorMessage": service_errors.rate_message(shard.id, stream.name, ACCOUNT),
            }
        elif shard in taken:
            taken[shard].append(i)
        else:
            taken[shard] = [i]
    return answers, taken


def _append(context: Context, stream: Stream, shard: Shard, records: list[NewRecord]) -> list[str]:
    """Store records of one shard, and return their sequence numbers."""
    context.records += len(records)
    context.bytes += sum(record.size for record in records)
    return shard.append(
        records,
        context.now + context.fault.arrival_skew_ms,
        context.now // 1000,
        encrypted=stream.settings.encryption_key is not None,
    )


def _encryption(stream: Stream) -> Json:
    return {} if stream.settings.encryption_key is None else {"EncryptionType": "KMS"}


def _shard_for(entry: requests.PutRecordsEntry, stream: Stream) -> Shard:
    if stream.settings.distributes_records:
        return stream.key_space.next_shard()
    if entry.explicit_hash_key is not None:
        return stream.key_space.route(int(entry.explicit_hash_key))
    key = entry.partition_key or ""
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return stream.key_space.route(int.from_bytes(digest, "big"))


def _check_names(context: Context, request: requests.StreamRequest, **others: str | None) -> None:
    """Check the members beside the records, as trusting codecs do not. Raises: KinesisError."""
    names = {"StreamName": request.stream_name, "StreamARN": request.stream_arn}
    validation.check_given(context.operation, {**names, **others})


def _entry_size(entry: requests.PutRecordsEntry, number: int | None = None) -> int:
    """Return the size of a record: the bytes of its data and partition key.

    number: of the entry in a PutRecords, from 1 on.

    Raises: KinesisError, if the record is invalid in any stream.
    """
    key = entry.partition_key or ""
    if entry.partition_key is not None and not 1 <= len(key) <= _MAX_KEY_CHARS:
        bound = "less than or equal to 256" if key else "greater than or equal to 1"
        rule = f"Member must have length {bound}"
        raise service_errors.validation(
            validation.violation(f"'{key}'", _where(number, "partitionKey"), rule)
        )
    if entry.explicit_hash_key is not None:
        _check_hash_key(entry.explicit_hash_key, number)
    size = len(entry.data) + (len(key) if key.isascii() else len(key.encode()))
    if size > limits.MAX_PUT_BYTES:
        raise _too_large(size, limits.MAX_PUT_BYTES, number)
    return size


def _check_hash_key(explicit: str, number: int | None) -> None:
    if not _HASH_KEY.fullmatch(explicit):
        rule = r"Member must satisfy regular expression pattern: 0|([1-9]\d{0,38})"
        at = _where(number, "explicitHashKey")
        raise service_errors.validation(validation.violation(f"'{explicit}'", at, rule))
    if int(explicit) >= HASH_SPACE:
        raise service_errors.invalid_argument(
            "Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. "
            f"Specified value was {explicit}"
        )


def _check_entry(
    entry: requests.PutRecordsEntry, size: int, number: int | None, stream: Stream
) -> None:
    """Raise KinesisError if this stream does not take the record."""
    if entry.partition_key is None and not stream.settings.distributes_records:
        rule = "Member must not be null"
        raise service_errors.validation(
            validation.violation("null", _where(number, "partitionKey"), rule)
        )
    if size > stream.settings.max_record_bytes:
        raise _too_large(size, stream.settings.max_record_bytes, number)


def _too_large(size: int, most: int, number: int | None) -> KinesisError:
    rule = f"Member must have length less than or equal to {most}"
    value = f"'java.nio.HeapByteBuffer[pos=0 lim={size} cap={size}]'"
    return service_errors.validation(validation.violation(value, _where(number, "data"), rule))


def _where(number: int | None, member: str) -> str:
    """Return the place of an entry's member, as the service names it."""
    return member if number is None else f"records.{number}.member.{member}"
