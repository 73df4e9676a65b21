"""Each setting of AWS_* and ``~/.aws/config`` leads a direct call where it leads botocore's.

The names of AWS's endpoints resolve to a server on this machine, which has a certificate for them.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import InvalidConfigError

from sparkinesis.stream.calls.operations import _InitialResponse
from tests.certificates import self_signed, serving_context
from tests.integration.stream.direct.both import FINE, clients, outcome
from tests.integration.stream.direct.raw_server import RawServer, http, serving

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
QUEUE = "arn:aws:kinesis:us-east-1:123456789012:queue/4rx-07"
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "GetRecords": ("kinesis", {"ShardIterator": "i"}),
    "GetRecords by ARN": ("kinesis", {"ShardIterator": "i", "StreamARN": ARN}),
    "GetShardIterator by ARN": (
        "kinesis",
        {"StreamARN": ARN, "ShardId": "i", "ShardIteratorType": "LATEST"},
    ),
    "ListShards by ARN": ("kinesis", {"StreamARN": ARN}),
    "PutRecords by ARN": (
        "kinesis",
        {"StreamARN": ARN, "Records": [{"Data": b"d", "PartitionKey": "k"}]},
    ),
    "SubscribeToShard": (
        "kinesis",
        {
            "ConsumerARN": f"{ARN}/consumer/c:1",
            "ShardId": "i",
            "StartingPosition": {"Type": "LATEST"},
        },
    ),
    "ReceiveQueueRecords": ("kinesis", {"QueueARN": QUEUE}),
    "DescribeQueue": ("kinesis", {"QueueARN": QUEUE}),
    "ListQueues": ("kinesis", {}),
    "Scan": ("dynamodb", {"TableName": "t"}),
    "Scan by ARN": (
        "dynamodb",
        {"TableName": "arn:aws:dynamodb:us-east-1:210987654321:table/t"},
    ),
    "BatchExecuteStatement": ("dynamodb", {"Statements": [{"Statement": "SELECT"}]}),
}


@dataclass(frozen=True)
class Case:
    """What the user has set, and the host that it leads to."""

    name: str
    call: str
    host: str
    environment: dict[str, str] = field(default_factory=dict)
    config: str = ""
    """The lines of the profile."""
    region: str | None = "us-east-1"


FIPS = {"AWS_USE_FIPS_ENDPOINT": "true"}
DUAL = {"AWS_USE_DUALSTACK_ENDPOINT": "true"}
ACCOUNT = {"AWS_ACCOUNT_ID": "123456789012"}
CASES = [
    Case("a region", "GetRecords", "kinesis.us-east-1.amazonaws.com"),
    Case("China", "GetRecords", "kinesis.cn-north-1.amazonaws.com.cn", region="cn-north-1"),
    Case("a region of the profile", "GetRecords", "kinesis.eu-west-3.amazonaws.com",
         config="region = eu-west-3", region=None),
    Case("FIPS", "GetRecords", "kinesis-fips.us-east-1.amazonaws.com", FIPS),
    Case("dual stack", "GetRecords", "kinesis.us-east-1.api.aws", DUAL),
    Case("dual stack in the profile", "GetRecords", "kinesis.us-east-1.api.aws",
         config="use_dualstack_endpoint = true"),
    Case("FIPS and dual stack", "GetRecords", "kinesis-fips.us-east-1.api.aws", {**FIPS, **DUAL}),
    Case("an account", "GetRecords by ARN", "123456789012.data-kinesis.us-east-1.amazonaws.com"),
    Case("an account", "GetShardIterator by ARN",
         "123456789012.data-kinesis.us-east-1.amazonaws.com"),
    Case("an account", "ListShards by ARN",
         "123456789012.control-kinesis.us-east-1.amazonaws.com"),
    Case("an account", "PutRecords by ARN", "123456789012.data-kinesis.us-east-1.amazonaws.com"),
    Case("an account", "SubscribeToShard", "123456789012.data-kinesis.us-east-1.amazonaws.com"),
    Case("an account and FIPS", "SubscribeToShard",
         "123456789012.data-kinesis-fips.us-east-1.amazonaws.com", FIPS),
    Case("a queue", "ReceiveQueueRecords", "4rx-07.data-kinesis-queues.us-east-1.amazonaws.com"),
    Case("a queue", "DescribeQueue", "4rx-07.control-kinesis-queues.us-east-1.amazonaws.com"),
    Case("a queue and FIPS", "ReceiveQueueRecords",
         "4rx-07.data-kinesis-queues-fips.us-east-1.amazonaws.com", FIPS),
    Case("a queue and dual stack", "ReceiveQueueRecords",
         "4rx-07.data-kinesis-queues.us-east-1.api.aws", DUAL),
    Case("queues", "ListQueues", "kinesis-queues.us-east-1.amazonaws.com"),
    Case("an account's queues", "ListQueues",
         "123456789012.control-kinesis-queues.us-east-1.amazonaws.com", ACCOUNT),
    Case("an endpoint of queues", "ReceiveQueueRecords", "own.test",
         {"AWS_ENDPOINT_URL_KINESIS": "https://own.test"}),
    Case("a table", "Scan", "dynamodb.us-east-1.amazonaws.com"),
    Case("an account's table", "Scan", "123456789012.ddb.us-east-1.amazonaws.com", ACCOUNT),
    Case("an account's table", "BatchExecuteStatement",
         "123456789012.ddb.us-east-1.amazonaws.com", ACCOUNT),
    Case("another account's table", "Scan by ARN", "210987654321.ddb.us-east-1.amazonaws.com",
         ACCOUNT),
    Case("no account endpoints in the profile", "Scan", "dynamodb.us-east-1.amazonaws.com",
         ACCOUNT, config="account_id_endpoint_mode = disabled"),
    Case("an endpoint of Kinesis", "GetRecords", "own.test",
         {"AWS_ENDPOINT_URL": "https://all.test", "AWS_ENDPOINT_URL_KINESIS": "https://own.test"}),
    Case("an endpoint of DynamoDB", "Scan", "own.test",
         {"AWS_ENDPOINT_URL": "https://all.test", "AWS_ENDPOINT_URL_DYNAMODB": "https://own.test"}),
    Case("an endpoint in the profile", "GetRecords", "profile.test",
         config="endpoint_url = https://profile.test"),
    Case("endpoints by service in the profile", "GetRecords", "service.test",
         config="services = s\n[services s]\nkinesis =\n  endpoint_url = https://service.test"),
    Case("ignored endpoints", "GetRecords", "kinesis.us-east-1.amazonaws.com",
         {"AWS_ENDPOINT_URL": "https://all.test",
          "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}),
]  # fmt: skip


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes the user's profile."""
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))

    def write(lines: str) -> None:
        (tmp_path / "config").write_text(f"[default]\n{lines}\n")

    return write


