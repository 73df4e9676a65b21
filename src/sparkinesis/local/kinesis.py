"""The operations of Kinesis over streams held in memory. No I/O: `http` puts it on the wire.

State is kept per region, as the service keeps it. Everything happens under one lock and at one
instant, read from the clock when a call begins.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import threading
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, TypeVar, cast

import msgspec

from sparkinesis.local import errors, limits, requests, sequence, validation
from sparkinesis.local.clock import Clock, system_clock
from sparkinesis.local.codec import Codec, JsonCodec, RecordPage
from sparkinesis.local.errors import ConnectionDroppedError, KinesisError
from sparkinesis.local.faults import Call, CallLog, CallRecord, Fault, FaultPlan
from sparkinesis.local.limits import Bucket, Limits
from sparkinesis.local.shard import Shard
from sparkinesis.local.stream import HASH_SPACE, MAX_RETENTION_HOURS, Consumer, Stream
from sparkinesis.local.tokens import (
    ListConsumersToken,
    ListShardsToken,
    ListStreamsToken,
    ShardIterator,
    seal,
    unseal,
)

# The account moto speaks for, so that STS names the account of the streams.
ACCOUNT = "123456789012"
DEFAULT_REGION = "us-east-1"
_ON_DEMAND_SHARDS = 4
_HASH_KEY = re.compile(r"0|[1-9]\d{0,38}")
_NO_FAULT = Fault()
_MAX_KEY_CHARS = 256

Json = dict[str, Any]
T = TypeVar("T", bound=msgspec.Struct)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a call went: a body to answer with `status`, or nothing at all (`dropped`).

    delay_ms: how long the answer is to be held back, by a fault plan.
    """

    status: int = 200
    body: bytes = b""
    error: str | None = None
    delay_ms: int = 0
    dropped: bool = False


class _Region:
    def __init__(self, name: str) -> None:
        self.name = name
        self.streams: dict[str, Stream] = {}
        self.account_use: dict[str, Bucket] = {}
        # The latest second that led sequence numbers of a deleted stream of this name, so that a
        # stream made anew never repeats them.
        self.born_before: dict[str, int] = {}


@dataclasses.dataclass
class _Context:
    """One call under way. stream, shard, records and bytes are for the call log."""

    operation: str
    region: _Region
    now: int
    stream: str | None = None
    shard: str | None = None
    records: int = 0
    bytes: int = 0
    fault: Fault = _NO_FAULT


