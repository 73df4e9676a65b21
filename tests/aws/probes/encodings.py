"""The encodings of a page: whether CBOR is answered in CBOR, and says what JSON says.

AWS describes its CBOR nowhere. A page in it that is not understood is asked for again in JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkinesis.stream.page import Page, Record
from sparkinesis.stream.position import LATEST
from sparkinesis.stream.shard import Shard
from tests.aws.bench import Bench, BenchStream
from tests.aws.findings import Answer, Question, all_of

_DECODER = "src/sparkinesis/stream/calls/answers/cbor.py"
_CLIENT = "src/sparkinesis/stream/calls/direct/direct_client.py"

KINDS = {"application/x-amz-json-1.1": "JSON", "application/x-amz-cbor-1.1": "CBOR"}

QUESTIONS = (
    Question(
        "encoding.cbor",
        "In what is a page that is asked for in CBOR, and understood?",
        "in CBOR; if in JSON, each process asks once in vain, and its log says why",
        (_DECODER, _CLIENT),
        frozenset({"CBOR"}),
    ),
    Question(
        "encoding.same",
        "Does a page in CBOR have the same records as in JSON?",
        "yes, with the same arrival times",
        (_DECODER,),
        frozenset({True}),
    ),
    Question(
        "encoding.bytes",
        "How long is a page in CBOR, beside the same in JSON?",
        "shorter by nearly a quarter",
        (_CLIENT, "docs/calls.md"),
        unit="%",
        most=80,
    ),
)

RECORDS = 4
SIZE = 20_000
_MOST_PAGES = 8


@dataclass(frozen=True, slots=True)
class Seen:
    """A page, asked for in one of the encodings."""

    kind: str
    """JSON, CBOR, or another type of the answer."""
    size: int
    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Observed:
    pairs: Sequence[tuple[Seen, Seen]]
    """Pages with records, asked for in JSON and in CBOR."""


def measure(bench: Bench, stream: str) -> Observed:
    reader = bench.stream(stream)
    shard = reader.open_shards()[0]
    # From here on: the small records of other probes would count, too.
    iterator: str | None = reader.iterator(shard.id, LATEST)
    reader.put(shard, *(bytes([n]) * (SIZE + n) for n in range(RECORDS)))
    pairs: list[tuple[Seen, Seen]] = []
    for _ in range(_MOST_PAGES):
        if iterator is None:
            break
        in_cbor, _ = _seen(reader, shard, "get_records_in_cbor", iterator)
        in_json, page = _seen(reader, shard, "get_records", iterator)
        iterator = page.next_shard_iterator
        if in_json.records:
            pairs.append((in_json, in_cbor))
        if sum(len(one.records) for one, _ in pairs) >= RECORDS and not page.millis_behind_latest:
            break
    bench.note(f"{len(pairs)} pages asked for in both encodings")
    return Observed(pairs)


def _seen(reader: BenchStream, shard: Shard, method: str, iterator: str) -> tuple[Seen, Page]:
    answer = reader.answer(shard.id, method, iterator)
    headers, page = answer["ResponseMetadata"]["HTTPHeaders"], answer["Page"]
    kind = headers.get("content-type", "none")
    size = int(headers.get("content-length", 0))
    return Seen(KINDS.get(kind, kind), size, page.records), page


def answers(seen: Observed) -> dict[str, Answer]:
    if not seen.pairs:
        return {}
    kinds = sorted({in_cbor.kind for _, in_cbor in seen.pairs})
    in_cbor = [pair for pair in seen.pairs if pair[1].kind == "CBOR"]
    sizes = [sum(one.size for one in side) for side in zip(*in_cbor, strict=True)]
    return {
        "encoding.cbor": Answer(kinds[0] if len(kinds) == 1 else "now the one, now the other"),
        "encoding.same": all_of([a.records == b.records for a, b in in_cbor], "pages"),
        "encoding.bytes": Answer(round(100 * sizes[1] / sizes[0]), f"{sizes[0]:,} bytes of JSON")
        if sizes and sizes[0]
        else Answer(None, "no page came in CBOR with its length"),
    }
