"""Writers that compete for leases: of all that rely on one counter, one succeeds."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from tests.integration.lease.conftest import Scene, lease, renew_many, table_of

SERVER = "moto"
KEYS = ("a", "b", "c")
ROUNDS = 25

Won = tuple[str, int, str]
"""Key, the counter relied on, and by whom."""


def compete(table: LeaseTable, me: str, seed: int, won: Callable[[Won], object]) -> None:
    rng = random.Random(seed)
    for n in range(ROUNDS):
        rows = [row for row in (table.get(key) for key in KEYS) if row is not None]
        kind = rng.choice(["take", "renew", "checkpoint", "many"])
        if kind == "many":
            for row, result in zip(rows, renew_many(table, rows), strict=True):
                if isinstance(result, Lease):
                    won((row.key, row.counter, me))
                else:
                    assert isinstance(result, LeaseChangedError)
            continue
        row = rng.choice(rows)
        try:
            if kind == "take":
                table.write(requests.take(row, me))
            elif kind == "renew":
                table.write(requests.renew(row))
            else:
                table.write(requests.checkpoint(row, ExtendedSequenceNumber(str(n))))
        except LeaseChangedError:
            continue
        won((row.key, row.counter, me))


def test_no_two_writers_succeed_on_one_counter(scene: Scene) -> None:
    for key in KEYS:
        scene.table.create(lease(key))
    won: list[Won] = []
    threads = [
        threading.Thread(
            target=compete, args=(table_of(scene.server, scene.table.name), f"w{i}", i, won.append)
        )
        for i in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    relied_on = Counter((key, counter) for key, counter, _ in won)
    assert set(relied_on.values()) == {1}
    # Every success raised the counter by one, and nothing else did.
    for row in scene.table.leases():
        assert sorted(c for key, c in relied_on if key == row.key) == list(range(row.counter))
    assert len({who for *_, who in won}) > 1
