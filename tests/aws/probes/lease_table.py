"""The lease table: conditional writes, alone and as statements of BatchExecuteStatement.

The fence of a lease rests on them: a worker that has lost a lease must be refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from sparkinesis.lease.extended_sequence_number import TRIM_HORIZON, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.statements import BATCH
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.update import Update
from sparkinesis.stream.calls.retry import Backoff, error_code
from tests.aws.bench import Bench
from tests.aws.findings import Answer, Question
from tests.aws.spending import Use

_BATCH = "src/sparkinesis/lease/table/statements.py"
_BATCHING = "src/sparkinesis/lease/table/batching.py"
_UPDATE = "src/sparkinesis/lease/table/update.py"
_CONFLICT = "src/sparkinesis/lease/table/write_conflict.py"

WRITTEN = "written"
REFUSED_WITH_ROW, REFUSED = "refused, with the row", "refused, without the row"

QUESTIONS = (
    Question(
        "table.batch_writes",
        "What does a batched statement do whose condition holds?",
        "it is written, as a GetItem with ConsistentRead shows at once",
        (_BATCH, _UPDATE),
        frozenset({WRITTEN}),
    ),
    Question(
        "table.batch_refuses",
        "What does a batched statement do whose condition does not hold?",
        "it is refused, and the refusal holds the row",
        (_BATCHING, _BATCH, _CONFLICT),
        frozenset({REFUSED_WITH_ROW}),
    ),
    Question(
        "table.batch_is_no_transaction",
        "Are the other statements of that batch written?",
        "yes: each statement stands for itself",
        (_BATCH,),
        frozenset({True}),
    ),
    Question(
        "table.batch_creates_no_row",
        "Does an UPDATE statement for a missing row leave the table without that row?",
        "yes: a deleted lease stays deleted",
        (_UPDATE,),
        frozenset({True}),
    ),
    Question(
        "table.batch_is_missing",
        "Is a condition IS MISSING refused for an attribute that is there?",
        "yes: so a requested handoff is noticed",
        (_UPDATE,),
        frozenset({True}),
    ),
    Question(
        "table.batch_of_25",
        "How many of 25 statements in one call are written?",
        "all of them",
        (_BATCH,),
        frozenset({BATCH}),
    ),
    Question(
        "table.one_wins",
        "An owner renews a lease while another worker takes it: how many of them get it?",
        "one, each time",
        (_UPDATE, _BATCHING),
        frozenset({1}),
    ),
    Question(
        "table.update_refuses",
        "What does an UpdateItem do whose condition does not hold?",
        "it is refused, and the refusal holds the row",
        (_UPDATE, _CONFLICT),
        frozenset({REFUSED_WITH_ROW}),
    ),
)

ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Observed:
    """What single statements and writes were answered (`WRITTEN` and so on), and what rows hold."""

    good: str
    good_is_stored: bool
    stale: str
    beside_stale_is_stored: bool
    missing_row_is_absent: bool
    handed_off: str
    of_25: int
    winners: Sequence[int]
    """In each round."""
    update: str


class Writer:
    """Sends the library's writes, and tells the raw answers: the library hides how it was told."""

    def __init__(self, bench: Bench, table: str) -> None:
        self._client = bench.target.client("dynamodb")
        self._table = table
        self._retry = Backoff(give_up_after=30.0)

    def batch(self, updates: Sequence[Update]) -> list[str]:
        """Send the statements in one call; return what each was answered."""
        statements = [update.statement(self._table) for update in updates]
        answer = self._retry.call(
            lambda: self._client.batch_execute_statement(Statements=statements)
        )
        return [_told(response.get("Error")) for response in answer["Responses"]]

    def alone(self, update: Update) -> str:
        """Send the write as an UpdateItem."""
        try:
            self._retry.call(lambda: self._client.update_item(**update.request(self._table)))
        except ClientError as error:
            return _told({"Code": error_code(error), "Item": error.response.get("Item")})
        return WRITTEN


def _told(error: Mapping[str, Any] | None) -> str:
    if error is None:
        return WRITTEN
    if not str(error["Code"]).startswith("ConditionalCheckFailed"):
        return f"failed: {error['Code']}"
    return REFUSED_WITH_ROW if error.get("Item") else REFUSED


def measure(bench: Bench) -> Observed:
    # Each write and each row that is read; five times as much as the writes and reads below.
    bench.allowance.take(Use(writes=20 * BATCH, reads=20 * BATCH))
    name = bench.resources.create_table("leases")
    table, writer = bench.target.table(name), Writer(bench, name)
    for n in range(BATCH):
        bench.limit.check()
        table.create(_lease(n))
    first, second, third, *rest = (_lease(n) for n in range(BATCH))
    (good,) = writer.batch([requests.renew(first)])
    good_is_stored = _counter(table, first) == first.counter + 1
    # By now `first` is stale, as it is for a worker that has lost the lease.
    stale, _ = writer.batch([requests.renew(first), requests.renew(second)])
    beside_stale_is_stored = _counter(table, second) == second.counter + 1
    writer.batch([requests.renew(_lease(BATCH))])
    missing_row_is_absent = table.get(_lease(BATCH).key) is None
    writer.alone(requests.initiate_handoff(third, "worker-b"))
    (handed_off,) = writer.batch([requests.renew(third)])
    table.create(_lease(BATCH))
    present = [lease for lease in table.leases() if lease.key != third.key]
    bench.limit.check()
    of_25 = writer.batch([requests.renew(lease) for lease in present])
    bench.note("batches of conditional writes sent")
    winners = [_race(bench, table, writer, rest[0].key) for _ in range(ROUNDS)]
    bench.note(f"{ROUNDS} races of two workers run")
    return Observed(
        good,
        good_is_stored,
        stale,
        beside_stale_is_stored,
        missing_row_is_absent,
        handed_off,
        of_25.count(WRITTEN),
        winners,
        writer.alone(requests.renew(first)),
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
    bench.limit.check()
    lease = table.get(key)
    assert lease is not None
    with ThreadPoolExecutor(2) as pool:
        renewed = pool.submit(writer.batch, [requests.renew(lease)])
        taken = pool.submit(writer.alone, requests.take(lease, "worker-b"))
        return [*renewed.result(), taken.result()].count(WRITTEN)


def answers(seen: Observed) -> dict[str, Answer]:
    is_hidden = seen.good == WRITTEN and not seen.good_is_stored
    rounds = sorted(set(seen.winners))
    winners = rounds[0] if len(rounds) == 1 else " or ".join(map(str, rounds))
    return {
        "table.batch_writes": Answer("answered, but not stored" if is_hidden else seen.good),
        "table.batch_refuses": Answer(seen.stale),
        "table.batch_is_no_transaction": Answer(seen.beside_stale_is_stored),
        "table.batch_creates_no_row": Answer(seen.missing_row_is_absent),
        "table.batch_is_missing": Answer(seen.handed_off in {REFUSED, REFUSED_WITH_ROW}),
        "table.batch_of_25": Answer(seen.of_25),
        "table.one_wins": Answer(winners, f"{len(seen.winners)} times"),
        "table.update_refuses": Answer(seen.update),
    }
