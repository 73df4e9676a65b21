"""A lease table that is deleted while workers use it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sparkinesis.errors import LeaseTableError, LeaseTableNotFoundError
from sparkinesis.lease.table.provisioning import creation, remember_vanished
from sparkinesis.local import LocalServer
from sparkinesis.worker.aws_options import LeaseTableOptions
from sparkinesis.worker.lifecycle.worker import Worker
from tests.integration.worker.scene import Scene, checkpoint, wait_for_look
from tests.journal import Journaling
from tests.kcl import put_rows, rows_of


@pytest.fixture(scope="module")
def server(moto: LocalServer) -> LocalServer:
    return moto


def problem_of(worker: Worker) -> str | None:
    return worker.problem


def create(dynamodb: Any, name: str, rows: list[dict[str, Any]]) -> None:
    dynamodb.create_table(**creation(name, LeaseTableOptions()))
    put_rows(dynamodb, name, rows)


def test_a_new_table_is_as_the_options_say(scene: Scene, dynamodb: Any) -> None:
    scene.application({"table": LeaseTableOptions(tags=(("team", "web"),))}).worker()
    arn = dynamodb.describe_table(TableName=scene.stream)["Table"]["TableArn"]
    tags = dynamodb.list_tags_of_resource(ResourceArn=arn)["Tags"]
    assert tags == [{"Key": "team", "Value": "web"}]


def test_a_worker_says_so_once_and_resumes_when_the_table_is_restored(scene: Scene) -> None:
    scene.caplog.set_level(logging.INFO, "sparkinesis")
    scene.put(b"one")
    app = scene.application(
        processor=lambda: Journaling(scene.journal, checkpoint),
        options={"audit_interval": 0.1, "cleanup_interval": 0.1},
    )
    worker = scene.run(app)
    scene.journal.wait_for_data(b"one")
    wait_for_look(worker, lambda: len(worker.status()) == 2)
    assert problem_of(worker) is None
    rows = list(rows_of(scene.dynamodb, scene.stream).values())
    scene.dynamodb.delete_table(TableName=scene.stream)

    wait_for_look(worker, lambda: worker.problem is not None)
    assert problem_of(worker) == "the lease table was deleted"
    wait_for_look(worker, lambda: not worker.status())
    assert not worker.wait(0)
    (failure,) = (one for one in worker.failures() if "NotFound" in one.error)
    assert (failure.count, failure.shard_ids) == (1, ())
    assert failure.error.startswith(f"LeaseTableNotFoundError: The lease table {scene.stream!r}")

    with pytest.raises(LeaseTableNotFoundError, match=r"deleted while .* does not create it again"):
        app.worker()
    assert scene.stream not in scene.dynamodb.list_tables()["TableNames"]

    # Somebody creates it without its rows: the worker leaves it alone.
    create(scene.dynamodb, scene.stream, [])
    wait_for_look(worker, lambda: not worker._coordinator.snapshot.leases)
    scanned = worker._coordinator.snapshot.at or 0.0
    wait_for_look(worker, lambda: (worker._coordinator.snapshot.at or 0.0) > scanned)
    assert problem_of(worker) == "the lease table was deleted"
    assert rows_of(scene.dynamodb, scene.stream) == {}

    scene.dynamodb.delete_table(TableName=scene.stream)
    create(scene.dynamodb, scene.stream, rows)
    scene.put(b"two")
    scene.journal.wait_for_data(b"two")
    assert problem_of(worker) is None
    errors = [one for one in scene.caplog.records if one.levelno == logging.ERROR]
    assert len([one for one in errors if "deleted while this process used it" in one.message]) == 1
    assert not [one for one in scene.caplog.records if "could not be renewed now" in one.message]
    assert not [one for one in scene.caplog.records if "failed and will be retried" in one.message]
    assert [one for one in scene.caplog.records if "lease table has leases again" in one.message]


def test_a_process_whose_table_was_deleted_makes_no_leases_in_a_new_one(scene: Scene) -> None:
    """Somebody has created the table again, but no worker of a new process has begun yet."""
    app = scene.application(options={"audit_interval": 0.1})
    worker = app.worker()
    remember_vanished(app.table())
    with pytest.raises(LeaseTableNotFoundError, match=f"{scene.stream!r}.* was deleted"):
        worker.start()
    wait = worker._streams.all()[0].syncer._next_audit
    worker._streams.all()[0].syncer._clock = lambda: wait
    with pytest.raises(LeaseTableNotFoundError, match=f"{scene.stream!r}.* was deleted"):
        worker._streams.all()[0].syncer.step([], audits=True)
    assert rows_of(scene.dynamodb, scene.stream) == {}


def test_another_table_is_created(scene: Scene, dynamodb: Any) -> None:
    remember_vanished(scene.application(table_name=f"{scene.stream}-old").table())
    scene.application().worker()
    assert scene.stream in dynamodb.list_tables()["TableNames"]


def test_a_table_that_was_never_there_may_be_a_wrong_name(scene: Scene) -> None:
    """The three causes come first; what each asks for follows."""
    with pytest.raises(LeaseTableNotFoundError) as caught:
        scene.application(name="nope").table().leases()
    assert isinstance(caught.value, LeaseTableError)
    said = str(caught.value)
    assert said.startswith("There is no lease table 'nope' in us-east-1")
    causes = said.index("Either it was deleted, or the application has not run yet")
    assert causes < said.index("start and stop no worker") < said.index("check the name")
