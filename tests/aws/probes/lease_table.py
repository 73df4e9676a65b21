"""The lease table: conditional writes, alone and as statements of BatchExecuteStatement.

The fence of a lease rests on them: a worker that has lost a lease must be refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import ClientError

from sparkinesis.lease.extended_sequence_number import TRIM_HORIZON, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.statements import BATCH
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.update import Update
from sparkinesis.stream.calls.retry import error_code
from tests.aws.answer import Answer
from tests.aws.bench import Bench, BenchStream

_BATCH = "src/sparkinesis/lease/table/statements.py"
_BATCHING = "src/sparkinesis/lease/table/batching.py"
_UPDATE = "src/sparkinesis/lease/table/update.py"
_CONFLICT = "src/sparkinesis/lease/table/write_conflict.py"

WRITTEN = "written"
REFUSED_WITH_ROW, REFUSED = "refused, with the row", "refused, without the row"

ROUNDS = 10


class Writer:
    """Sends the library's writes, and tells the raw answers: the library hides how it was told."""

    def __init__(self, bench: Bench, table: str) -> None:
        self._client = bench.client("dynamodb")
        self._table = table

    def batch(self, updates: Sequence[Update]) -> list[str]:
        """Send the statements in one call; return what each was answered."""
        statements = [update.statement(self._table) for update in updates]
        answer = self._client.batch_execute_statement(Statements=statements)
        return [_told(response.get("Error")) for response in answer["Responses"]]

    def alone(self, update: Update) -> str:
        """Send the write as an UpdateItem."""
        try:
            self._client.update_item(**update.request(self._table))
        except ClientError as error:
            return _told({"Code": error_code(error), "Item": error.response.get("Item")})
        return WRITTEN


def _told(error: Mapping[str, Any] | None) -> str:
    if error is None:
        return WRITTEN
    if not str(error["Code"]).startswith("ConditionalCheckFailed"):
        return f"failed: {error['Code']}"
    return REFUSED_WITH_ROW if error.get("Item") else REFUSED


def probe(bench: Bench, stream: BenchStream) -> Iterator[Answer]:
    del stream
    table = bench.create_table("leases")
    writer = Writer(bench, table.name)
    for n in range(BATCH):
        table.create(_lease(n))
    first, second, third, raced, *_ = (_lease(n) for n in range(BATCH))
    (good,) = writer.batch([requests.renew(first)])
    is_hidden = good == WRITTEN and _counter(table, first) != first.counter + 1
    yield Answer(
        "table.batch_writes",
        "What does a batched statement do whose condition holds?",
        "answered, but not stored" if is_hidden else good,
        {WRITTEN},
        "it is written, as a GetItem with ConsistentRead shows at once",
        (_BATCH, _UPDATE),
    )
    # By now `first` is stale, as it is for a worker that has lost the lease.
    stale, _ = writer.batch([requests.renew(first), requests.renew(second)])
    yield Answer(
        "table.batch_refuses",
        "What does a batched statement do whose condition does not hold?",
        stale,
        {REFUSED_WITH_ROW},
        "it is refused, and the refusal holds the row",
        (_BATCHING, _BATCH, _CONFLICT),
    )
    yield Answer(
        "table.batch_is_no_transaction",
        "Are the other statements of that batch written?",
        _counter(table, second) == second.counter + 1,
        {True},
        "yes: each statement stands for itself",
        (_BATCH,),
    )
    writer.batch([requests.renew(_lease(BATCH))])
    yield Answer(
        "table.batch_creates_no_row",
        "Does an UPDATE statement for a missing row leave the table without that row?",
        table.get(_lease(BATCH).key) is None,
        {True},
        "yes: a deleted lease stays deleted",
        (_UPDATE,),
    )
    writer.alone(requests.initiate_handoff(third, "worker-b"))
    (handed_off,) = writer.batch([requests.renew(third)])
    yield Answer(
        "table.batch_is_missing",
        "Is a condition IS MISSING refused for an attribute that is there?",
        handed_off in {REFUSED, REFUSED_WITH_ROW},
        {True},
        "yes: so a requested handoff is noticed",
        (_UPDATE,),
    )
    table.create(_lease(BATCH))
    present = [lease for lease in table.leases() if lease.key != third.key]
    of_25 = writer.batch([requests.renew(lease) for lease in present])
    yield Answer(
        "table.batch_of_25",
        "How many of 25 statements in one call are written?",
        of_25.count(WRITTEN),
        {BATCH},
        "all of them",
        (_BATCH,),
    )
    winners = sorted({_race(bench, table, writer, raced.key) for _ in range(ROUNDS)})
    yield Answer(
        "table.one_wins",
        "An owner renews a lease while another worker takes it: how many of them get it?",
        winners[0] if len(winners) == 1 else " or ".join(map(str, winners)),
        {1},
        "one, each time",
        (_UPDATE, _BATCHING),
        f"{ROUNDS} times",
    )
    yield Answer(
        "table.update_refuses",
        "What does an UpdateItem do whose condition does not hold?",
        writer.alone(requests.renew(first)),
        {REFUSED_WITH_ROW},
        "it is refused, and the refusal holds the row",
        (_UPDATE, _CONFLICT),
    )


def _lease(n: int) -> Lease:
    key = f"lease-{n:02}"
    start = ExtendedSequenceNumber(TRIM_HORIZON)
    return Lease(key, key, start, owner="worker-a", hash_range=(0, 1))


def _counter(table: LeaseTable, lease: Lease) -> int | None:
    row = table.get(lease.key)
    return None if row is None else row.counter


def _race(bench: Bench, table: LeaseTable, writer: Writer, key: str) -> int:
    """Let the owner renew a lease while another worker takes it; return how many were told yes."""
    bench.check()
    lease = table.get(key)
    assert lease is not None
    with ThreadPoolExecutor(2) as pool:
        renewed = pool.submit(writer.batch, [requests.renew(lease)])
        taken = pool.submit(writer.alone, requests.take(lease, "worker-b"))
        return [*renewed.result(), taken.result()].count(WRITTEN)
