"""A start in the future is refused before anything is stored, in the words of each door."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from sparkinesis import Application, Checkpointer, RecordBatch, StreamConfig
from sparkinesis.errors import CheckpointError, OptionError, ServiceError
from sparkinesis.local import LocalServer
from sparkinesis.testing import Sandbox
from tests.engine import Query

FUTURE = datetime(2099, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("is_several", [False, True])
def test_a_worker_refuses_it_before_a_row_is_written(*, is_several: bool) -> None:
    with Sandbox() as kinesis:
        kinesis.create_stream("flights")
        of: dict[str, Any] = {"stream": "flights", "initial_position": FUTURE}
        if is_several:
            of = {"streams": [StreamConfig("flights", initial_position=FUTURE)]}
        asked = kinesis.application(Application("app", processor=lambda batch: None, **of))
        with pytest.raises(OptionError, match=r"^initial_position is 2099-01-01T00:00:00.*future"):
            asked.worker().start()
        assert list(kinesis.lease_tables.rows("app")) == []


def test_clocks_may_differ() -> None:
    seen: list[bytes] = []
    with Sandbox() as kinesis:
        soon = kinesis.now + timedelta(seconds=30)

        def handle(batch: RecordBatch) -> None:
            seen.extend(record.data for record in batch)

        application = Application("app", "flights", handle, initial_position=soon)
        with kinesis.run(application) as run:
            run.wait(lambda: run.result.failures)
            (told, *_) = run.result.failures
            assert "is in the future. Give initial_position" in told.traceback
            assert "`sparkinesis reset" in told.traceback
            kinesis.advance(31)
            run.put(["a"])
        assert seen == [b"a"]


def test_a_query_stores_nothing_and_goes_on_once_its_option_is_mended() -> None:
    with LocalServer(port=0, limits=None) as server:
        client = server.client("kinesis")
        client.create_stream(StreamName="s", ShardCount=1)
        client.put_record(StreamName="s", PartitionKey="a", Data=b"1")
        options = {"streamName": "s", "region": "us-east-1", "endpoint": server.endpoint_url}
        query = Query(**options, initialPosition=FUTURE.isoformat())
        with pytest.raises(ServiceError, match="Set the option initialPosition") as refused:
            list(query.drain())
        assert "initial_position" not in str(refused.value)
        assert query.checkpoint is None
        query.restart(initialPosition="trim_horizon")
        assert [data for batch in query.drain() for data in batch.datas] == [b"1"]


def test_a_processor_cannot_reset_its_shard_into_the_future() -> None:
    refused: list[str] = []

    def handle(batch: RecordBatch, checkpointer: Checkpointer) -> None:
        with pytest.raises(CheckpointError) as error:
            checkpointer.reset(FUTURE)
        refused.append(str(error.value))
        checkpointer.checkpoint()

    with Sandbox() as kinesis, kinesis.run(Application("app", "flights", handle)) as run:
        run.put(["a"])
    assert "is 2099-01-01T00:00:00+00:00, which is in the future" in refused[0]
