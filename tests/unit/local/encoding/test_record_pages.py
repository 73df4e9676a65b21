"""Pages of records: the same records in CBOR as in JSON, whoever put them and wherever they lie."""

from __future__ import annotations

import base64
import dataclasses
import gc
import json
import tracemalloc
from typing import Any

import cbor2
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkinesis.local import Fault, LocalKinesis, ManualClock
from sparkinesis.local.encoding.codecs import CborCodec, Codec, JsonCodec
from sparkinesis.local.model.records import buffers
from tests.examples import examples
from tests.unit.local.calls import ARN, DAY, Stream
from tests.unit.local.subscribing import Listener, register

START = 1_800_000_000_123
MIB = 1 << 20
# The lengths at which CBOR's head of an item grows, and lengths that are no multiple of base64's.
SIZES = st.sampled_from([0, 1, 2, 3, 22, 23, 24, 25, 255, 256, 257, 65_535, 65_536, 65_537])
DATA = st.one_of(st.binary(max_size=300), SIZES.map(lambda size: bytes([size % 251]) * size))
KEYS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256),
    st.sampled_from(["k" * 23, "k" * 24, "€" * 256, "\U0001f600" * 256, '"\\\x00\x7f\u2028']),
)


@dataclasses.dataclass(frozen=True)
class Put:
    """One record to put, in a call of its own or with others. codec: of the put's body."""

    data: bytes
    key: str | None
    codec: Codec


def put(kinesis: LocalKinesis, stream: str, *records: Put) -> None:
    codec = records[0].codec
    entries: list[dict[str, Any]] = [
        {
            "Data": record.data if isinstance(codec, CborCodec) else _text(record.data),
            **({} if record.key is None else {"PartitionKey": record.key}),
        }
        for record in records
    ]
    request = {"StreamName": stream, "Records": entries}
    encode = cbor2.dumps if isinstance(codec, CborCodec) else _json
    assert kinesis.serve("PutRecords", encode(request), codec=codec).error is None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def in_both(kinesis: LocalKinesis, iterator: str, **request: Any) -> tuple[Any, Any]:
    """Return one page by each of the codecs, in the types of JSON."""
    asked = {"ShardIterator": iterator, **request}
    as_json = kinesis.serve("GetRecords", _json(asked))
    as_cbor = kinesis.serve("GetRecords", cbor2.dumps(asked), codec=CborCodec())
    return json.loads(as_json.body), in_json(as_cbor.body)


def in_json(body: bytes) -> Any:
    page = cbor2.loads(body, semantic_decoders={1: lambda value, _: cbor2.CBORTag(1, value)})
    for record in page["Records"]:
        at = record["ApproximateArrivalTimestamp"]
        assert at.tag == 1
        assert type(at.value) is int
        record["ApproximateArrivalTimestamp"] = at.value / 1000
        record["Data"] = _text(record["Data"])
    return page


