"""The permissions of each door and mode: one table, and the IAM policies that are made of it.

`tests/deploy/test_iam.py` and its neighbours run each mode on the local server, and compare the
calls that it makes with this table: nothing is missing, and nothing is too much.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum


class Resource(Enum):
    """What an action may be done to. Replace REGION, ACCOUNT and the names."""

    STREAM = "arn:aws:kinesis:REGION:ACCOUNT:stream/STREAM"
    CONSUMER = "arn:aws:kinesis:REGION:ACCOUNT:stream/STREAM/consumer/CONSUMER:*"
    QUEUE = "arn:aws:kinesis:REGION:ACCOUNT:queue/QUEUE-ID"
    QUEUES = "arn:aws:kinesis:REGION:ACCOUNT:queue/*"
    KEY = "arn:aws:kms:REGION:ACCOUNT:key/KEY-ID"
    TABLE = "arn:aws:dynamodb:REGION:ACCOUNT:table/APPLICATION"
    OWNER_INDEX = f"{TABLE}/index/LeaseOwnerToLeaseKeyIndex"
    STATES_TABLE = "arn:aws:dynamodb:REGION:ACCOUNT:table/APPLICATION-CoordinatorState"
    STATS_TABLE = "arn:aws:dynamodb:REGION:ACCOUNT:table/APPLICATION-WorkerMetricStats"
    REPLAY_TABLE = "arn:aws:dynamodb:REGION:ACCOUNT:table/APPLICATION-replay-*"
    ANY = "*"
    """The action has no resource."""


@dataclass(frozen=True)
class Grant:
    """Actions on one kind of resource, for one purpose."""

    sid: str
    on: Resource
    actions: tuple[str, ...]
    condition: tuple[str, str, str] | None = None
    """An operator, a key and a value."""


@dataclass(frozen=True)
class Policy:
    """The permissions of one way to use sparkinesis."""

    name: str
    """The name of its file."""
    purpose: str
    grants: tuple[Grant, ...]

    @property
    def actions(self) -> set[str]:
        return {action for grant in self.grants for action in grant.actions}


READ = Grant(
    "ReadStream",
    Resource.STREAM,
    (
        "kinesis:DescribeStreamSummary",
        "kinesis:GetRecords",
        "kinesis:GetShardIterator",
        "kinesis:ListShards",
    ),
)
REGISTER = Grant(
    "RegisterConsumer",
    Resource.STREAM,
    ("kinesis:ListStreamConsumers", "kinesis:RegisterStreamConsumer"),
)
SUBSCRIBE = Grant(
    "ReadByConsumer",
    Resource.CONSUMER,
    (
        "kinesis:DeregisterStreamConsumer",
        "kinesis:DescribeStreamConsumer",
        "kinesis:SubscribeToShard",
    ),
)
LEASES = Grant(
    "LeaseTable",
    Resource.TABLE,
    (
        "dynamodb:DeleteItem",
        "dynamodb:DescribeTable",
        "dynamodb:GetItem",
        "dynamodb:PartiQLUpdate",
        "dynamodb:PutItem",
        "dynamodb:Scan",
        "dynamodb:UpdateItem",
    ),
)
FIND_QUEUES = Grant("FindQueues", Resource.ANY, ("kinesis:ListQueues",))
CREATE_QUEUE = (
    Grant("CreateQueue", Resource.QUEUES, ("kinesis:CreateQueue",)),
    Grant(
        "QueueOfStream",
        Resource.STREAM,
        ("kinesis:AssociateStreamsWithQueue", "kinesis:DescribeStreamSummary"),
    ),
)
CREATE_TABLE = Grant(
    "CreateLeaseTable",
    Resource.TABLE,
    ("dynamodb:CreateTable", "dynamodb:TagResource", "dynamodb:UpdateContinuousBackups"),
)

POLICIES = (
    Policy("spark-read", "a query or batch read that polls", (READ,)),
    Policy("spark-read-fan-out", "a query with `consumerMode=efo`", (READ, REGISTER, SUBSCRIBE)),
    Policy(
        "spark-read-application",
        "a query with `initialPosition=application:NAME`",
        (READ, Grant("ReadCheckpoints", Resource.TABLE, ("dynamodb:Scan",))),
    ),
    Policy(
        "spark-write",
        "a query or batch write; `ListShards` is for `aggregation=true`",
        (Grant("WriteStream", Resource.STREAM, ("kinesis:ListShards", "kinesis:PutRecords")),),
    ),
    Policy("worker", "workers that poll, where the lease table exists", (READ, LEASES)),
    Policy(
        "worker-fan-out",
        'workers with `retrieval="efo"`, where the lease table exists',
        (READ, REGISTER, SUBSCRIBE, LEASES),
    ),
    Policy(
        "worker-several-streams",
        "workers of several streams, where the lease table exists",
        (READ, LEASES, Grant("FindStreams", Resource.ANY, ("kinesis:ListStreams",))),
    ),
    Policy(
        "create-table",
        "the first worker, in addition, if it creates the lease table",
        (CREATE_TABLE,),
    ),
    Policy(
        "fleet-tables",
        "workers in an application with a leader, in addition",
        (
            Grant(
                "FleetState",
                Resource.STATES_TABLE,
                (
                    "dynamodb:DeleteItem",
                    "dynamodb:GetItem",
                    "dynamodb:PutItem",
                    "dynamodb:UpdateItem",
                ),
            ),
            Grant(
                "WorkerStats",
                Resource.STATS_TABLE,
                ("dynamodb:DeleteItem", "dynamodb:Scan", "dynamodb:UpdateItem"),
            ),
        ),
    ),
    Policy(
        "own-rows",
        "workers in an application with a leader, in addition, to read only their own rows of many",
        (
            Grant("OwnRows", Resource.TABLE, ("dynamodb:BatchGetItem", "dynamodb:UpdateTable")),
            Grant("OwnerIndex", Resource.OWNER_INDEX, ("dynamodb:Query",)),
        ),
    ),
    Policy(
        "replay",
        "`application.replay`",
        (
            READ,
            Grant(
                "ReplayTable",
                Resource.REPLAY_TABLE,
                tuple(sorted((*LEASES.actions, "dynamodb:CreateTable", "dynamodb:DeleteTable"))),
            ),
        ),
    ),
    Policy(
        "monitor",
        "`sparkinesis leases`, `top`, `exporter` and `ui`, to look only",
        (READ, Grant("ReadLeases", Resource.TABLE, ("dynamodb:Scan",))),
    ),
    Policy(
        "operator",
        "`sparkinesis reset`, `restart` and `convert-leases`, and `ui` to move leases, too",
        (READ, LEASES),
    ),
    Policy(
        "queue",
        "a `QueueApplication`, where the queue exists, and `sparkinesis queues tail`",
        (
            Grant(
                "ReceiveFromQueue",
                Resource.QUEUE,
                (
                    "kinesis:AcknowledgeQueueRecords",
                    "kinesis:DescribeQueue",
                    "kinesis:ReceiveQueueRecords",
                    "kinesis:UpdateQueueRecordsVisibility",
                ),
            ),
            FIND_QUEUES,
        ),
    ),
    Policy(
        "queue-decrypt",
        "in addition, for the queue of a stream with server-side encryption",
        (Grant("DecryptRecords", Resource.KEY, ("kms:Decrypt",)),),
    ),
    Policy(
        "create-queue", "the first one, in addition, if `create=` makes the queue", CREATE_QUEUE
    ),
    Policy(
        "queue-dead-letters",
        "`sparkinesis queues dead-letters`",
        (
            Grant(
                "DeadLetters",
                Resource.QUEUE,
                (
                    "kinesis:AcknowledgeDeadLetterQueueRecords",
                    "kinesis:ReceiveDeadLetterQueueRecords",
                    "kinesis:RestoreDeadLetterQueueRecords",
                    "kinesis:UpdateDeadLetterQueueRecordsVisibility",
                ),
            ),
            FIND_QUEUES,
        ),
    ),
    Policy(
        "queue-operator",
        "`sparkinesis queues` to list, describe, make, change and delete queues",
        (
            Grant(
                "ChangeQueues",
                Resource.QUEUES,
                ("kinesis:DeleteQueue", "kinesis:DescribeQueue", "kinesis:UpdateQueue"),
            ),
            *CREATE_QUEUE,
            FIND_QUEUES,
        ),
    ),
    Policy(
        "cloudwatch",
        "in addition, with `CloudWatchMetrics`",
        (
            Grant(
                "PublishMetrics",
                Resource.ANY,
                ("cloudwatch:PutMetricData",),
                ("StringEquals", "cloudwatch:namespace", "APPLICATION"),
            ),
        ),
    ),
)

WITHOUT_CALL = {
    "kinesis:AssociateStreamsWithQueue": "CreateQueue needs it on the stream",
    "kms:Decrypt": "Kinesis makes the call, for whoever receives",
    "dynamodb:TagResource": "CreateTable needs it for a table with tags",
}
"""Permissions that belong to another action's call."""

STATEMENTS = {"BatchExecuteStatement": "PartiQLUpdate"}
"""Operations whose permission has another name."""


def action_of(service: str, operation: str) -> str:
    """Return the permission of an operation of ``kinesis`` or ``dynamodb``."""
    return f"{service}:{STATEMENTS.get(operation, operation)}"


def document(policy: Policy) -> str:
    """Return a policy as IAM takes it."""
    statements = [_statement(grant) for grant in policy.grants]
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, indent=2) + "\n"


def _statement(grant: Grant) -> dict[str, object]:
    found: dict[str, object] = {
        "Sid": grant.sid,
        "Effect": "Allow",
        "Action": sorted(grant.actions),
        "Resource": grant.on.value,
    }
    if grant.condition is not None:
        operator, key, value = grant.condition
        found["Condition"] = {operator: {key: value}}
    return found
