"""The leases of one stream, in a table that may have those of a thousand."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparkinesis.lease.lease import Lease, lease_key
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.shard import Shard

_ROWS_FOR_A_CALL = 50
"""The rows that a Scan returns in the time of one GetItem, roughly."""


class StreamLeases:
    """Reads the leases of one stream, by the cheaper of a Scan and a GetItem for each lease.

    stream: None for the only stream of the application. table_size: returns about how many rows the
    table has. For any thread.

    GetItem needs the keys: `know`, `know_shards` and `scan_table` note them. A lease whose shard is
    neither listed, nor the parent of a listed one, nor in any scan of the table before, is not
    seen. Nobody creates such a lease, unless the stream is resharded between the listings of two
    workers that begin to read it.
    """

    def __init__(
        self,
        table: LeaseTable,
        stream: StreamIdentifier | None,
        table_size: Callable[[], int],
    ) -> None:
        self._table = table
        self._stream = stream
        self._table_size = table_size
        self._listed: frozenset[str] = frozenset()
        self._seen: frozenset[str] = frozenset()

    def know(self, leases: Iterable[Lease]) -> None:
        """Note the stream's leases by a scan of the table."""
        self._seen = frozenset(lease.shard_id for lease in leases)

    def know_shards(self, shards: Iterable[Shard]) -> None:
        """Note the shards of a listing, and their parents."""
        shards = list(shards)
        parents = frozenset(parent for shard in shards for parent in shard.parents)
        self._listed = parents.union(shard.id for shard in shards)

    def read(self) -> list[Lease]:
        """Return the leases, as they are now. Raises what `LeaseTable.leases` raises."""
        return self._table.sound(self.scan())

    def scan_table(self) -> TableScan:
        """Return the same by a Scan, which shows leases of any shards, and note those."""
        found = self._table.scan(consistent=True).of(self._stream)
        self.know(found.leases)
        return found

    def scan(self) -> TableScan:
        """Return the leases and, apart from them, the rows that cannot be read."""
        shards = self._listed | self._seen
        is_few = len(shards) <= max(1, self._table_size() // _ROWS_FOR_A_CALL)
        if self._stream is None or not shards or not is_few:
            return self._table.scan(consistent=True).of(self._stream)
        return self._table.read(lease_key(self._stream, shard) for shard in sorted(shards))