@contextmanager
def pretending(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *hosts: str
) -> Iterator[tuple[RawServer, list[str | None]]]:
    """A server of these hosts over TLS, and the names that its clients asked for (SNI)."""
    file = self_signed(folder, *hosts)
    context = serving_context(file)
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    with serving(context) as server:
        port = int(server.endpoint.rpartition(":")[2])
        real = socket.getaddrinfo

        def resolve(host: Any, _: Any, *rest: Any, **more: Any) -> Any:
            assert host in hosts, host
            return real("127.0.0.1", port, *rest, **more)

        with monkeypatch.context() as patched:
            patched.setattr(socket, "getaddrinfo", resolve)
            patched.setenv("AWS_CA_BUNDLE", str(file))
            yield server, names


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.call}")
def test_a_setting_leads_to_the_same_endpoint(
    case: Case, profile: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in case.environment.items():
        monkeypatch.setenv(name, value)
    profile(case.config)
    service, request = REQUESTS[case.call]
    operation = case.call.partition(" ")[0]
    method = re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()
    with pretending(tmp_path, monkeypatch, case.host) as (server, names):
        made = clients(None, service, operation, region=case.region, read_timeout=10)
        plain, direct = made
        with closing(plain), closing(direct):
            for client in (plain, direct, direct):
                server.behaviours.append(FINE)
                if operation == "SubscribeToShard" and client is plain:
                    client.meta.events.register(
                        "before-parse.kinesis.SubscribeToShard", empty_stream
                    )
                getattr(client, method)(**request)
    botocores, *directly = server.requests
    assert set(names) == {case.host}
    assert "amz-sdk-request" in botocores.headers
    for ours in directly:
        assert "amz-sdk-request" not in ours.headers
        assert ours.headers["host"] == botocores.headers["host"] == case.host
        assert ours.headers["x-amz-target"] == botocores.headers["x-amz-target"]
        scopes = [each.headers["authorization"].split("/")[2:4] for each in (botocores, ours)]
        assert scopes[0] == scopes[1]
        assert json.loads(ours.body) == json.loads(botocores.body)


@pytest.mark.parametrize(
    "call",
    [
        ("ReceiveQueueRecords", "QueueARN", "data"),
        ("ListTagsForResource", "ResourceARN", "control"),
    ],
)
def test_calls_on_a_second_queue_go_to_its_own_host(
    call: tuple[str, str, str],
    profile: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was learned of the first one's request is not repeated for the second."""
    profile("")
    operation, name, plane = call
    one, other = (f"{queue}.{plane}-kinesis-queues.us-east-1.amazonaws.com" for queue in "ab")
    method = re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()
    with pretending(tmp_path, monkeypatch, one, other) as (server, names):
        _, direct = clients(None, "kinesis", operation, read_timeout=10)
        with closing(direct):
            for queue in ("a", "b", "a"):
                server.behaviours.append(FINE)
                getattr(direct, method)(**{name: QUEUE.replace("4rx-07", queue)})
    assert [request.headers["host"] for request in server.requests] == [one, other, one]
    assert names == [one, other], "each host has its own connections"


def empty_stream(response_dict: dict[str, Any], **_: Any) -> None:
    response_dict["body"] = _InitialResponse()


def test_a_certificate_of_another_host_is_refused(
    profile: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile("")
    other = self_signed(tmp_path, "other.test")
    with serving(serving_context(other)) as server, monkeypatch.context() as patched:
        port = int(server.endpoint.rpartition(":")[2])
        real = socket.getaddrinfo
        patched.setattr(socket, "getaddrinfo", lambda *_, **__: real("127.0.0.1", port, 0, 1))
        patched.setenv("AWS_CA_BUNDLE", str(other))
        found = [outcome(client, "kinesis") for client in clients(None)]
    assert found[0] == found[1] == ("SSLError", True, True)


def test_a_bundle_of_certificates_comes_from_the_profile_too(
    profile: Callable[[str], None], tmp_path: Path
) -> None:
    file = self_signed(tmp_path)
    profile(f"ca_bundle = {file}")
    with serving(serving_context(file)) as server:
        server.behaviours.extend([FINE] * 2)
        found = [outcome(client, "kinesis")[1] for client in clients(server.endpoint)]
    assert found == [200, 200]


def test_a_bundle_that_is_not_there_is_an_error_of_tls(
    profile: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile("")
    with serving(serving_context(self_signed(tmp_path))) as server:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "gone.pem"))
        _, direct = clients(server.endpoint)
        assert outcome(direct, "kinesis") == ("SSLError", True, True)


def test_an_empty_bundle_is_refused_by_botocore(
    profile: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile("")
    monkeypatch.setenv("AWS_CA_BUNDLE", "")
    with pytest.raises(InvalidConfigError):
        clients("https://127.0.0.1:9")


def test_no_proxy_is_asked_for_hosts_that_need_none(
    profile: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile("")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as server:
        server.behaviours.extend([FINE] * 2)
        found = [outcome(client, "kinesis")[1] for client in clients(server.endpoint)]
    assert found == [200, 200]
    assert ["amz-sdk-request" in each.headers for each in server.requests] == [True, False]


def test_a_proxy_of_https_tunnels_botocores_calls(
    profile: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile("")
    lines: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{listener.getsockname()[1]}")
    monkeypatch.setattr(socket, "getaddrinfo", local_only(socket.getaddrinfo))
    with listener:
        for client in clients("https://kinesis.test"):
            asked = refusing(listener, lines)
            found = outcome(client, "kinesis")
            asked()
            assert found == ("ProxyConnectionError", True, True)
    assert [line.split()[:2] for line in lines] == [[b"CONNECT", b"kinesis.test:443"]] * 2


def local_only(real: Any) -> Any:
    def resolve(host: Any, *rest: Any, **more: Any) -> Any:
        assert host == "127.0.0.1", host
        return real(host, *rest, **more)

    return resolve


def refusing(listener: socket.socket, lines: list[bytes]) -> Callable[[], None]:
    """Refuse the next tunnel, in a thread of its own; return what waits for it."""

    def refuse() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as reader:
            lines.append(reader.readline())
            while reader.readline() != b"\r\n":
                pass
            connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    thread = threading.Thread(target=refuse)
    thread.start()
    return thread.join


def test_keep_alive_probes_are_sent_if_the_profile_says_so(
    profile: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_options: list[tuple[Any, ...]] = []
    real = socket.socket.setsockopt

    def note(self: socket.socket, *options: Any) -> None:
        set_options.append(options)
        real(self, *options)

    monkeypatch.setattr(socket.socket, "setsockopt", note, raising=False)
    for config, expected in (("", 0), ("tcp_keepalive = true", 2)):
        profile(config)
        monkeypatch.setenv("AWS_PROFILE_FOR_TEST", config)  # sessions are shared by environment
        set_options.clear()
        with serving() as server:
            server.behaviours.extend([FINE] * 2)
            for client in clients(server.endpoint):
                assert outcome(client, "kinesis")[1] == 200
        assert set_options.count((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)) == expected


def test_attempts_of_botocores_retries_have_no_effect(
    profile: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile("max_attempts = 9\nretry_mode = adaptive")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "9")
    with serving() as server:
        server.behaviours.extend([http(b"", "500 Oops")] * 2)
        for client in clients(server.endpoint):
            assert outcome(client, "kinesis")[3]["HTTPStatusCode"] == 500
    assert len(server.requests) == 2
