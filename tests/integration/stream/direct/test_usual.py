"""A request that is known without botocore is the one that botocore would have prepared."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name
from botocore.credentials import Credentials

from sparkinesis.lease.table import client as lease_table
from sparkinesis.stream.address import FOUND_BY_BOTO, CredentialSource
from sparkinesis.stream.calls import operations
from sparkinesis.stream.calls.direct.by_botocore import ByBotocore
from sparkinesis.stream.calls.direct.connection import trusted
from sparkinesis.stream.calls.direct.direct_client import DirectClient, method_name
from sparkinesis.stream.calls.direct.signed_request import LearnedRequest, Signers
from sparkinesis.stream.calls.direct.usual import UsualSettings, usual_settings
from sparkinesis.stream.calls.session import client_of, open_session
from tests.certificates import self_signed, serving_context
from tests.integration.stream.direct.both import FINE, clients, decode, outcome
from tests.integration.stream.direct.raw_server import http, serving

pytestmark = pytest.mark.usefixtures("usual")

STREAM_ARN = "arn:{partition}:kinesis:{region}:123456789012:stream/s"
POSITION = {"Type": "LATEST"}
QUEUE = {"QueueARN": "arn:{partition}:kinesis:{region}:123456789012:queue/4rx-07"}
HANDLE = {"ReceiptHandle": "h"}
HIDDEN = {**HANDLE, "VisibilityTimeoutSeconds": 9}
ON_QUEUES: dict[str, dict[str, Any]] = {
    "AcknowledgeDeadLetterQueueRecords": {**QUEUE, "Entries": [HANDLE]},
    "AcknowledgeQueueRecords": {**QUEUE, "Entries": [HANDLE]},
    "CreateQueue": {
        "QueueName": "q",
        # No part of the way to the endpoint, unlike a StreamARN of the request itself.
        "StreamConfigurationList": [
            {"StreamARN": "arn:aws:kinesis:us-east-1:210987654321:stream/s"}
        ],
    },
    "DeleteQueue": QUEUE,
    "DescribeQueue": QUEUE,
    "ListQueues": {},
    "ReceiveDeadLetterQueueRecords": QUEUE,
    "ReceiveQueueRecords": QUEUE,
    "RestoreDeadLetterQueueRecords": {**QUEUE, "Entries": [HANDLE]},
    "UpdateDeadLetterQueueRecordsVisibility": {**QUEUE, "Entries": [HIDDEN]},
    "UpdateQueue": {**QUEUE, "QueueAttributes": {"VisibilityTimeoutSeconds": 9}},
    "UpdateQueueRecordsVisibility": {**QUEUE, "Entries": [HIDDEN]},
}
BY_NAME: dict[str, dict[str, Any]] = {
    "DescribeStreamConsumer": {"StreamARN": STREAM_ARN, "ConsumerName": "c"},
    "DescribeStreamSummary": {"StreamName": "s"},
    "GetRecords": {"ShardIterator": "i"},
    "GetShardIterator": {"StreamName": "s", "ShardId": "i", "ShardIteratorType": "LATEST"},
    "ListShards": {"StreamName": "s"},
    "RegisterStreamConsumer": {"StreamARN": STREAM_ARN, "ConsumerName": "c"},
    "PutRecords": {"StreamName": "s", "Records": [{"Data": b"", "PartitionKey": "k"}]},
    "SubscribeToShard": {
        "ConsumerARN": f"{STREAM_ARN}/consumer/c:1",
        "ShardId": "i",
        "StartingPosition": POSITION,
    },
    **ON_QUEUES,
}
REFUSED = http(b'{"__type": "ResourceNotFoundException", "message": "gone"}', "400 Bad Request")
BUNDLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
KEY = {"leaseKey": {"S": "k"}}
OF_TABLES: dict[str, dict[str, Any]] = {
    "BatchExecuteStatement": {"Statements": [{"Statement": "SELECT"}]},
    "BatchGetItem": {"RequestItems": {"abc": {"Keys": [KEY]}}},
    "CreateTable": {
        "TableName": "abc",
        "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "leaseKey", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    },
    "DeleteItem": {"TableName": "abc", "Key": KEY},
    "DescribeTable": {"TableName": "abc"},
    "GetItem": {"TableName": "abc", "Key": KEY},
    "PutItem": {"TableName": "abc", "Item": KEY},
    "Query": {"TableName": "abc"},
    "Scan": {"TableName": "abc"},
    "UpdateItem": {"TableName": "abc", "Key": KEY},
}


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment with nothing but credentials."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "BOTO")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def regions() -> list[tuple[str, str]]:
    """All regions of all partitions, and some that the installed botocore does not know yet."""
    session = botocore.session.Session()
    known = {
        (partition, region)
        for partition in session.get_available_partitions()
        for service in ("kinesis", "dynamodb", "ec2", "sts")
        for region in session.get_available_regions(service, partition, allow_non_regional=True)
    }
    return sorted(known | {("aws", "eu-west-9"), ("aws-cn", "cn-west-7"), ("aws", "xx-north-1")})


def with_arn(request: dict[str, Any]) -> dict[str, Any]:
    if "StreamName" not in request:
        return {**request, "StreamARN": STREAM_ARN}
    rest = {name: value for name, value in request.items() if name != "StreamName"}
    return {**rest, "StreamARN": STREAM_ARN}


REQUESTS = {
    "kinesis": [
        *BY_NAME.items(),
        *(
            (operation, with_arn(request))
            for operation, request in BY_NAME.items()
            if "ConsumerARN" not in request and operation not in ON_QUEUES
        ),
        ("DescribeStreamConsumer", {"ConsumerARN": f"{STREAM_ARN}/consumer/c:1"}),
        # The region is the client's, whatever the ARN says.
        ("DescribeQueue", {"QueueARN": "arn:{partition}:kinesis:xx-west-1:123456789012:queue/a"}),
    ],
    "dynamodb": list(OF_TABLES.items()),
}


def botocores(
    service: str, region: str | None, endpoint: str | None
) -> Callable[[str, dict[str, Any]], LearnedRequest | None]:
    """Returns the request that botocore prepares, or None if botocore refuses it."""
    session = open_session(FOUND_BY_BOTO, region, endpoint)
    operations = [operation for operation, _ in REQUESTS[service]]
    by_botocore = ByBotocore(client_of(session, service, endpoint), session, operations, Signers())

    def prepared(operation: str, request: dict[str, Any]) -> LearnedRequest | None:
        found = by_botocore.prepare(operation, request)
        assert isinstance(found, LearnedRequest)
        return found

    return prepared


def without_features(request: LearnedRequest | None) -> Any:
    """The parts of a request; botocore counts its features in the User-Agent since ``ua/2.1``."""
    assert request is not None
    head = re.sub(rb"(user-agent: .*) m/[\w,]+", rb"\1", request.head).replace(b"ua/2.0", b"ua/2.1")
    return request.url, request.scope, request.canonical, head


def settings(
    service: str, region: str | None = "us-east-1", endpoint: str | None = None
) -> UsualSettings | None:
    return usual_settings(service, region, endpoint, FOUND_BY_BOTO)


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:4566", "https://a-b.own.test/"])
@pytest.mark.parametrize("service", REQUESTS)
def test_each_request_is_botocores(service: str, endpoint: str | None) -> None:
    known = 0
    places = regions()
    if endpoint is not None:  # the region only has a place in the signature: one of each partition
        places = list({partition: (partition, region) for partition, region in places}.values())
    for partition, region in places:
        own = settings(service, region, endpoint)
        if own is None:
            continue
        prepared = botocores(service, region, endpoint)
        for operation, template in REQUESTS[service]:
            request = {
                name: value.format(partition=partition, region=region)
                if isinstance(value, str)
                else value
                for name, value in template.items()
            }
            found = own.request(operation, request)
            if found is not None:
                known += 1
                assert without_features(found) == without_features(prepared(operation, request))
    assert known > (30 if endpoint is None else 3) * len(REQUESTS[service])


@pytest.mark.parametrize(
    "environment",
    [
        {"AWS_REGION": "eu-west-1"},
        {"AWS_DEFAULT_REGION": "eu-west-1"},
        {"AWS_REGION": "eu-west-2", "AWS_DEFAULT_REGION": "eu-west-1"},
        {"AWS_REGION": "eu-west-2", "AWS_ENDPOINT_URL": "http://all.test"},
        {"AWS_REGION": "eu-west-2", "AWS_ENDPOINT_URL_KINESIS": "https://own.test:8443"},
        {
            "AWS_REGION": "eu-west-2",
            "AWS_ENDPOINT_URL": "http://all.test",
            "AWS_ENDPOINT_URL_KINESIS": "https://own.test:443/",
        },
        {"AWS_REGION": "eu-west-2", "AWS_ENDPOINT_URL_DYNAMODB": "https://other.test"},
        {"AWS_REGION": "eu-west-2", "AWS_EXECUTION_ENV": "AWS_ECS (strange)/1"},
        {"AWS_REGION": "eu-west-2", "AWS_RETRY_MODE": "adaptive", "AWS_MAX_ATTEMPTS": "9"},
        {"AWS_REGION": "eu-west-2", "AWS_SESSION_TOKEN": "token"},
        {"AWS_REGION": "eu-west-2", "AWS_STS_REGIONAL_ENDPOINTS": "legacy"},
        {"AWS_REGION": "eu-west-2", "AWS_EC2_METADATA_DISABLED": "true"},
    ],
)
def test_each_known_variable_means_the_same(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    own = settings("kinesis", None)
    assert own is not None
    call = "GetRecords", BY_NAME["GetRecords"]
    assert without_features(own.request(*call)) == without_features(
        botocores("kinesis", None, None)(*call)
    )


def test_a_local_endpoint_needs_no_region() -> None:
    own = settings("kinesis", None, "http://localhost:4566")
    assert own is not None
    call = "GetRecords", BY_NAME["GetRecords"]
    assert without_features(own.request(*call)) == without_features(
        botocores("kinesis", None, "http://localhost:4566")(*call)
    )


@pytest.mark.parametrize(
    "name",
    [
        "AWS_PROFILE",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_DATA_PATH",
        "AWS_USE_FIPS_ENDPOINT",
        "AWS_USE_DUALSTACK_ENDPOINT",
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
        "AWS_ACCOUNT_ID",
        "AWS_ACCOUNT_ID_ENDPOINT_MODE",
        "AWS_CREDENTIAL_EXPIRATION",
        "AWS_SECURITY_TOKEN",
        "AWS_ENDPOINT_DISCOVERY_ENABLED",
        "AWS_SDK_UA_APP_ID",
        "AWS_SIGV4A_SIGNING_REGION_SET",
        "AWS_AUTH_SCHEME_PREFERENCE",
        "AWS_CSM_ENABLED",
        "AWS_BEARER_TOKEN_KINESIS",
        "BOTOCORE_EXPERIMENTAL__PLUGINS",
        "BOTOCORE_TCP_KEEPALIVE",
        "HTTPS_PROXY",
        "http_proxy",
    ],
)
def test_a_setting_that_may_change_requests_is_botocores(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings("kinesis") is not None
    monkeypatch.setenv(name, "1")
    assert settings("kinesis") is None


@pytest.mark.parametrize(
    "name", ["AWS_CA_BUNDLE", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_SECRET_ACCESS_KEY"]
)
def test_an_empty_variable_is_botocores(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "")
    assert settings("kinesis") is None


@pytest.mark.parametrize("file", ["config", "credentials", "models/x"])
def test_a_file_of_settings_is_botocores(file: str, tmp_path: Path) -> None:
    (tmp_path / ".aws" / file).parent.mkdir(parents=True)
    (tmp_path / ".aws" / file).touch()
    assert settings("kinesis") is None


@pytest.mark.parametrize(
    ("region", "endpoint"),
    [
        (None, None),
        ("fips-us-east-1", None),
        ("us-east-1", "https://own.test/path"),
        ("us-east-1", "https://user@own.test"),
        ("us-east-1", "https://Own.test"),
        ("us-east-1", "https://[::1]:1"),
    ],
)
def test_other_places_are_botocores(region: str | None, endpoint: str | None) -> None:
    assert settings("kinesis", region, endpoint) is None


def test_a_profile_is_botocores_and_a_roles_credentials_too() -> None:
    profile, role = (
        CredentialSource(profile="p"),
        CredentialSource(role_arn="arn:aws:iam::1:role/r"),
    )
    assert usual_settings("kinesis", "us-east-1", None, profile) is None
    found = usual_settings("kinesis", "us-east-1", None, role)
    assert found is not None
    assert found.keys is None


@pytest.mark.parametrize("region", ["us-iso-east-1", "us-isob-east-1", "eusc-de-east-1"])
def test_partitions_that_are_not_known_are_botocores(region: str) -> None:
    own = settings("kinesis", region)
    assert own is not None
    assert own.request("GetRecords", BY_NAME["GetRecords"]) is None


QUEUE_ARN = "arn:{}:kinesis:us-east-1:123456789012:queue/{}"


@pytest.mark.parametrize(
    "arn",
    [
        QUEUE_ARN.format("aws-cn", "4rx"),
        QUEUE_ARN.format("aws", "4RX"),
        QUEUE_ARN.format("aws", "4rx-"),
        QUEUE_ARN.format("aws", "4_rx"),
        QUEUE_ARN.format("aws", "4rx.7"),
        QUEUE_ARN.format("aws", "4rx/7"),
        QUEUE_ARN.format("aws", 64 * "4"),
        QUEUE_ARN.format("aws", "4rx").replace("queue", "stream"),
    ],
)
def test_a_queue_whose_host_is_in_doubt_is_botocores(arn: str) -> None:
    own = settings("kinesis")
    assert own is not None
    assert own.request("ReceiveQueueRecords", {"QueueARN": arn}) is None


def test_each_queue_has_hosts_of_its_own() -> None:
    own = settings("kinesis")
    assert own is not None
    found = [
        own.request(operation, {"QueueARN": QUEUE_ARN.format("aws", queue)})
        for queue in ("4rx", "5sy")
        for operation in ("ReceiveQueueRecords", "DescribeQueue")
    ]
    assert [each and each.url for each in found] == [
        f"https://{queue}.{plane}-kinesis-queues.us-east-1.amazonaws.com/"
        for queue in ("4rx", "5sy")
        for plane in ("data", "control")
    ]


def test_an_account_of_another_partition_is_botocores() -> None:
    own = settings("kinesis")
    assert own is not None
    arn = STREAM_ARN.format(partition="aws-cn", region="cn-north-1")
    assert own.request("GetRecords", {"ShardIterator": "i", "StreamARN": arn}) is None


def test_keys_are_those_of_the_environment_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    own = settings("kinesis")
    assert own is not None
    assert own.keys is not None
    found = botocore.session.Session().get_credentials().get_frozen_credentials()
    keys = own.keys.get_frozen_credentials()
    assert (keys.access_key, keys.secret_key, keys.token) == found[:3] == ("key", "secret", "token")
    assert keys.account_id == getattr(found, "account_id", None)
    assert "secret" not in f"{keys!r} {keys}"


def test_botocore_is_opened_for_what_is_not_known() -> None:
    opened: list[str] = []

    def opening() -> Any:
        opened.append("session")
        return open_session(FOUND_BY_BOTO, "us-east-1", None)

    def client(session: Any) -> Any:
        opened.append("client")
        return client_of(session, "kinesis", None)

    direct = DirectClient(
        opening,
        client,
        {"GetRecords": decode},
        most_idle=1,
        read_timeout=1,
        bounds={},
        usual=settings("kinesis"),
    )
    assert opened == []
    assert direct.meta.region_name == "us-east-1"
    assert callable(direct.list_shards)
    assert opened == ["session", "client"]


def test_the_names_of_methods_are_botocores() -> None:
    names = [*operations.DECODERS, *lease_table._DIRECTLY]
    assert [method_name(each) for each in names] == [xform_name(each) for each in names]
    assert set(operations.DECODERS) == set(BY_NAME)
    assert set(lease_table._DIRECTLY) == set(OF_TABLES)


def test_an_account_of_the_credentials_is_botocores(monkeypatch: pytest.MonkeyPatch) -> None:
    source = functools.partial(open_session, FOUND_BY_BOTO, "us-east-1", None)
    direct = DirectClient(
        source,
        lambda session: client_of(session, "dynamodb", None),
        {"Scan": decode},
        most_idle=1,
        read_timeout=1,
        bounds={},
        usual=settings("dynamodb"),
    )
    sent: list[str] = []
    monkeypatch.setattr(direct, "_send", lambda learned, *_: sent.append(learned.url))
    direct.scan(TableName="abc")
    found = Credentials("a", "b", account_id="123456789012")
    monkeypatch.setattr(direct, "_credentials", found)
    monkeypatch.setattr(source(), "_credentials", found)
    direct.scan(TableName="abc")
    assert sent == [
        "https://dynamodb.us-east-1.amazonaws.com/",
        "https://123456789012.ddb.us-east-1.amazonaws.com/",
    ]


@pytest.mark.parametrize("names", [(), BUNDLES[:1], BUNDLES[1:], BUNDLES])
def test_the_trusted_certificates_are_those_of_the_environment(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in BUNDLES:
        monkeypatch.delenv(name, raising=False)
    for name in names:
        monkeypatch.setenv(name, f"/{name}")
    own = settings("kinesis")
    assert own is not None
    assert own.trusted == trusted(open_session(FOUND_BY_BOTO, "us-east-1", None))


def test_a_bundle_of_the_environment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = self_signed(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(file))
    with serving(serving_context(file)) as server:
        server.behaviours.append(FINE)
        _, direct = clients(server.endpoint)
        assert direct._usual is not None
        assert outcome(direct, "kinesis")[1] == 200
