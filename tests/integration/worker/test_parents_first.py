"""``parents_first=False``: children are read while their parents are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.worker.lifecycle.worker import Worker
from tests.journal import PATIENCE, Journal, Journaling
from tests.pace import Deadline
from tests.streams import active_shards, merge_neighbours, put_at, split

RETRIEVALS = ("polling", "efo")

Start = Callable[[Application], Worker]
Make = Callable[..., Application]

OPTIONS = {"parents_first": False, "audit_interval": 0.3, "cleanup_interval": 0.3}


@pytest.fixture
def release() -> Any:
    released = threading.Event()
    yield released
    released.set()


def lingering(journal: Journal, release: threading.Event) -> Callable[[], Journaling]:
    """Processors that stay with the record b"slow" until they are released."""

    def process(batch: Any, checkpointer: Any) -> None:
        if any(record.data == b"slow" for record in batch.records):
            assert release.wait(PATIENCE)
        checkpointer.checkpoint()

    return lambda: Journaling(journal, on_records=process)


def reshard(kinesis: Any, stream: str) -> str:
    """Two generations behind a slow record: a split, and a merge of its two; return the parent."""
    put_at(kinesis, stream, b"slow")
    parent = split(kinesis, stream)
    put_at(kinesis, stream, b"child")
    merge_neighbours(kinesis, stream)
    put_at(kinesis, stream, b"grandchild")
    return parent


@pytest.mark.parametrize("when", ["before the start", "while it runs"])
def test_children_begin_while_their_parent_is_read(
    application: Make,
    start: Start,
    kinesis: Any,
    stream: str,
    *,
    journal: Journal,
    release: threading.Event,
    when: str,
) -> None:
    options = dict(OPTIONS)
    if when == "before the start":
        parent = reshard(kinesis, stream)
        options["audit_interval"] = 3600.0  # no audit is needed to find them
    worker = start(application(processor=lingering(journal, release), options=options))
    if when != "before the start":
        journal.wait(lambda: len(journal.calls("initialize")) == 2)
        parent = reshard(kinesis, stream)
    journal.wait_for_data(b"child", b"grandchild")
    assert (parent, "shard_ended") not in journal.calls()
    release.set()
    journal.wait(lambda: (parent, "shard_ended") in journal.calls())
    assert sorted(journal.data()) == [b"child", b"grandchild", b"slow"]
    # Cleanup is as before: in the end, only the open shards have leases.
    open_shards = {shard["ShardId"] for shard in active_shards(kinesis, stream)}
    deadline = Deadline(60)
    while {row.shard_id for row in application().table().leases(consistent=True)} != open_shards:
        assert not deadline.has_passed()
        time.sleep(0.05)
    assert worker.shutdown(PATIENCE)


def test_by_default_they_wait(
    application: Make,
    start: Start,
    kinesis: Any,
    stream: str,
    *,
    journal: Journal,
    release: threading.Event,
) -> None:
    parent = reshard(kinesis, stream)
    start(
        application(
            processor=lingering(journal, release), options={**OPTIONS, "parents_first": True}
        )
    )
    journal.wait(lambda: len(journal.calls("initialize")) == 2)
    release.set()
    journal.wait_for_data(b"grandchild")
    calls = journal.calls("shard_ended", "initialize")
    children = [shard for shard, call in calls if call == "initialize"][2:]
    assert len(children) == 3
    assert all(
        calls.index((parent, "shard_ended")) < calls.index((child, "initialize"))
        for child in children
    )
