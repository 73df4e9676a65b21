"""What consumes a queue, and its commands, need the permissions of `deploy.iam`, and no other."""

from __future__ import annotations

import pytest

from deploy.iam import POLICIES, WITHOUT_CALL
from sparkinesis.errors import AccessDeniedError
from sparkinesis.queue import NewQueue
from sparkinesis.queue.finding import Queues
from tests.command import call
from tests.deploy.calls import Used, only
from tests.integration.queue.commands import kill, place_of, time_passes
from tests.integration.queue.scene import REGION, Handled, QueueScene
from tests.pace import eventually

ALLOWED = {policy.name: policy.actions - set(WITHOUT_CALL) for policy in POLICIES}


def test_an_application_uses_its_permissions(scene: QueueScene) -> None:
    handled = Handled()
    handled.gate.set()
    scene.put(b"one")
    used = Used(scene.server)
    with only(scene.server, ALLOWED["queue"]), used.watching():
        assert Queues(REGION, scene.server.endpoint_url).find("orders")[0].arn == scene.arn
        handled.does = lambda record: record.release() if record.receive_count == 1 else None
        worker = scene.start(handled)
        handled.wait(2)
        eventually(lambda: worker.in_hand == 0)
        worker.request_shutdown()
        scene.wait_for_end(worker)
    assert used.actions == ALLOWED["queue"]


def test_a_queue_is_made_with_its_permissions(scene: QueueScene) -> None:
    used = Used(scene.server)
    queues = Queues(REGION, scene.server.endpoint_url)
    with only(scene.server, ALLOWED["queue"] | ALLOWED["create-queue"]), used.watching():
        queues.find("new", NewQueue("s"))
    assert used.actions == ALLOWED["create-queue"] | {"kinesis:ListQueues", "kinesis:DescribeQueue"}
    with (
        only(scene.server, ALLOWED["queue"]),
        pytest.raises(AccessDeniedError, match="kinesis:DescribeStreamSummary"),
    ):
        queues.find("newer", NewQueue("s"))


def test_the_commands_use_their_permissions(scene: QueueScene) -> None:
    used = Used(scene.server)
    with only(scene.server, ALLOWED["queue-operator"]), used.watching():
        for words in (
            ("create", "new", "--stream", "s"),
            ("list",),
            ("describe", "new"),
            ("update", "new", "--visibility-timeout", "9"),
            ("delete", "new", "--yes"),
        ):
            assert call("queues", *words, *place_of(scene)).returncode == 0
    assert used.actions == ALLOWED["queue-operator"]


def test_commands_that_receive_use_their_permissions(scene: QueueScene) -> None:
    kill(scene, ("a", b"one"), ("b", b"two"), ("c", b"three"))
    scene.put(b"four")
    for words, policy, unused in (
        (["tail", "orders", "--count", "1"], "queue", {"kinesis:AcknowledgeQueueRecords"}),
        (
            ["dead-letters", "orders", "--restore", "--key", "a", "--yes"],
            "queue-dead-letters",
            {"kinesis:AcknowledgeDeadLetterQueueRecords"},
        ),
        (
            ["dead-letters", "orders", "--discard", "--key", "b", "--yes"],
            "queue-dead-letters",
            {"kinesis:RestoreDeadLetterQueueRecords"},
        ),
    ):
        used = Used(scene.server)
        with only(scene.server, ALLOWED[policy]), used.watching(), time_passes(scene):
            assert call("queues", *words, *place_of(scene)).returncode == 0
        assert used.actions == ALLOWED[policy] - unused
