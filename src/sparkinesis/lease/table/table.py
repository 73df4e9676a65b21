"""The calls on a KCL application's lease table in DynamoDB, each with retries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import LeaseTableError, SparkinesisError, listed
from sparkinesis.lease.lease import Lease, encode_lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.calls import REFUSED, RefusedError, TableCalls, explain, item_of
from sparkinesis.lease.table.provisioning import Patience, ProvisionOptions, provision
from sparkinesis.lease.table.rows import BrokenLease, TableScan, read_row, read_rows
from sparkinesis.lease.table.statements import Failed, write_batch
from sparkinesis.lease.table.update import Update, has_landed
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.stream.calls.answers.guards import understood
from sparkinesis.stream.calls.retry import Backoff, error_code, is_in_doubt
from sparkinesis.stream.timing import second_of

_PROVISION_RETRY = 20.0
"""Seconds. Nobody retries a worker's start, and one call that hangs takes 5 seconds."""


@dataclass(frozen=True, slots=True)
class LeaseTable(TableCalls):
    """The calls on the lease table at an address.

    Safe to share between threads. Raises what `TableCalls` does. Writes also raise
    `LeaseChangedError` if the row has changed; nothing is written then. They return the row after
    the write.
    """

    def provision(self, options: ProvisionOptions, patience: Patience | None = None) -> bool:
        """Create the table if it is missing, and wait until it is usable.

        Returns True if this call created it. Raises `LeaseTableError`, before any write, if a table
        of that name exists that is not a lease table, and `LeaseTableNotFoundError` if the table
        was deleted while this process used it.
        """
        retry = msgspec.structs.replace(
            self.retry, give_up_after=max(self.retry.give_up_after, _PROVISION_RETRY)
        )
        return self.call(
            None,
            lambda client: provision(
                client, self, options, retry=retry, patience=patience or Patience()
            ),
        )

    def leases(self, retry: Backoff | None = None, *, consistent: bool = True) -> list[Lease]:
        """Return all leases, by a Scan; rows that are not leases are skipped.

        Without ``consistent``, at half the price, a row may be as of a moment ago. Also raises
        `LeaseTableError` if a row cannot be read: the position of its shard is then unknown.
        """
        return self.sound(self.scan(retry, consistent=consistent))

    def scan(
        self,
        retry: Backoff | None = None,
        *,
        consistent: bool = True,
        read: Callable[[Iterable[Mapping[str, Any]]], TableScan] = read_rows,
    ) -> TableScan:
        """Return all leases and, apart from them, the rows that cannot be read.

        read: reads the rows, as DynamoDB's API returns them.
        """
        items, headers = self._scanned(retry, consistent=consistent)
        return msgspec.structs.replace(read(items), second=second_of(headers.get("date")))

    def items(self) -> list[Mapping[str, Any]]:
        """Return all rows as DynamoDB's API returns them, also those that are not leases."""
        return self._scanned(None, consistent=True)[0]

    def _scanned(
        self, retry: Backoff | None, *, consistent: bool
    ) -> tuple[list[Mapping[str, Any]], Mapping[str, str]]:
        """Return all rows, and the headers of the last answer."""
        items: list[Mapping[str, Any]] = []
        headers: Mapping[str, str] = {}
        for answer in self.pages("Scan", retry, ConsistentRead=consistent):
            items += answer["Items"]
            headers = answer["ResponseMetadata"]["HTTPHeaders"]
        return items, headers

    def read(self, keys: Iterable[str]) -> TableScan:
        """Return the rows of these keys that exist, by a consistent GetItem for each."""
        return read_rows([item for item in map(self._item, keys) if item is not None])

    def sound(self, scan: TableScan) -> list[Lease]:
        """Return the leases of a scan. Raises `LeaseTableError` if it has rows that are broken."""
        if scan.broken:
            raise self._broken(*scan.broken)
        return list(scan.leases)

    def _broken(self, *rows: BrokenLease) -> LeaseTableError:
        return LeaseTableError(
            f"The {self} has leases that cannot be read: {listed(map(str, rows))}. "
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
        answer = self.call("GetItem", lambda client: client.get_item(**request))
        item: Mapping[str, Any] | None = answer.get("Item")
        return item or None

    def create(self, lease: Lease, retry: Backoff | None = None) -> bool:
        """Create a lease; return False, and write nothing, if a row with its key exists."""
        return self.create_item(encode_lease(lease), retry)

    def create_item(self, item: Mapping[str, Any], retry: Backoff | None = None) -> bool:
        """Create a row as DynamoDB's API accepts it; return False if a row with its key exists."""
        try:
            self.call(
                "PutItem",
                lambda client: client.put_item(
                    TableName=self.name,
                    Item=item,
                    ConditionExpression="attribute_not_exists(leaseKey)",
                ),
                retry,
            )
        except RefusedError:
            return False
        return True

    def delete(self, lease: Lease) -> bool:
        """Delete a lease that is still finished, or unchanged; return False if it is neither."""
        try:
            self.call(
                "DeleteItem", lambda client: client.delete_item(**requests.delete(lease, self.name))
            )
        except RefusedError:
            return False
        return True

    def drop(self) -> None:
        """Delete the whole table. Raises `LeaseTableNotFoundError` if there is none."""
        self.call("DeleteTable", lambda client: client.delete_table(TableName=self.name))

    def write(self, update: Update, *, in_doubt: bool = False) -> Lease:
        """Write an update by UpdateItem; return the row.

        ``in_doubt``: the update was sent before, and may have taken effect. A row in the state that
        the update leaves then counts as success.
        """

        def send(client: Any) -> Mapping[str, Any]:
            nonlocal in_doubt
            try:
                return understood(written_by, client)
            except (ClientError, BotoCoreError) as error:
                in_doubt = in_doubt or is_in_doubt(error)
                raise

        def written_by(client: Any) -> Mapping[str, Any]:
            item: Mapping[str, Any] = client.update_item(**update.request(self.name))["Attributes"]
            return item

        try:
            item = self.call("UpdateItem", send)
        except RefusedError as refused:
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
            client = self.client()
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
            return self._refused(update, item_of(outcome.error), outcome.is_in_doubt)
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