class LocalKinesis:
    """All streams of one account.

    limits: True for the service's, False or None for none, or your own; may be set at any time.
    faults: a fault plan; may be set at any time.
    empty_pages: how many empty answers a new iterator gives before records, when there are any.
    reshard_delay_ms: how long a stream is UPDATING after a reshard was asked for, by the clock.
    calls: the log of calls.
    """

    def __init__(
        self,
        *,
        clock: Clock = system_clock,
        limits: Limits | bool | None = True,
        faults: FaultPlan | None = None,
        empty_pages: int = 0,
        reshard_delay_ms: int = 0,
    ) -> None:
        self.clock = clock
        self.faults = faults
        self.empty_pages = empty_pages
        self.reshard_delay_ms = reshard_delay_ms
        self.calls = CallLog()
        self.limits = limits
        self._lock = threading.RLock()
        self._regions: dict[str, _Region] = {}
        self._json = JsonCodec()

    @property
    def limits(self) -> Limits | None:
        return self._limits

    @limits.setter
    def limits(self, value: Limits | bool | None) -> None:
        self._limits = Limits() if value is True else value or None

    # Entry points

    def call(self, operation: str, *, region: str = DEFAULT_REGION, **request: Any) -> Json:
        """One call in this process, in the names of the wire: `call("GetRecords", Limit=1, ...)`.

        Data is given as bytes and comes back base64-encoded; datetimes become seconds.
        Raises: KinesisError; ConnectionDroppedError. Delays of a fault plan are not waited for.
        """
        body = msgspec.json.encode(_wire(request))
        outcome = self.serve(operation, body, region=region)
        if outcome.dropped:
            raise ConnectionDroppedError(operation)
        answer: Json = msgspec.json.decode(outcome.body) if outcome.body else {}
        if outcome.error is not None:
            raise KinesisError(outcome.error, answer["message"], outcome.status)
        return answer

    def serve(
        self,
        operation: str,
        body: bytes,
        *,
        region: str = DEFAULT_REGION,
        codec: Codec | None = None,
    ) -> Outcome:
        """One call as it came in. Errors of the service are outcomes, not exceptions."""
        codec = codec or self._json
        with self._lock:
            context = _Context(operation, self._region(region), self.clock())
            try:
                result = self._execute(context, body, codec)
            except KinesisError as error:
                answer = codec.encode_error(error.code, error.message)
                outcome = Outcome(error.status, answer, error.code, context.fault.delay_ms)
            except ConnectionDroppedError:
                outcome = Outcome(error="Dropped", dropped=True, delay_ms=context.fault.delay_ms)
            else:
                outcome = Outcome(body=codec.encode(result), delay_ms=context.fault.delay_ms)
            self._log(context, outcome.error)
            return outcome

    def fault_for(
        self, operation: str, region: str, stream: str | None, shard: str | None = None
    ) -> Fault:
        """Asks the fault plan. Also for calls of other services that pass by this one."""
        with self._lock:
            ordinal = self.calls.next_ordinal(operation, region, stream, shard)
            if self.faults is None:
                return _NO_FAULT
            call = Call(operation, region, stream, shard, ordinal, self.clock())
            return self.faults(call) or _NO_FAULT

    def note(self, operation: str, region: str, stream: str | None, error: str | None) -> None:
        """Logs a call of another service."""
        with self._lock:
            self._log(_Context(operation, self._region(region), self.clock(), stream), error)

    # Dispatch

    def _execute(self, context: _Context, body: bytes, codec: Codec) -> RecordPage | Json | None:
        operation = OPERATIONS.get(context.operation)
        if operation is None:
            raise errors.unknown_operation(context.operation)
        request = codec.decode(context.operation, body, operation.request, operation.trusting)
        context.stream, context.shard = _target(request)
        fault = self.fault_for(
            context.operation, context.region.name, context.stream, context.shard
        )
        context.fault = fault
        if fault.drop == "before":
            raise ConnectionDroppedError
        if fault.code is not None and not fault.entries:
            raise KinesisError(fault.code, fault.message, fault.status)
        self._meter_account(context)
        result = operation.handler(self, context, request)
        if fault.drop == "after":
            raise ConnectionDroppedError
        return result

    def _region(self, name: str) -> _Region:
        region = self._regions.get(name)
        if region is None:
            region = self._regions[name] = _Region(name)
        return region

    def _log(self, context: _Context, error: str | None) -> None:
        self.calls.append(
            CallRecord(
                context.now,
                context.operation,
                context.region.name,
                context.stream,
                context.shard,
                context.records,
                context.bytes,
                error,
            )
        )

    def _meter_account(self, context: _Context) -> None:
        if self._limits is None:
            return
        rate = self._limits.account_calls.get(context.operation)
        if rate is None:
            return
        use = context.region.account_use.setdefault(context.operation, Bucket())
        if not use.take(context.now, 1, rate):
            raise errors.limit_exceeded(f"Rate exceeded for account {ACCOUNT}.")

    def _stream(
        self, context: _Context, name: str | None, arn: str | None, *, active: bool = False
    ) -> Stream:
        """The stream that a request names, with everything done that has come due."""
        if arn is not None:
            arn_name = arn.rpartition("/")[2]
            if name is not None and name != arn_name:
                raise errors.invalid_argument(
                    f"StreamName {name} and StreamARN {arn} name different streams."
                )
            name = arn_name
        if name is None:
            raise errors.invalid_argument("Either StreamName or StreamARN must be provided.")
        stream = context.region.streams.get(name)
        if stream is None or (arn is not None and arn != stream.arn):
            raise errors.stream_not_found(name, ACCOUNT)
        stream.settle(context.now)
        if active and stream.status != "ACTIVE":
            raise errors.not_active(name, ACCOUNT, stream.status)
        return stream

    # Streams

    def _create_stream(self, context: _Context, request: requests.CreateStream) -> None:
        details = request.stream_mode_details
        mode = details.stream_mode if details is not None else "PROVISIONED"
        count = request.shard_count
        if mode == "ON_DEMAND":
            if count is not None:
                raise errors.invalid_argument(
                    "ShardCount must not be set for a stream in ON_DEMAND mode."
                )
            count = _ON_DEMAND_SHARDS
        if count is None:
            raise errors.validation(
                validation.violation("null", "shardCount", "Member must not be null")
            )
        name, region = request.stream_name, context.region
        if name in region.streams:
            raise KinesisError(
                "ResourceInUseException", f"Stream {name} under account {ACCOUNT} already exists."
            )
        kib = request.max_record_size_in_kib
        stream = Stream(
            name,
            f"arn:aws:kinesis:{region.name}:{ACCOUNT}:stream/{name}",
            count,
            mode=mode,
            created_ms=context.now,
            born_s=max(context.now // 1000, region.born_before.get(name, 0) + 1),
            max_record_bytes=kib * 1024 if kib else limits.MAX_RECORD_BYTES,
        )
        stream.tags.update(request.tags or {})
        region.streams[name] = stream

    def _delete_stream(self, context: _Context, request: requests.DeleteStream) -> None:
        stream = self._stream(context, request.stream_name, request.stream_arn)
        if stream.consumers and not request.enforce_consumer_deletion:
            raise KinesisError(
                "ResourceInUseException",
                f"Stream {stream.name} under account {ACCOUNT} has registered consumers; "
                "set EnforceConsumerDeletion to delete it.",
            )
        context.region.born_before[stream.name] = stream.last_born_s
        del context.region.streams[stream.name]

    def _describe_stream(self, context: _Context, request: requests.DescribeStream) -> Json:
        stream = self._stream(context, request.stream_name, request.stream_arn)
        after = request.exclusive_start_shard_id or ""
        shards = [shard for shard in stream.shards if shard.id > after]
        limit = request.limit or 100
        return {
            "StreamDescription": {
                **_stream_summary(stream),
                "Shards": [_shard_json(shard) for shard in shards[:limit]],
                "HasMoreShards": len(shards) > limit,
                "RetentionPeriodHours": stream.retention_hours,
                "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
                "EncryptionType": "NONE",
            }
        }

    def _describe_stream_summary(
        self, context: _Context, request: requests.DescribeStreamSummary
    ) -> Json:
        stream = self._stream(context, request.stream_name, request.stream_arn)
        return {
            "StreamDescriptionSummary": {
                **_stream_summary(stream),
                "RetentionPeriodHours": stream.retention_hours,
                "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
                "EncryptionType": "NONE",
                "OpenShardCount": len(stream.open_shards),
                "ConsumerCount": len(stream.consumers),
                "MaxRecordSizeInKiB": stream.max_record_bytes // 1024,
            }
        }

    def _list_streams(self, context: _Context, request: requests.ListStreams) -> Json:
        after = request.exclusive_start_stream_name or ""
        if request.next_token is not None:
            after = _continue(request.next_token, ListStreamsToken, context.now).after_stream
        streams = sorted(
            (s for s in context.region.streams.values() if s.name > after), key=lambda s: s.name
        )
        page = streams[: request.limit or 100]
        for stream in page:
            stream.settle(context.now)
        answer: Json = {
            "StreamNames": [stream.name for stream in page],
            "StreamSummaries": [_stream_summary(stream) for stream in page],
            "HasMoreStreams": len(streams) > len(page),
        }
        if len(streams) > len(page):
            answer["NextToken"] = seal(ListStreamsToken(context.now, page[-1].name))
        return answer

    def _increase_retention(self, context: _Context, request: requests.RetentionPeriod) -> None:
        stream = self._stream(context, request.stream_name, request.stream_arn, active=True)
        hours = request.retention_period_hours
        if hours > MAX_RETENTION_HOURS:
            raise errors.invalid_argument(
                f"Maximum allowed retention period is {MAX_RETENTION_HOURS} hours. "
                f"Requested retention period ({hours} hours) is too long."
            )
        if hours < stream.retention_hours:
            raise errors.invalid_argument(
                f"Requested retention period ({hours} hours) for stream {stream.name} can not be "
                f"shorter than existing retention period ({stream.retention_hours} hours). "
                "Use DecreaseRetentionPeriod API."
            )
        stream.set_retention(hours, context.now)

    def _decrease_retention(self, context: _Context, request: requests.RetentionPeriod) -> None:
        stream = self._stream(context, request.stream_name, request.stream_arn, active=True)
        hours = request.retention_period_hours
        if hours > stream.retention_hours:
            raise errors.invalid_argument(
                f"Requested retention period ({hours} hours) for stream {stream.name} can not be "
                f"longer than existing retention period ({stream.retention_hours} hours). "
                "Use IncreaseRetentionPeriod API."
            )
        if hours < 24:
            raise errors.invalid_argument(
                f"Minimum allowed retention period is 24 hours. "
                f"Requested retention period ({hours} hours) is too short."
            )
        stream.set_retention(hours, context.now)

    # Shards

    def _list_shards(self, context: _Context, request: requests.ListShards) -> Json:
        if request.next_token is not None:
            stream, token = self._continue_list_shards(context, request)
        else:
            stream = self._stream(context, request.stream_name, request.stream_arn)
            wanted = request.shard_filter
            token = ListShardsToken(
                context.now,
                context.region.name,
                stream.name,
                stream.created_ms,
                request.exclusive_start_shard_id or "",
                wanted.type if wanted else "FROM_TRIM_HORIZON",
                (wanted and wanted.shard_id) or "",
                _millis(wanted.timestamp) if wanted and wanted.timestamp is not None else -1,
            )
        if self._limits is not None and not stream.list_shards_use.take(
            context.now, 1, self._limits.stream_list_shards
        ):
            raise errors.limit_exceeded(
                f"Rate exceeded for stream {stream.name} under account {ACCOUNT}."
            )
        shards = [
            shard for shard in _filtered(stream, token, context.now) if shard.id > token.after_shard
        ]
        page = shards[: request.max_results or 1000]
        answer: Json = {"Shards": [_shard_json(shard) for shard in page]}
        if len(shards) > len(page):
            following = msgspec.structs.replace(
                token, issued_ms=context.now, after_shard=page[-1].id
            )
            answer["NextToken"] = seal(following)
        return answer

    def _continue_list_shards(
        self, context: _Context, request: requests.ListShards
    ) -> tuple[Stream, ListShardsToken]:
        """A NextToken stands for the whole request that began the listing."""
        others = {
            "StreamName": request.stream_name,
            "StreamARN": request.stream_arn,
            "ExclusiveStartShardId": request.exclusive_start_shard_id,
            "StreamCreationTimestamp": request.stream_creation_timestamp,
            "ShardFilter": request.shard_filter,
        }
        for name, value in others.items():
            if value is not None:
                raise errors.invalid_argument(f"NextToken and {name} cannot be provided together.")
        token = _continue(cast(str, request.next_token), ListShardsToken, context.now)
        if token.region != context.region.name:
            raise errors.invalid_argument("Invalid NextToken.")
        stream = self._stream(context, token.stream, None)
        if stream.created_ms != token.stream_created:
            raise errors.stream_not_found(token.stream, ACCOUNT)
        return stream, token

    def _split_shard(self, context: _Context, request: requests.SplitShard) -> None:
        stream = self._provisioned(context, request)
        shard = self._reshardable(stream, request.shard_to_split)
        start = int(request.new_starting_hash_key)
        if not shard.hash_start + 1 < start < shard.hash_end:
            raise errors.invalid_argument(
                f"NewStartingHashKey {start} used in SplitShard() on shard {shard.id} in stream "
                f"{stream.name} under account {ACCOUNT} is not both greater than one plus the "
                f"shard's StartingHashKey {shard.hash_start} and less than the shard's "
                f"EndingHashKey {shard.hash_end}."
            )
        stream.reshard(
            lambda now: stream.split(shard, start, now), context.now, self.reshard_delay_ms
        )

    def _merge_shards(self, context: _Context, request: requests.MergeShards) -> None:
        stream = self._provisioned(context, request)
        first = self._reshardable(stream, request.shard_to_merge)
        second = self._reshardable(stream, request.adjacent_shard_to_merge)
        left, right = sorted((first, second), key=lambda shard: shard.hash_start)
        if left.hash_end + 1 != right.hash_start:
            raise errors.invalid_argument(
                f"Shards {first.id} and {second.id} in stream {stream.name} under account "
                f"{ACCOUNT} are not an adjacent pair of shards eligible for merging"
            )
        stream.reshard(
            lambda now: stream.merge(left, right, now, named_first=first),
            context.now,
            self.reshard_delay_ms,
        )

    def _update_shard_count(self, context: _Context, request: requests.UpdateShardCount) -> Json:
        stream = self._provisioned(context, request)
        current, target = len(stream.open_shards), request.target_shard_count
        if self._limits is not None and target > 2 * current:
            raise errors.limit_exceeded(
                "UpdateShardCount cannot scale up over double your current open shard count. "
                f"Current open shard count: {current} Target shard count: {target}"
            )
        if self._limits is not None and target * 2 < current:
            raise errors.limit_exceeded(
                "UpdateShardCount cannot scale down below half your current open shard count. "
                f"Current open shard count: {current} Target shard count: {target}"
            )
        stream.reshard(lambda now: stream.rescale(target, now), context.now, self.reshard_delay_ms)
        return {
            "StreamName": stream.name,
            "StreamARN": stream.arn,
            "CurrentShardCount": current,
            "TargetShardCount": target,
        }

    def _provisioned(self, context: _Context, request: requests.StreamRequest) -> Stream:
        stream = self._stream(context, request.stream_name, request.stream_arn, active=True)
        if stream.mode == "ON_DEMAND":
            raise KinesisError(
                "ValidationException",
                f"Request is invalid. Stream {stream.name} under account {ACCOUNT} is in "
                "On-Demand mode.",
            )
        return stream

    def _reshardable(self, stream: Stream, shard_id: str) -> Shard:
        shard = stream.shard(shard_id)
        if shard is None:
            raise errors.shard_not_found(shard_id, stream.name, ACCOUNT)
        if not shard.is_open:
            raise errors.invalid_argument(
                f"Shard {shard_id} in stream {stream.name} under account {ACCOUNT} has already "
                "been merged or split, and thus is not eligible for merging or splitting."
            )
        return shard

    # Records in

    def _put_record(self, context: _Context, request: requests.PutRecord) -> Json:
        stream = self._stream(context, request.stream_name, request.stream_arn)
        entry = requests.PutRecordsEntry(
            request.data, request.partition_key, request.explicit_hash_key
        )
        size = _entry_size(entry, "", stream.max_record_bytes)
        shard = stream.route(_hash_key(entry))
        context.shard = shard.id
        if self._limits is not None and not shard.use.admit_write(context.now, size, self._limits):
            raise errors.shard_throttled(shard.id, stream.name, ACCOUNT)
        number = shard.append(
            context.now + context.fault.arrival_skew_ms,
            entry.data,
            msgspec.json.encode(entry.partition_key),
            size,
            context.now // 1000,
        )
        context.records, context.bytes = 1, size
        return {"ShardId": shard.id, "SequenceNumber": number}

    def _put_records(self, context: _Context, request: requests.PutRecords) -> Json:
        stream = self._stream(context, request.stream_name, request.stream_arn)
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
        # Everything is checked before anything is stored: a bad entry refuses the whole call.
        sizes = [
            _entry_size(entry, f"records.{i}.member.", stream.max_record_bytes)
            for i, entry in enumerate(entries, 1)
        ]
        if sum(sizes) > limits.MAX_PUT_BYTES:
            raise errors.invalid_argument("Records size exceeds 10 MB limit")
        shards = [stream.route(_hash_key(entry)) for entry in entries]
        now, fault, quota = context.now, context.fault, self._limits
        second, arrival_ms = now // 1000, now + fault.arrival_skew_ms
        encode = msgspec.json.encode
        answers: list[dict[str, str]] = []
        for i, (entry, size, shard) in enumerate(zip(entries, sizes, shards, strict=True)):
            if i in fault.entries and fault.code is not None:
                answers.append({"ErrorCode": fault.code, "ErrorMessage": fault.message})
            elif quota is not None and not shard.use.admit_write(now, size, quota):
                answers.append(
                    {
                        "ErrorCode": "ProvisionedThroughputExceededException",
                        "ErrorMessage": errors.rate_message(shard.id, stream.name, ACCOUNT),
                    }
                )
            else:
                key = encode(entry.partition_key)
                number = shard.append(arrival_ms, entry.data, key, size, second)
                answers.append({"SequenceNumber": number, "ShardId": shard.id})
                context.records += 1
                context.bytes += size
        return {"FailedRecordCount": len(entries) - context.records, "Records": answers}

    # Records out

    def _get_shard_iterator(self, context: _Context, request: requests.GetShardIterator) -> Json:
        stream = self._stream(context, request.stream_name, request.stream_arn)
        shard = stream.shard(request.shard_id)
        if shard is None:
            raise errors.shard_does_not_exist(request.shard_id, stream.name, ACCOUNT)
        stream.trim(shard, context.now)
        position = self._position(context, request, stream, shard)
        if self._limits is not None and not shard.use.get_iterators.take(
            context.now, 1, self._limits.shard_get_iterators
        ):
            raise errors.shard_throttled(shard.id, stream.name, ACCOUNT)
        token = ShardIterator(
            context.now,
            context.region.name,
            stream.name,
            stream.created_ms,
            shard.id,
            position,
            self.empty_pages,
        )
        return {"ShardIterator": seal(token)}

    def _position(
        self,
        context: _Context,
        request: requests.GetShardIterator,
        stream: Stream,
        shard: Shard,
    ) -> int:
        kind, number = request.shard_iterator_type, request.starting_sequence_number
        by_number = kind in {"AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"}
        if by_number != (number is not None):
            told = "also a" if number is not None else "no"
            raise errors.invalid_argument(
                "Must either specify (1) AT_SEQUENCE_NUMBER or AFTER_SEQUENCE_NUMBER and "
                "StartingSequenceNumber or (2) TRIM_HORIZON or LATEST and no "
                f"StartingSequenceNumber. Request specified {kind} and {told} "
                "StartingSequenceNumber."
            )
        if number is not None:
            after = kind == "AFTER_SEQUENCE_NUMBER"
            return shard.position_of(_own_number(number, stream, shard), after=after)
        if kind == "TRIM_HORIZON":
            return shard.first_position
        if kind == "LATEST":
            return shard.end_position
        if request.timestamp is None:
            raise errors.invalid_argument(
                "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP. "
                "Current request has no timestamp parameter."
            )
        time_ms = _millis(request.timestamp)
        if time_ms > context.now:
            raise errors.invalid_argument(
                "The timestampInMillis parameter cannot be greater than the "
                f"currentTimestampInMillis. timestampInMillis: {time_ms}, "
                f"currentTimestampInMillis: {context.now}"
            )
        return shard.position_at(time_ms)

    def _get_records(self, context: _Context, request: requests.GetRecords) -> RecordPage:
        token = unseal(request.shard_iterator, ShardIterator)
        if token is None or token.region != context.region.name:
            raise errors.invalid_argument("Invalid ShardIterator.")
        if context.now - token.issued_ms > limits.ITERATOR_LIFE_MS:
            raise KinesisError(
                "ExpiredIteratorException",
                f"Iterator expired. The iterator was created at time {_date(token.issued_ms)} "
                f"while right now it is {_date(context.now)} which is further in the future than "
                f"the tolerated delay of {limits.ITERATOR_LIFE_MS} milliseconds.",
            )
        gone = errors.shard_does_not_exist(token.shard, token.stream, ACCOUNT)
        stream = context.region.streams.get(token.stream)
        if stream is None or stream.created_ms != token.stream_created:
            raise gone
        if request.stream_arn is not None and request.stream_arn != stream.arn:
            raise errors.invalid_argument(
                f"StreamARN {request.stream_arn} is not that of the ShardIterator."
            )
        stream.settle(context.now)
        shard = stream.shard(token.shard)
        if shard is None:
            raise gone
        stream.trim(shard, context.now)
        self._meter_read(context, stream, shard)
        return self._page(context, token, shard, request.limit or limits.MAX_RECORDS_PER_GET)

    def _meter_read(self, context: _Context, stream: Stream, shard: Shard) -> None:
        quota = self._limits
        if quota is not None and not (
            shard.use.read_bytes.open(context.now, quota.shard_read_bytes)
            and shard.use.get_records.take(context.now, 1, quota.shard_get_records)
        ):
            raise errors.shard_throttled(shard.id, stream.name, ACCOUNT)

    def _page(
        self, context: _Context, token: ShardIterator, shard: Shard, limit: int
    ) -> RecordPage:
        waiting = shard.end_position > max(token.position, shard.first_position)
        if token.empty_pages and waiting:
            records: list[bytes] = []
            position, empty_pages = token.position, token.empty_pages - 1
        else:
            page = shard.read(token.position, limit, limits.MAX_GET_BYTES)
            shard.use.read_bytes.use(page.bytes)
            context.records, context.bytes = len(page.records), page.bytes
            records, position, empty_pages = page.records, page.next_position, 0
        behind = 0
        if position < shard.end_position:
            # 1 at least: a consumer that is told 0 takes itself to be at the tip.
            behind = max(1, context.now - shard.arrival_at(position))
        rest: Json = {"MillisBehindLatest": behind}
        if shard.is_open or position < shard.end_position:
            following = msgspec.structs.replace(
                token, issued_ms=context.now, position=position, empty_pages=empty_pages
            )
            rest["NextShardIterator"] = seal(following)
        else:
            rest["ChildShards"] = [
                {
                    "ShardId": child.id,
                    "ParentShards": list(child.parents),
                    "HashKeyRange": _hash_range(child),
                }
                for child in shard.children
            ]
        return RecordPage(records, rest)

    # Consumers

    def _register_consumer(
        self, context: _Context, request: requests.RegisterStreamConsumer
    ) -> Json:
        stream = self._stream(context, None, request.stream_arn)
        name = request.consumer_name
        if name in stream.consumers:
            raise KinesisError(
                "ResourceInUseException",
                f"Consumer {name} under stream {stream.name} already exists for account {ACCOUNT}.",
            )
        if len(stream.consumers) >= limits.MAX_CONSUMERS:
            raise errors.limit_exceeded(
                f"Stream {stream.name} under account {ACCOUNT} has {limits.MAX_CONSUMERS} "
                "registered consumers, which is the limit."
            )
        arn = f"{stream.arn}/consumer/{name}:{context.now // 1000}"
        consumer = stream.consumers[name] = Consumer(name, arn, context.now)
        return {"Consumer": {**_consumer_json(consumer), "ConsumerStatus": "ACTIVE"}}

    def _deregister_consumer(self, context: _Context, request: requests.StreamConsumer) -> None:
        stream, consumer = self._consumer(context, request)
        del stream.consumers[consumer.name]

    def _describe_consumer(self, context: _Context, request: requests.StreamConsumer) -> Json:
        stream, consumer = self._consumer(context, request)
        return {"ConsumerDescription": {**_consumer_json(consumer), "StreamARN": stream.arn}}

    def _list_consumers(self, context: _Context, request: requests.ListStreamConsumers) -> Json:
        stream = self._stream(context, None, request.stream_arn)
        after = ""
        if request.next_token is not None:
            token = _continue(request.next_token, ListConsumersToken, context.now)
            if token.stream_arn != stream.arn:
                raise errors.invalid_argument("Invalid NextToken.")
            after = token.after_consumer
        consumers = [stream.consumers[name] for name in sorted(stream.consumers) if name > after]
        page = consumers[: request.max_results or 100]
        answer: Json = {"Consumers": [_consumer_json(consumer) for consumer in page]}
        if len(consumers) > len(page):
            answer["NextToken"] = seal(ListConsumersToken(context.now, stream.arn, page[-1].name))
        return answer

    def _consumer(
        self, context: _Context, request: requests.StreamConsumer
    ) -> tuple[Stream, Consumer]:
        arn, name = request.consumer_arn, request.consumer_name
        if arn is not None:
            stream_arn, _, rest = arn.partition("/consumer/")
            name = rest.rpartition(":")[0]
        elif request.stream_arn is not None and name is not None:
            stream_arn = request.stream_arn
        else:
            raise errors.invalid_argument(
                "Either ConsumerARN or both StreamARN and ConsumerName must be provided."
            )
        stream = self._stream(context, None, stream_arn)
        consumer = stream.consumers.get(name or "")
        if consumer is None or (arn is not None and arn != consumer.arn):
            raise KinesisError(
                "ResourceNotFoundException",
                f"Consumer {name}, stream {stream.name} under account {ACCOUNT} not found.",
            )
        return stream, consumer

    # Tags

    def _add_tags(self, context: _Context, request: requests.AddTagsToStream) -> None:
        stream = self._stream(context, request.stream_name, request.stream_arn)
        stream.tags.update(request.tags)

    def _remove_tags(self, context: _Context, request: requests.RemoveTagsFromStream) -> None:
        stream = self._stream(context, request.stream_name, request.stream_arn)
        for key in request.tag_keys:
            stream.tags.pop(key, None)

    def _list_tags(self, context: _Context, request: requests.ListTagsForStream) -> Json:
        stream = self._stream(context, request.stream_name, request.stream_arn)
        after = request.exclusive_start_tag_key or ""
        keys = [key for key in sorted(stream.tags) if key > after]
        page = keys[: request.limit or 50]
        return {
            "Tags": [{"Key": key, "Value": stream.tags[key]} for key in page],
            "HasMoreTags": len(keys) > len(page),
        }


# Names and shapes


def _target(request: requests.Request) -> tuple[str | None, str | None]:
    """The stream and the shard that a request names, for fault plans and the call log."""
    if isinstance(request, requests.GetRecords):
        token = unseal(request.shard_iterator, ShardIterator)
        return (token.stream, token.shard) if token is not None else (None, None)
    if isinstance(request, requests.ListShards) and request.next_token is not None:
        listing = unseal(request.next_token, ListShardsToken)
        return (listing.stream if listing is not None else None), None
    stream: str | None = getattr(request, "stream_name", None)
    arn: str | None = getattr(request, "stream_arn", None) or getattr(request, "consumer_arn", None)
    if stream is None and arn is not None:
        stream = arn.partition(":stream/")[2].partition("/")[0]
    shard: str | None = (
        getattr(request, "shard_id", None)
        or getattr(request, "shard_to_split", None)
        or getattr(request, "shard_to_merge", None)
    )
    return stream, shard


def _continue(text: str, kind: type[T], now: int) -> T:
    token = unseal(text, kind)
    if token is None:
        raise errors.invalid_argument("Invalid NextToken.")
    if now - cast(Any, token).issued_ms > limits.TOKEN_LIFE_MS:
        raise KinesisError(
            "ExpiredNextTokenException",
            f"The NextToken is older than {limits.TOKEN_LIFE_MS} milliseconds.",
        )
    return token


def _filtered(stream: Stream, token: ListShardsToken, now: int) -> list[Shard]:
    """The shards that a ShardFilter lets through; its timestamps are corrected to TRIM_HORIZON."""
    kind = token.filter_type
    horizon = stream.trim_horizon_ms(now)
    if (kind == "AFTER_SHARD_ID") != bool(token.filter_shard):
        raise errors.invalid_argument(
            f"ShardFilter of type {kind}: ShardId belongs to AFTER_SHARD_ID, which needs it."
        )
    if (kind in {"AT_TIMESTAMP", "FROM_TIMESTAMP"}) != (token.filter_ms >= 0):
        raise errors.invalid_argument(
            f"ShardFilter of type {kind}: Timestamp belongs to AT_TIMESTAMP and FROM_TIMESTAMP, "
            "which need it."
        )
    if kind == "AFTER_SHARD_ID":
        return [shard for shard in stream.shards if shard.id > token.filter_shard]
    if kind == "AT_TRIM_HORIZON":
        return stream.open_at(horizon)
    if kind == "AT_LATEST":
        return [shard for shard in stream.shards if shard.is_open]
    if kind == "AT_TIMESTAMP":
        return stream.started_and_not_ended_before(max(token.filter_ms, horizon))
    if kind == "FROM_TIMESTAMP":
        return stream.not_ended_before(max(token.filter_ms, horizon))
    return stream.shards


def _own_number(text: str, stream: Stream, shard: Shard) -> sequence.SequenceNumber:
    number = sequence.parse(text)
    said = f"StartingSequenceNumber {text} used in GetShardIterator on shard {shard.id} in stream"
    if number is None:
        raise errors.invalid_argument(f"{said} {stream.name} under account {ACCOUNT} is invalid.")
    if number.shard_index != shard.index:
        raise errors.invalid_argument(
            f"Invalid StartingSequenceNumber. It encodes shardId-{number.shard_index:012d}, "
            f"while it was used in a call to a shard with {shard.id}"
        )
    if number.shard_created != shard.born_s:
        raise errors.invalid_argument(
            f"{said} {stream.name} under account {ACCOUNT} is invalid because it did not come "
            "from this stream."
        )
    return number


def _hash_key(entry: requests.PutRecordsEntry) -> int:
    explicit = entry.explicit_hash_key
    if explicit is None:
        digest = hashlib.md5(entry.partition_key.encode(), usedforsecurity=False).digest()
        return int.from_bytes(digest, "big")
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


def _entry_size(entry: requests.PutRecordsEntry, where: str, max_bytes: int) -> int:
    """The bytes that a record counts as: its data and its partition key."""
    key = entry.partition_key
    if not 1 <= len(key) <= _MAX_KEY_CHARS:
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
        # a2b_base64 passes over characters that do not belong; then the size gives them away.
        if len(data) % 4 == 0 and len(a2b_base64(data)) == size:
            return size
    except (Base64Error, ValueError):
        pass
    raise errors.serialization(f"'{data[:40]}' can not be converted to a Blob: it is not base64")


def _stream_summary(stream: Stream) -> Json:
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status,
        "StreamModeDetails": {"StreamMode": stream.mode},
        "StreamCreationTimestamp": stream.created_ms / 1000,
    }


