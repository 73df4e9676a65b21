"""boto3's client for SubscribeToShard, on a local Kinesis in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.local import LocalKinesis
from sparkinesis.stream.calls.retry import error_code
from sparkinesis.stream.calls.subscription import OPERATION
from tests.simulation.connection import Body, Connection
from tests.simulation.kinesis import READ_TIMEOUT, REGION, metadata, refuse, request_body
from tests.simulation.network import Faults, Network
from tests.simulation.scheduler import Process, Scheduler

_Note: TypeAlias = Callable[[str, str, Any], None]
"""Writes a shard, what happened, and more about it, into a journal."""


@dataclass(frozen=True, slots=True)
class Call:
    """One SubscribeToShard, as its caller saw it."""

    at: float
    process: Process
    consumer_arn: str
    shard_id: str
    error: str | None
    connection: Connection | None


class SubscriptionClient:
    """The call SubscribeToShard, with the answers and errors of boto3's client."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        kinesis: LocalKinesis,
        faults: Faults,
        note: _Note,
    ) -> None:
        self.calls: list[Call] = []
        self.connections: list[Connection] = []
        """All connections, those without an answer included."""
        self._scheduler = scheduler
        self._network = network
        self._kinesis = kinesis
        self._faults = faults
        self._note = note

    def subscribe_to_shard(self, **request: Any) -> Any:
        task = self._scheduler.current
        assert task is not None
        about = self._scheduler.now, task.process, request["ConsumerARN"], request["ShardId"]
        made: list[Connection] = []
        has_given_up = False

        def serve(process: Process) -> Any:
            connection = self._open(request, process)
            made.append(connection)
            if has_given_up:
                connection.close()

        try:
            self._network.call("kinesis", OPERATION, serve, timeout=READ_TIMEOUT)
        except BaseException as error:
            has_given_up = True
            for connection in made:
                connection.close()
            if isinstance(error, ClientError | BotoCoreError):
                self._called(Call(*about, error_code(error), None))
            raise
        (connection,) = made
        connection.opened = self._scheduler.now
        self._called(Call(*about, None, connection))
        return {"Body": Body(connection), **metadata(self._kinesis.clock())}

    def _open(self, request: Mapping[str, Any], process: Process) -> Connection:
        outcome = self._kinesis.serve(OPERATION, request_body(request), region=REGION)
        refuse(OPERATION, outcome)
        assert outcome.subscription is not None
        connection = Connection(
            self._scheduler, self._kinesis, outcome.subscription, process, self._faults
        )
        self.connections.append(connection)
        return connection

    def _called(self, call: Call) -> None:
        self.calls.append(call)
        self._note(
            call.shard_id, "subscribed" if call.error is None else "not subscribed", call.error
        )
