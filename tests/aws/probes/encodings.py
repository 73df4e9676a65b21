"""The encodings of a page: whether CBOR is answered in CBOR, and says what JSON says.

AWS describes its CBOR nowhere. A page in it that is not understood is asked for again in JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparkinesis.stream.position import LATEST
from tests.aws.answer import Answer, all_of
from tests.aws.bench import Bench, BenchStream

_DECODER = "src/sparkinesis/stream/calls/answers/cbor.py"
_CLIENT = "src/sparkinesis/stream/calls/direct/direct_client.py"

CBOR = "application/x-amz-cbor-1.1"

RECORDS = 4
SIZE = 20_000
_MOST_PAGES = 8


def probe(bench: Bench, stream: BenchStream) -> Iterator[Answer]:
    del bench
    shard = stream.open_shards()[0]
    # From here on: the small records of other probes would count, too.
    iterator: str | None = stream.iterator(shard.id, LATEST)
    stream.put(shard, *(bytes([n]) * (SIZE + n) for n in range(RECORDS)))
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for _ in range(_MOST_PAGES):
        if iterator is None:
            break
        in_cbor = stream.answer(shard.id, "get_records_in_cbor", iterator)
        in_json = stream.answer(shard.id, "get_records", iterator)
        page = in_json["Page"]
        iterator = page.next_shard_iterator
        if page.records:
            pairs.append((in_json, in_cbor))
        found = sum(len(one["Page"].records) for one, _ in pairs)
        if found >= RECORDS and not page.millis_behind_latest:
            break
    kinds = sorted({_header(in_cbor, "content-type") for _, in_cbor in pairs})
    both = [pair for pair in pairs if _header(pair[1], "content-type") == CBOR]
    json_size, cbor_size = (
        sum(int(_header(pair[side], "content-length") or 0) for pair in both) for side in (0, 1)
    )
    yield Answer(
        "encoding.cbor",
        "In what is a page that is asked for in CBOR, and understood?",
        {(): None, (CBOR,): "CBOR"}.get(tuple(kinds), " and ".join(kinds)),
        {"CBOR"},
        "in CBOR; if in JSON, each process asks once in vain, and its log says why",
        (_DECODER, _CLIENT),
        f"{len(pairs)} pages",
    )
    same, note = all_of([a["Page"].records == b["Page"].records for a, b in both], "pages")
    yield Answer(
        "encoding.same",
        "Does a page in CBOR have the same records as in JSON?",
        same,
        {True},
        "yes, with the same arrival times",
        (_DECODER,),
        note,
    )
    yield Answer(
        "encoding.bytes",
        "How long is a page in CBOR, beside the same in JSON?",
        round(100 * cbor_size / json_size) if json_size else None,
        range(81),
        "shorter by nearly a quarter",
        (_CLIENT, "docs/calls.md"),
        f"{json_size:,} bytes of JSON",
        "%",
    )


def _header(answer: dict[str, Any], name: str) -> str:
    return str(answer["ResponseMetadata"]["HTTPHeaders"].get(name, ""))