def _shard_json(shard: Shard) -> Json:
    numbers = {"StartingSequenceNumber": shard.starting_sequence_number}
    ending = shard.ending_sequence_number
    if ending is not None:
        numbers["EndingSequenceNumber"] = ending
    answer: Json = {
        "ShardId": shard.id,
        "HashKeyRange": _hash_range(shard),
        "SequenceNumberRange": numbers,
    }
    for name, parent in zip(
        ("ParentShardId", "AdjacentParentShardId"), shard.parents, strict=False
    ):
        answer[name] = parent
    return answer


def _hash_range(shard: Shard) -> dict[str, str]:
    return {"StartingHashKey": str(shard.hash_start), "EndingHashKey": str(shard.hash_end)}


def _consumer_json(consumer: Consumer) -> Json:
    return {
        "ConsumerName": consumer.name,
        "ConsumerARN": consumer.arn,
        "ConsumerStatus": "ACTIVE",
        "ConsumerCreationTimestamp": consumer.created_ms / 1000,
    }


def _millis(seconds: float) -> int:
    return round(seconds * 1000)


def _date(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, tz=timezone.utc)
    return moment.strftime("%a %b %d %H:%M:%S UTC %Y")


def _wire(value: Any) -> Any:
    """Python values as a client of the service would send them."""
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, Mapping):
        return {name: _wire(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_wire(item) for item in value]
    return value


Handler = Callable[[LocalKinesis, _Context, Any], "RecordPage | Json | None"]


@dataclasses.dataclass(frozen=True)
class Operation:
    """trusting: see `Codec.decode`."""

    request: type[requests.Request]
    handler: Handler
    trusting: bool = False


# SubscribeToShard, encryption and on-demand settings are not here: they answer UnknownOperation.
OPERATIONS: Mapping[str, Operation] = {
    "AddTagsToStream": Operation(requests.AddTagsToStream, LocalKinesis._add_tags),
    "CreateStream": Operation(requests.CreateStream, LocalKinesis._create_stream),
    "DecreaseStreamRetentionPeriod": Operation(
        requests.RetentionPeriod, LocalKinesis._decrease_retention
    ),
    "DeleteStream": Operation(requests.DeleteStream, LocalKinesis._delete_stream),
    "DeregisterStreamConsumer": Operation(
        requests.StreamConsumer, LocalKinesis._deregister_consumer
    ),
    "DescribeStream": Operation(requests.DescribeStream, LocalKinesis._describe_stream),
    "DescribeStreamConsumer": Operation(requests.StreamConsumer, LocalKinesis._describe_consumer),
    "DescribeStreamSummary": Operation(
        requests.DescribeStreamSummary, LocalKinesis._describe_stream_summary
    ),
    "GetRecords": Operation(requests.GetRecords, LocalKinesis._get_records),
    "GetShardIterator": Operation(requests.GetShardIterator, LocalKinesis._get_shard_iterator),
    "IncreaseStreamRetentionPeriod": Operation(
        requests.RetentionPeriod, LocalKinesis._increase_retention
    ),
    "ListShards": Operation(requests.ListShards, LocalKinesis._list_shards),
    "ListStreamConsumers": Operation(requests.ListStreamConsumers, LocalKinesis._list_consumers),
    "ListStreams": Operation(requests.ListStreams, LocalKinesis._list_streams),
    "ListTagsForStream": Operation(requests.ListTagsForStream, LocalKinesis._list_tags),
    "MergeShards": Operation(requests.MergeShards, LocalKinesis._merge_shards),
    "PutRecord": Operation(requests.PutRecord, LocalKinesis._put_record, trusting=True),
    "PutRecords": Operation(requests.PutRecords, LocalKinesis._put_records, trusting=True),
    "RegisterStreamConsumer": Operation(
        requests.RegisterStreamConsumer, LocalKinesis._register_consumer
    ),
    "RemoveTagsFromStream": Operation(requests.RemoveTagsFromStream, LocalKinesis._remove_tags),
    "SplitShard": Operation(requests.SplitShard, LocalKinesis._split_shard),
    "UpdateShardCount": Operation(requests.UpdateShardCount, LocalKinesis._update_shard_count),
}
