"""Finds the streams of a table's leases, to read their lags."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from sparkinesis.errors import SparkinesisError, StreamNotFoundError
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.lags import Lag
from sparkinesis.monitor.watched import MADE_ANEW, NO_STREAM
from sparkinesis.stream.address import StreamAddress, StreamIdentifier
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.stream_identity import StreamIdentity, identify

UNFOUND = Lag(why="stream not found yet")
_EVERY = 60.0
"""Seconds after which a stream is asked for again: it may be back, or made anew."""
_PER_STREAM = 0.5
"""Seconds, for each stream, that lie at least between two rounds: an account may call
DescribeStreamSummary 20 times a second, and workers do."""
_SOON = 5.0
"""Seconds after which a stream is asked for again if a lease names a newer one."""


@dataclass(frozen=True, slots=True)
class _Answer:
    identity: StreamIdentity | SparkinesisError
    at: float


class LagStreams:
    """The clients that read the lags of a table's leases.

    Any thread may call; `find` is for one thread at a time.

    only: the client for leases that name no stream; None: their lags are not read. address_of:
    returns the address of a stream that a lease names. new_client: makes a client.
    """

    def __init__(
        self,
        only: StreamClient | None,
        address_of: Callable[[StreamIdentifier], StreamAddress],
        new_client: Callable[[StreamAddress], StreamClient],
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._only = only
        self._address_of = address_of
        self._new_client = new_client
        self._clock = clock
        self._wait = wait
        self._answers: dict[StreamAddress, _Answer] = {}
        self._clients: dict[StreamAddress, StreamClient] = {}

    def find(self, leases: Iterable[Lease]) -> Iterator[None]:
        """Ask for the streams of leases that are due to be asked for; yield after each answer.

        Makes a ListStreams call for each thousand streams, or a DescribeStreamSummary call for
        each. Raises nothing: `of` returns the errors.
        """
        due = self._due(leases)
        for address, result in identify(due, self._client, self._clock, self._wait):
            self._answers[address] = _Answer(result, self._clock())
            yield

    def of(self, lease: Lease) -> StreamClient | Lag | None:
        """Return the client that reads a lease's lag, or the reason why there is none.

        None: the lags of leases without a stream are not read. `UNFOUND`: the stream is not found
        yet.
        """
        stream = lease.stream
        if stream is None:
            return self._only
        address = self._address_of(stream)
        answer = self._answers.get(address)
        if answer is None:
            return UNFOUND
        if isinstance(answer.identity, StreamNotFoundError):
            return Lag(why=NO_STREAM)
        if isinstance(answer.identity, SparkinesisError):
            return Lag(why=str(answer.identity))
        is_same = answer.identity.identifier == stream
        return self._client(address) if is_same else Lag(why=MADE_ANEW)

    def _due(self, leases: Iterable[Lease]) -> Collection[StreamAddress]:
        newest: dict[StreamAddress, int] = {}
        for stream in {lease.stream for lease in leases} - {None}:
            assert stream is not None
            address = self._address_of(stream)
            newest[address] = max(newest.get(address, 0), stream.creation_epoch)
        now, pause = self._clock(), max(_EVERY, _PER_STREAM * len(newest))
        return [
            address
            for address, epoch in newest.items()
            if now - self._asked_at(address) >= (_SOON if self._is_older(address, epoch) else pause)
        ]

    def _asked_at(self, address: StreamAddress) -> float:
        answer = self._answers.get(address)
        return -math.inf if answer is None else answer.at

    def _is_older(self, address: StreamAddress, epoch: int) -> bool:
        answer = self._answers.get(address)
        return (
            answer is not None
            and isinstance(answer.identity, StreamIdentity)
            and answer.identity.identifier.creation_epoch < epoch
        )

    def _client(self, address: StreamAddress) -> StreamClient:
        # Two threads may make a client at the same time: each of them serves.
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = self._new_client(address)
        return client