@settings(max_examples=examples(40), deadline=None)
@given(
    records=st.lists(
        st.builds(Put, DATA, KEYS | st.none(), st.sampled_from([JsonCodec(), CborCodec()])),
        min_size=1,
        max_size=12,
    ),
    encrypted=st.booleans(),
    begin_ms=st.sampled_from([START, 0, 22, 255, 65_535, 2**32 - 1]),
    skew_ms=st.sampled_from([0, 1, 877, -1]),
    limit=st.integers(1, 12),
    omit=st.frozensets(st.sampled_from(["NextShardIterator", "MillisBehindLatest"])),
)
def test_a_page_is_the_same_in_both(
    *,
    records: list[Put],
    encrypted: bool,
    begin_ms: int,
    skew_ms: int,
    limit: int,
    omit: frozenset[str],
) -> None:
    kinesis = LocalKinesis(
        clock=ManualClock(begin_ms),
        limits=False,
        faults=lambda _: Fault(arrival_skew_ms=skew_ms, omit=omit),
    )
    mode: Any = {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}
    kinesis.call("CreateStream", StreamName="s", **mode)
    strategy = {"RecordDistributionStrategy": "AUTO"}  # takes records without keys
    kinesis.call("UpdateStreamRecordDistributionStrategy", StreamARN=ARN, **strategy)
    if encrypted:
        key = {"EncryptionType": "KMS", "KeyId": "alias/aws/kinesis"}
        kinesis.call("StartStreamEncryption", StreamName="s", **key)
    for written in records:
        put(kinesis, "s", written)
    read: list[dict[str, Any]] = []
    for shard in kinesis.call("ListShards", StreamName="s")["Shards"]:
        begin = {"ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        got = kinesis.call("GetShardIterator", StreamName="s", **begin)
        whole = in_both(kinesis, got["ShardIterator"])
        limited = in_both(kinesis, got["ShardIterator"], Limit=limit)
        for as_json, as_cbor in (whole, limited):
            assert as_cbor == as_json
        assert limited[0]["Records"] == whole[0]["Records"][:limit]
        read += whole[0]["Records"]
    assert sorted((record["Data"], record.get("PartitionKey", "")) for record in read) == sorted(
        (_text(written.data), written.key or "")
        for written in records
        if begin_ms + skew_ms >= 0  # an earlier one is trimmed at once
    )
    for record in read:
        assert record["ApproximateArrivalTimestamp"] == (begin_ms + skew_ms) / 1000
        assert record.get("EncryptionType") == ("KMS" if encrypted else None)


def test_a_page_may_begin_and_end_in_any_block(kinesis: LocalKinesis, stream: Stream) -> None:
    """Records of all sizes, up to 1 MiB: some blocks hold many of them, some hold one."""
    sizes = [200] * 300 + [MIB - 1, 0, MIB - 1, MIB - 1] + [20_000] * 120 + [7] * 50
    written = [bytes([i % 256]) * size for i, size in enumerate(sizes)]
    for i in range(0, len(written), 4):
        put(kinesis, "s", *(Put(data, "k", JsonCodec()) for data in written[i : i + 4]))
    numbers = [str(record["SequenceNumber"]) for record in _all(kinesis, stream)]
    assert len(numbers) == len(sizes)
    for start in (0, 299, 300, 301, 303, 304, 423, 424, len(sizes) - 1):
        at = stream.iterator("AT_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[start])
        for limit in (1, 2, 10_000):
            as_json, as_cbor = in_both(kinesis, at, Limit=limit)
            assert as_cbor == as_json
            got = [base64.b64decode(record["Data"]) for record in as_json["Records"]]
            assert got == written[start : start + len(got)]
            assert len(got) == min(limit, len(sizes) - start) or sum(map(len, got)) > 9 * MIB


def _all(kinesis: LocalKinesis, stream: Stream) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    iterator = stream.iterator()
    while page := kinesis.call("GetRecords", ShardIterator=iterator):
        found += page["Records"]
        iterator = page["NextShardIterator"]
        if page["MillisBehindLatest"] == 0:
            break
    return found


def test_pages_are_whole_when_old_records_are_trimmed(
    kinesis: LocalKinesis, stream: Stream, clock: ManualClock
) -> None:
    """A quarter of the records is deleted at a time, with the blocks that hold no other record.

    A page has 9.6 MB here: with a quarter more it would have more than a page may have.
    """
    for hour in range(50):
        data = [bytes([hour]) * 40_000, b"", bytes([hour])]
        put(kinesis, "s", *(Put(item, "k", CborCodec()) for item in data * 10))
        clock.advance(DAY // 24)
        if hour % 7:
            continue
        as_json, as_cbor = in_both(kinesis, stream.iterator())
        assert as_cbor == as_json
        kept = range(max(0, hour - 23), hour + 1)
        expected = [
            _text(item) for old in kept for item in [bytes([old]) * 40_000, b"", bytes([old])] * 10
        ]
        assert [record["Data"] for record in as_json["Records"]] == expected


def test_an_event_is_the_same_in_both_while_others_put(
    kinesis: LocalKinesis, stream: Stream
) -> None:
    """An event is encoded without the lock, so the block with its records may be growing."""
    listener = Listener(kinesis, register(stream))
    put(kinesis, "s", *(Put(bytes(size), "k", JsonCodec()) for size in (0, 30_000, 1)))
    step: Any = listener.step()
    held = buffers(step.page.records.json), buffers(step.page.records.cbor)
    put(kinesis, "s", Put(b"later" * 200_000, "k", JsonCodec()))
    as_json, as_cbor = JsonCodec().encode(step.page), CborCodec().encode(step.page)
    assert b"".join(held[0])[:-1] in as_json
    assert b"".join(held[1]) in as_cbor
    page = json.loads(as_json)
    assert in_json(as_cbor) == page
    sizes = [len(base64.b64decode(record["Data"])) for record in page["Records"]]
    assert sizes == [0, 30_000, 1]
    assert "ContinuationSequenceNumber" in page
    assert len(_all(kinesis, stream)) == 4


def test_trimmed_records_take_no_memory(
    kinesis: LocalKinesis, stream: Stream, clock: ManualClock
) -> None:
    def held() -> int:
        stream.read("LATEST")  # trims
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = held()
        for _ in range(20):
            put(kinesis, "s", Put(b"x" * (MIB - 1), "k", CborCodec()))
            assert held() - before > 2 * MIB
            clock.advance(DAY + 1)
        assert held() - before < MIB
    finally:
        tracemalloc.stop()


def test_a_collection_walks_no_record(kinesis: LocalKinesis, stream: Stream) -> None:
    def walked() -> int:
        gc.collect()
        return sum(len(gc.get_referents(found)) for found in gc.get_objects())

    kinesis.calls.clear()
    before = walked()
    for _ in range(1000):
        put(kinesis, "s", *(Put(b"x" * 100, "k", JsonCodec()) for _ in range(3)))
    kinesis.calls.clear()
    assert walked() - before < 500, "3,000 records are stored, of 1,000 puts"
