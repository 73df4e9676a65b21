"""Decodes the body of a GetRecords answer to Arrow columns, against botocore's parser to a dict.

Both get the same bytes in the same process, one core, no network. botocore's result is a dict per
record, ours a batch of columns; neither is a copy of the other, both are what the reader works on.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

import botocore.session
import pyarrow as pa

from benchmarks.report import Result, medians, print_table
from sparkinesis.stream.calls.answers.decoding import decode_page
from sparkinesis.stream.reading.arrow import to_arrow

# GetRecords returns 10 MB or 10,000 records, whichever comes first; the last one is larger than
# that, to compare 10 MB with 10 MB.
PAGES = (
    ("1 KB records, 10 MB", 1000, 10_000, 5),
    ("200 B records, 2 MB", 200, 10_000, 10),
    ("200 B records, 10 MB", 200, 50_000, 10),
)
"""Name, bytes of a record, records, and the required ratio. Large records are mostly base64, which
botocore's parser decodes in C, too: there the machine's memory decides, and ratios of 6 to 11 were
seen with the same code."""


def page_body(record_size: int, count: int, seed: int = 1) -> bytes:
    """A page as the service writes it: no spaces, seconds as a decimal with exponent."""
    rng = random.Random(seed)
    first = 49_640_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000
    records = ",".join(
        f'{{"ApproximateArrivalTimestamp":{_seconds(1_790_000_000_000 + number)},'
        f'"Data":"{base64.b64encode(rng.randbytes(record_size)).decode()}",'
        f'"PartitionKey":"{rng.getrandbits(128):032x}",'
        f'"SequenceNumber":"{first + number}"}}'
        for number in range(count)
    )
    iterator = base64.b64encode(rng.randbytes(168)).decode()
    return (
        f'{{"MillisBehindLatest":12000,"NextShardIterator":"{iterator}","Records":[{records}]}}'
    ).encode()


def _seconds(milliseconds: int) -> str:
    digits = str(milliseconds)
    return f"{digits[0]}.{digits[1:]}E9"


def botocore_parser() -> Callable[[bytes], dict[str, Any]]:
    """The parser that a boto3 client uses for the body of a GetRecords answer."""
    session = botocore.session.Session()
    shape = session.get_service_model("kinesis").operation_model("GetRecords").output_shape
    parser = session.get_component("response_parser_factory").create_parser("json")

    def parse(body: bytes) -> dict[str, Any]:
        answer = {"body": body, "headers": {}, "status_code": 200}
        parsed: dict[str, Any] = parser.parse(answer, shape)
        return parsed

    return parse


def to_batch(body: bytes) -> pa.RecordBatch:
    records = decode_page(body).records
    return to_arrow(records, stream="orders", shard_id="shardId-000000000000", deaggregate=False)


def check(body: bytes, parse: Callable[[bytes], dict[str, Any]]) -> None:
    """Both read the same records, or there is nothing to compare."""
    columns = ["partitionKey", "data", "sequenceNumber", "approximateArrivalTimestamp"]
    rows = to_batch(body).select(columns).to_pylist()
    theirs = [
        {column: record[column[0].upper() + column[1:]] for column in columns}
        for record in parse(body)["Records"]
    ]
    assert rows == theirs
    assert len(rows) == len(json.loads(body)["Records"])


def run() -> list[Result]:
    parse = botocore_parser()
    results = []
    for name, size, count, required in PAGES:
        body = page_body(size, count)
        check(body, parse)
        ours, theirs = medians(lambda: to_batch(body), lambda: parse(body))  # noqa: B023
        megabytes = len(body) / 1e6
        results += [
            Result(
                f"decode to Arrow, {name}",
                megabytes / ours,
                "MB/s",
                theirs / ours,
                required,
                f"{count / ours / 1e6:.2f} million records/s, body of {megabytes:.1f} MB",
            ),
            Result(f"botocore's parser, {name}", megabytes / theirs, "MB/s"),
        ]
    return results


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()
