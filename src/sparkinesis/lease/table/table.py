"""The calls on a KCL application's lease table in DynamoDB, each with retries."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import LeaseTableError, SparkinesisError
from sparkinesis.lease.lease import Lease, encode_lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.address import TableAddress
from sparkinesis.lease.table.batch import Failed, write_batch
from sparkinesis.lease.table.client import dynamodb_client
from sparkinesis.lease.table.explain import explain
from sparkinesis.lease.table.measured_client import measured_client
from sparkinesis.lease.table.provisioning import Patience, ProvisionOptions, provision
from sparkinesis.lease.table.rows import BrokenLease, TableScan, read_row, read_rows
from sparkinesis.lease.table.update import Update, has_landed
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.stream.calls.retry import Retry, error_code, is_in_doubt

_T = TypeVar("_T")

REFUSED = "ConditionalCheckFailedException"


def _brief_retry() -> Retry:
    # Brief, because renewals and checkpoints are retried by their callers, who know the deadline.
    return Retry(base=0.05, cap=1.0, give_up_after=3.0)


@dataclass(frozen=True, slots=True)
class LeaseTable(TableAddress):
    """The calls on the lease table at an address.

    Safe to share between threads. All calls raise `LeaseTableNotFoundError` if there is no such
    table, `AccessDeniedError`, `LeaseTableUnavailableError` once retries ran out, and
    `ServiceError` for anything else. Writes also raise `LeaseChangedError` if the row has changed;
    nothing is written then. They return the row after the write.
    """

    retry: Retry = field(default_factory=_brief_retry, compare=False, repr=False)
    metrics: Metrics = field(default=OFF, compare=False, repr=False)
    """Takes the measurements of the calls, by the clock of ``retry``."""

    def provision(self, options: ProvisionOptions, patience: Patience | None = None) -> bool:
        """Create the table if it is missing, and wait until it is usable.

        Returns True if this call created it. Raises `LeaseTableError`, before any write, if a table
        of that name exists that is not a lease table, and `LeaseTableNotFoundError` if the table
        was deleted while this process used it.
        """
        return self._call(
            None,
            lambda client: provision(
                client, self, options, retry=self.retry, patience=patience or Patience()
            ),
        )

    def leases(self, retry: Retry | None = None, *, consistent: bool = True) -> list[Lease]:
        """Return all leases, by a Scan; rows that are not leases are skipped.

        Without ``consistent``, at half the price, a row may be as of a moment ago. Also raises
        `LeaseTableError` if a row cannot be read: the position of its shard is then unknown.
        """
        return self.sound(self.scan(retry, consistent=consistent))

    def scan(
        self,
        retry: Retry | None = None,
        *,
        consistent: bool = True,
        read: Callable[[Iterable[Mapping[str, Any]]], TableScan] = read_rows,
    ) -> TableScan:
        """Return all leases and, apart from them, the rows that cannot be read.

        read: reads the rows, as DynamoDB's API returns them.
        """
        return read(self.items(retry, consistent=consistent))

    def items(
        self, retry: Retry | None = None, *, consistent: bool = True
    ) -> list[Mapping[str, Any]]:
        """Return all rows as DynamoDB's API returns them, also those that are not leases."""
        items: list[Mapping[str, Any]] = []
        request: dict[str, Any] = {"TableName": self.name, "ConsistentRead": consistent}
        while True:
            answer = self._call("Scan", lambda client: client.scan(**request), retry)
            items += answer["Items"]
            if not answer.get("LastEvaluatedKey"):
                return items
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def read(self, keys: Iterable[str]) -> TableScan:
        """Return the rows of these keys that exist, by a consistent GetItem for each."""
        return read_rows([item for item in map(self._item, keys) if item is not None])

    def sound(self, scan: TableScan) -> list[Lease]:
        """Return the leases of a scan. Raises `LeaseTableError` if it has rows that are broken."""
        if scan.broken:
            raise self._broken(*scan.broken)
        return list(scan.leases)

    def _broken(self, *rows: BrokenLease) -> LeaseTableError:
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        return LeaseTableError(
            f"The {self} has leases that cannot be read: {', '.join(map(str, rows[:5]))}{more}. "
            "Repair the rows. Or delete them: within minutes each shard is read again, from the "
            "application's initial position or its oldest record, so that processed records are "
            "processed again."
        )

    def get(self, key: str) -> Lease | None:
        """Return one lease; None if the row does not exist or is not a lease.

        Also raises `LeaseTableError` if the row cannot be read.
        """
        row = self._row(key)
        if isinstance(row, BrokenLease):
            raise self._broken(row)
        return row

    def _row(self, key: str) -> Lease | BrokenLease | None:
        item = self._item(key)
        return None if item is None else read_row(item)

    def _item(self, key: str) -> Mapping[str, Any] | None:
        request = {"TableName": self.name, "Key": {"leaseKey": {"S": key}}, "ConsistentRead": True}
        answer = self._call("GetItem", lambda client: client.get_item(**request))
        item: Mapping[str, Any] | None = answer.get("Item")
        return item or None

    def create(self, lease: Lease) -> bool:
        """Create a lease; return False, and write nothing, if a row with its key exists."""
        return self.create_item(encode_lease(lease))

    def create_item(self, item: Mapping[str, Any]) -> bool:
        """Create a row as DynamoDB's API accepts it; return False if a row with its key exists."""
        try:
            self._call(
                "PutItem",
                lambda client: client.put_item(
                    TableName=self.name,
                    Item=item,
                    ConditionExpression="attribute_not_exists(leaseKey)",
                ),
            )
        except _RefusedError:
            return False
        return True

    def withdraw(
        self, keys: Iterable[str], worker_id: str, held: Callable[[], Container[str]]
    ) -> None:
        """Withdraw a worker's requests for leases; release a lease that the worker was given.

        Leaves alone what another worker owns, and what ``held`` contains by then. A row that cannot
        be read does not keep the others waiting; its error is raised at the end.
        """
        trouble: LeaseTableError | None = None
        for key in keys:
            try:
                row = self.get(key)
                while row is not None and row.owner == worker_id and key not in held():
                    row = self._withdraw(row)
            except LeaseTableError as error:
                trouble = error
        if trouble is not None:
            raise trouble

    def _withdraw(self, row: Lease) -> Lease | None:
        """Withdraw a request, or release the lease; return the row if it has changed meanwhile."""
        withdraw = requests.evict if row.checkpoint_owner is None else requests.withdraw_handoff
        try:
            self.write(withdraw(row))
        except LeaseChangedError as changed:
            return changed.row
        return None

    def delete(self, lease: Lease) -> bool:
        """Delete a lease that is still finished, or unchanged; return False if it is neither."""
        try:
            self._call(
                "DeleteItem", lambda client: client.delete_item(**requests.delete(lease, self.name))
            )
        except _RefusedError:
            return False
        return True

    def write(self, update: Update, *, in_doubt: bool = False) -> Lease:
        """Write an update by UpdateItem; return the row.

        ``in_doubt``: the update was sent before, and may have taken effect. A row in the state that
        the update leaves then counts as success.
        """

        def send(client: Any) -> Mapping[str, Any]:
            nonlocal in_doubt
            try:
                answer: Mapping[str, Any] = client.update_item(**update.request(self.name))
            except (ClientError, BotoCoreError) as error:
                in_doubt = in_doubt or is_in_doubt(error)
                raise
            return answer

        try:
            item = self._call("UpdateItem", send)["Attributes"]
        except _RefusedError as refused:
            return self._refused(update, refused.item, in_doubt)
        written = read_row(item)
        # A row that was damaged by hand meanwhile still has its owner, whose next checkpoint
        # repairs it. As after a batch, the rest of the row is assumed to be unchanged.
        return written if isinstance(written, Lease) else update.after

    def try_write(self, update: Update, *, in_doubt: bool = False) -> Lease | SparkinesisError:
        """Return the row, or the error that `write` raises."""
        try:
            return self.write(update, in_doubt=in_doubt)
        except SparkinesisError as error:
            return error

    def write_batch(self, updates: Sequence[Update]) -> list[Lease | SparkinesisError | Failed]:
        """Write at most 25 updates in one call; return the row or the failure of each, in order.

        A refused write gives `LeaseChangedError`; a write that the server did not make, `Failed`.
        """
        try:
            client = self._client()
        except BotoCoreError as error:
            return [Failed(error)] * len(updates)
        outcomes = write_batch(client, self.name, updates, self.retry)
        return [
            self._result(update, outcome) for update, outcome in zip(updates, outcomes, strict=True)
        ]

    def error_of(self, failed: Failed) -> SparkinesisError:
        """Return the error to raise for a failed statement of a batch."""
        return explain(failed.error, "PartiQLUpdate", self)

    def _result(self, update: Update, outcome: Lease | Failed) -> Lease | SparkinesisError | Failed:
        if isinstance(outcome, Lease) or error_code(outcome.error) != REFUSED:
            return outcome
        try:
            return self._refused(update, _item_of(outcome.error), outcome.is_in_doubt)
        except SparkinesisError as error:
            return error

    def _refused(self, update: Update, item: Mapping[str, Any] | None, in_doubt: bool) -> Lease:
        """Return the row if an earlier try has written it; else raise `LeaseChangedError`.

        ``item``: the row in the refusal. Not all servers include the row, so a refusal without one
        does not mean that the row was deleted: it is read then, which raises what `get` raises.
        """
        row = self._row(update.key) if item is None else read_row(item)
        if isinstance(row, Lease) and in_doubt and has_landed(update, row):
            return row
        # `from None`: the refusal adds nothing to the error.
        raise self._changed(update, row) from None

    def _changed(self, update: Update, row: Lease | BrokenLease | None) -> LeaseChangedError:
        if isinstance(row, Lease):
            now = f"its counter is {row.counter}, owner {row.owner}"
        else:
            now = "it was deleted" if row is None else row.why
            row = None
        return LeaseChangedError(
            f"The lease {update.key!r} in the {self} was changed meanwhile: {now}. Nothing was "
            "written.",
            row,
        )

    def _client(self) -> Any:
        client = dynamodb_client(self.region, self.endpoint, self.credentials)
        return measured_client(client, self.retry.clock, self.metrics)

    def _call(
        self, operation: str | None, call: Callable[[Any], _T], retry: Retry | None = None
    ) -> _T:
        """Make a call with retries; ``operation``: None for several calls that retry themselves."""
        try:
            client = self._client()
            if operation is None:
                return call(client)
            return (retry or self.retry).call(lambda: call(client))
        except (ClientError, BotoCoreError) as error:
            if error_code(error) == REFUSED:
                raise _RefusedError(_item_of(error)) from None
            name = operation or str(getattr(error, "operation_name", "DescribeTable"))
            # `from None`: the service's words are in the text; a second traceback hides it.
            raise explain(error, name, self) from None


class _RefusedError(Exception):
    """A condition failed; never leaves this module."""

    def __init__(self, item: Mapping[str, Any] | None) -> None:
        super().__init__()
        self.item = item


def _item_of(error: ClientError | BotoCoreError) -> Mapping[str, Any] | None:
    if not isinstance(error, ClientError):
        return None
    item: Mapping[str, Any] | None = error.response.get("Item")
    return item or None
