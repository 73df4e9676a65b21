"""The streams and the table that a run makes: named by a prefix, tagged, and always removed.

The names and the tag are set by the calls that create, so that nothing is ever without them: they
tell what a killed run has left.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.lease.table.provisioning import creation
from sparkinesis.stream.calls.explain import words
from sparkinesis.stream.calls.retry import Backoff, error_code
from sparkinesis.worker.aws_options import LeaseTableOptions
from tests.aws.spending import Allowance, Use
from tests.aws.target import Target

TAG = "sparkinesis-check-aws"
"""The tag's value is the prefix."""

_GONE = {"ResourceNotFoundException"}
_POLL = 0.5
_REMOVAL_SECONDS = 180.0
_SETTLING_SECONDS = 120.0


class NotReadyError(Exception):
    """A stream or table did not become usable in time."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A stream or a table, by name."""

    kind: Literal["stream", "table"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def common_name(prefix: str) -> str:
    """Return what the names of all resources of a prefix begin with."""
    return f"{prefix}-sparkinesis-check-"


class Resources:
    """What one run makes. ``allowance`` is asked before what costs."""

    def __init__(
        self,
        target: Target,
        prefix: str,
        allowance: Allowance,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._target = target
        self._prefix = prefix
        self._allowance = allowance
        self._sleep = sleep
        self._retry = Backoff(base=0.2, cap=2.0, give_up_after=30.0, sleep=sleep)
        self._kinesis = target.client("kinesis")
        self._dynamodb = target.client("dynamodb")
        self._run = f"{datetime.now(timezone.utc):%m%d%H%M%S}-{secrets.token_hex(3)}"
        self.made: list[Resource] = []
        """All that may exist now: noted before the call that creates it."""

    def name(self, which: str) -> str:
        return f"{common_name(self._prefix)}{self._run}-{which}"

    def create_stream(self, which: str, shards: int) -> str:
        """Create a provisioned stream, wait until it is ACTIVE, and return its name."""
        name = self.name(which)
        self._allowance.take(Use(shards=shards))
        self._note(Resource("stream", name))
        self._kinesis.create_stream(
            StreamName=name,
            ShardCount=shards,
            StreamModeDetails={"StreamMode": "PROVISIONED"},
            Tags={TAG: self._prefix},
        )
        self.wait_until_active(name)
        return name

    def is_active(self, stream: str) -> bool:
        """Return True if the stream is usable and not being resharded."""
        return self._stream_status(stream) == "ACTIVE"

    def wait_until_active(self, stream: str) -> None:
        """Wait until the stream is ACTIVE, as it is again after a reshard."""
        self._wait(f"stream {stream}", lambda: self.is_active(stream), _SETTLING_SECONDS)

    def create_table(self, which: str) -> str:
        """Create a lease table as a worker does, wait until it is ACTIVE, and return its name."""
        name = self.name(which)
        self._note(Resource("table", name))
        options = LeaseTableOptions(tags=((TAG, self._prefix),))
        self._dynamodb.create_table(**creation(name, options))
        self._wait(f"table {name}", lambda: self._table_status(name) == "ACTIVE", _SETTLING_SECONDS)
        return name

    def remove_all(self) -> dict[Resource, str]:
        """Remove all that was made, and wait until it is gone; return what was not, and why."""
        return self.remove(tuple(self.made))

    def remove(self, resources: Sequence[Resource]) -> dict[Resource, str]:
        """Remove resources, and wait until they are gone; return what was not, and why."""
        left: dict[Resource, str] = {}
        for resource in resources:
            try:
                self._retry.call(lambda: self._delete(resource))  # noqa: B023 - called at once
            except Exception as error:  # noqa: BLE001 - the others are removed nevertheless
                left[resource] = _said(error)
        for resource in resources:
            if resource in left:
                continue
            try:
                self._wait(str(resource), lambda: not self._exists(resource), _REMOVAL_SECONDS)  # noqa: B023
            except Exception as error:  # noqa: BLE001 - the others are removed nevertheless
                left[resource] = _said(error)
            else:
                self.made = [one for one in self.made if one != resource]
        return left

    def leftovers(self) -> list[Resource]:
        """Return what other runs with this prefix have made, by name and tag."""
        return [
            resource
            for resource in (*self._streams(), *self._tables())
            if self._tags(resource).get(TAG) == self._prefix
        ]

    def _note(self, resource: Resource) -> None:
        if resource not in self.made:
            self.made.append(resource)

    def _streams(self) -> Iterator[Resource]:
        more: dict[str, Any] = {}
        while True:
            answer = self._retry.call(lambda: self._kinesis.list_streams(**more))  # noqa: B023
            for name in answer["StreamNames"]:
                if name.startswith(common_name(self._prefix)):
                    yield Resource("stream", name)
            if not answer["HasMoreStreams"]:
                return
            more = {"ExclusiveStartStreamName": answer["StreamNames"][-1]}

    def _tables(self) -> Iterator[Resource]:
        more: dict[str, Any] = {}
        while True:
            answer = self._retry.call(lambda: self._dynamodb.list_tables(**more))  # noqa: B023
            for name in answer["TableNames"]:
                if name.startswith(common_name(self._prefix)):
                    yield Resource("table", name)
            if not answer.get("LastEvaluatedTableName"):
                return
            more = {"ExclusiveStartTableName": answer["LastEvaluatedTableName"]}

    def _tags(self, resource: Resource) -> dict[str, str]:
        """Return a resource's tags; none if it has just been deleted."""

        def ask() -> list[dict[str, str]]:
            if resource.kind == "stream":
                answer = self._kinesis.list_tags_for_stream(StreamName=resource.name)
            else:
                table = self._dynamodb.describe_table(TableName=resource.name)["Table"]
                answer = self._dynamodb.list_tags_of_resource(ResourceArn=table["TableArn"])
            listed: list[dict[str, str]] = answer["Tags"]
            return listed

        try:
            return {tag["Key"]: tag["Value"] for tag in self._retry.call(ask)}
        except ClientError as error:
            if error_code(error) in _GONE:
                return {}
            raise

    def _delete(self, resource: Resource) -> None:
        try:
            if resource.kind == "stream":
                self._kinesis.delete_stream(StreamName=resource.name, EnforceConsumerDeletion=True)
            else:
                self._dynamodb.delete_table(TableName=resource.name)
        except ClientError as error:
            code = error_code(error)
            if code in _GONE:
                return
            if code == "ResourceInUseException" and self._is_being_deleted(resource):
                return
            if code == "ResourceInUseException":  # it is being created or resharded
                self._sleep(_POLL)
                raise _as_transient(error) from None
            raise

    def _is_being_deleted(self, resource: Resource) -> bool:
        return self._status(resource) in {"DELETING", None}

    def _exists(self, resource: Resource) -> bool:
        return self._status(resource) is not None

    def _status(self, resource: Resource) -> str | None:
        if resource.kind == "stream":
            return self._stream_status(resource.name)
        return self._table_status(resource.name)

    def _stream_status(self, name: str) -> str | None:
        def ask() -> str:
            answer = self._kinesis.describe_stream_summary(StreamName=name)
            return str(answer["StreamDescriptionSummary"]["StreamStatus"])

        return self._unless_gone(ask)

    def _table_status(self, name: str) -> str | None:
        return self._unless_gone(
            lambda: str(self._dynamodb.describe_table(TableName=name)["Table"]["TableStatus"])
        )

    def _unless_gone(self, ask: Callable[[], str]) -> str | None:
        try:
            return self._retry.call(ask)
        except ClientError as error:
            if error_code(error) in _GONE:
                return None
            raise

    def _wait(self, what: str, is_so: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > until:
                raise NotReadyError(f"{what} did not reach the wanted state in {seconds:g} seconds")
            self._sleep(_POLL)


def _said(error: Exception) -> str:
    if isinstance(error, ClientError | BotoCoreError):
        return words(error)
    return " ".join(str(error).split())


def _as_transient(error: ClientError) -> ClientError:
    """Return the error in a form that `Backoff` tries again."""
    response: Any = {
        **error.response,
        "Error": {**error.response.get("Error", {}), "Code": "LimitExceededException"},
    }
    return ClientError(response, error.operation_name)
