"""A store of the application's own, with results and positions, whose transactions are atomic."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from sparkinesis.errors import LeaseLostError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.worker.batches.user_record import UserRecord


class Access(Struct, frozen=True):
    """What a record processor did to the store, or was refused."""

    at: float
    shard: str
    what: Literal["claims", "is refused a claim", "stores", "is refused a result"]
    token: int
    reader: int
    process: str


@dataclass
class OwnStore:
    """Results by the data of their records, and a token and a position for each shard."""

    results: Counter[str] = field(default_factory=Counter)
    accesses: list[Access] = field(default_factory=list)
    _tokens: dict[str, int] = field(default_factory=dict)
    _positions: dict[str, ExtendedSequenceNumber] = field(default_factory=dict)

    def claim(self, access: Access) -> ExtendedSequenceNumber | None:
        """Returns the position of the shard. Raises LeaseLostError for a token that is too old."""
        newest = self._tokens.setdefault(access.shard, access.token)
        if access.token < newest:
            self.accesses.append(access)
            raise LeaseLostError(f"{access.shard} was claimed with {newest}")
        self._tokens[access.shard] = access.token
        self.accesses.append(_as(access, "claims"))
        return self._positions.get(access.shard)

    def write(self, access: Access, records: list[UserRecord]) -> None:
        """Stores the results and the position of records, or neither. Raises LeaseLostError.

        Records up to the position are done: a call may fail after its transaction, and come again.
        """
        if access.token != self._tokens.get(access.shard):
            self.accesses.append(access)
            raise LeaseLostError(f"{access.shard} was claimed with {self._tokens[access.shard]}")
        done = self._positions.get(access.shard)
        records = [record for record in records if done is None or done < record.position]
        if not records:
            return
        self.results.update(record.data.decode() for record in records)
        self._positions[access.shard] = records[-1].position
        self.accesses.append(_as(access, "stores"))


def _as(access: Access, what: Literal["claims", "stores"]) -> Access:
    return Access(access.at, access.shard, what, access.token, access.reader, access.process)
