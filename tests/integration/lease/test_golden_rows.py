"""Lease rows that earlier versions wrote stay whole: no write touches what this version ignores.

`tests/release/test_golden.py` reads the rows. An application in the field is updated while they are
in its table.
"""

from __future__ import annotations

import pytest

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import read_row
from tests.integration.lease.conftest import Scene
from tests.kcl import java_refuses, put_rows
from tests.release import golden
from tests.release.formats import items

SERVER = "moto"
ROWS = {
    f"{version}: {name}": items.from_json(entry["written"])
    for version, form in golden.files()
    if form.name == "leases"
    for name, entry in golden.entries_of(version, form).items()
}
_NEXT = ExtendedSequenceNumber("49680417772080139964390719210533025828023069882475085858", 4)
_LATEST = ExtendedSequenceNumber("LATEST")
_INSTANT = 1_795_232_870_754
_UNKNOWN = {"team": {"S": "flights"}, "later": {"M": {"deep": {"L": [{"N": "1"}]}}}}


@pytest.mark.parametrize("kind", ROWS)
def test_no_write_to_it_changes_what_this_version_does_not_know(scene: Scene, kind: str) -> None:
    put_rows(scene.dynamodb, scene.table.name, [{**ROWS[kind], **_UNKNOWN}])
    before = read_row(ROWS[kind])
    assert isinstance(before, Lease)
    row = scene.table.write(requests.take(before, "me"))
    row = scene.table.write(requests.with_throughput(requests.renew(row), 1.5))
    row = scene.table.write(requests.add_children(row, ["c1", "c2"]))
    row = scene.table.write(requests.prepare(row, PendingCheckpoint(_NEXT, b"mine")))
    row = scene.table.write(requests.checkpoint(row, _NEXT))
    row = scene.table.write(requests.initiate_handoff(row, "another"))
    row = scene.table.write(requests.assign(row, "another"))
    row = scene.table.write(requests.reset(row, _LATEST, _INSTANT))
    row = scene.table.write(requests.evict(scene.table.write(requests.take(row, "me"))))
    written = scene.row(row.key)
    assert {name: written[name] for name in _UNKNOWN} == _UNKNOWN
    assert java_refuses(written) == []
    assert read_row(written) == row
    assert (row.checkpoint, row.timestamp_ms) == (_LATEST, _INSTANT)
    assert (row.parent_ids, row.hash_range, row.stream) == (
        before.parent_ids,
        before.hash_range,
        before.stream,
    )
