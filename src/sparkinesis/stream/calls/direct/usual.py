"""The requests that botocore would prepare where nothing unusual is configured.

botocore's import and its client take more CPU than all the rest of a start. Most processes in AWS
set no more than a region: their requests are known without botocore. Where this module meets a
setting that it does not know, such as a configuration file, botocore prepares the requests. A test
compares each request with botocore's.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

import botocore

from sparkinesis.stream.address import REGION, CredentialSource, is_loopback, is_url
from sparkinesis.stream.calls.default_region import LOCAL_REGION, REGION_VARIABLES
from sparkinesis.stream.calls.direct.signed_request import (
    DATE,
    LearnedRequest,
    SigningScope,
    repeated,
)

_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_KNOWN = re.compile(
    "|".join(
        (
            *REGION_VARIABLES,
            *_KEYS,
            r"AWS_ENDPOINT_URL(_\w+)?",
            # TLS, and a part of the User-Agent.
            "AWS_CA_BUNDLE|AWS_EXECUTION_ENV",
            # Each client has its own.
            "AWS_RETRY_MODE|AWS_MAX_ATTEMPTS",
            # They lead to credentials, which botocore finds.
            r"AWS_CONTAINER_\w+|AWS_EC2_METADATA_\w+|AWS_METADATA_SERVICE_\w+",
            "AWS_ROLE_ARN|AWS_ROLE_SESSION_NAME|AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_STS_REGIONAL_ENDPOINTS",
        )
    )
)
"""The environment variables of botocore whose effect on a request is known, or none."""
_FILES = ("~/.aws/config", "~/.aws/credentials", "~/.aws/models")
"""Files of settings, and own models of services."""

_PARTITIONS = (
    ("aws", re.compile("(us|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-[0-9]+"), "amazonaws.com"),
    ("aws-cn", re.compile("cn-[a-z]+-[0-9]+"), "amazonaws.com.cn"),
    ("aws-us-gov", re.compile("us-gov-[a-z]+-[0-9]+"), "amazonaws.com"),
)
"""The partitions whose endpoints are known: name, regions, and domain."""
_ARN = re.compile(
    r"arn:(?P<partition>[a-z-]+):kinesis:[a-z0-9-]+:(?P<account>[0-9]{12}):stream/"
    r"[a-zA-Z0-9_.-]+(/consumer/[a-zA-Z0-9_.-]+:[0-9]+)?"
)
_QUEUE_ARN = re.compile(
    r"arn:(?P<partition>[a-z-]+):kinesis:[a-z0-9-]+:[0-9]{12}:queue/"
    r"(?P<id>(?!-)[a-z0-9-]{1,63}(?<!-))"
)
_PLAIN_URL = re.compile(r"https?://[a-z0-9.-]+(:[0-9]+)?/?")
_WITH_ARN = {"StreamARN", "ConsumerARN", "TableName"}
_OF_CONTROL = frozenset(
    {
        *("DescribeStreamSummary", "ListShards"),
        *("DescribeStreamConsumer", "RegisterStreamConsumer"),
        *("CreateQueue", "DeleteQueue", "DescribeQueue", "ListQueues", "UpdateQueue"),
    }
)
"""The operations of the control plane, whose endpoints are others than those of data."""
_TARGETS = {
    "kinesis": ("Kinesis_20131202", "application/x-amz-json-1.1"),
    "dynamodb": ("DynamoDB_20120810", "application/x-amz-json-1.0"),
}
_NO_AGENT = re.compile(r"[^a-zA-Z0-9!$%&'*+.^_`|~,#-]")
"""The characters that botocore replaces in its User-Agent."""
_SIGNED = ("content-type", "host", DATE, "x-amz-target")


class AccessKeys:
    """Credentials in the form of botocore's. No text shows them."""

    __slots__ = ("access_key", "secret_key", "token")

    account_id = None

    def __init__(self, access_key: str, secret_key: str, token: str | None) -> None:
        self.access_key = access_key
        self.secret_key = secret_key
        self.token = token

    def get_frozen_credentials(self) -> AccessKeys:
        return self


class UsualSettings:
    """The settings of a client of Kinesis or DynamoDB, if all of them are known here.

    keys: the credentials of the environment; None: botocore finds the credentials. trusted: as
    `sparkinesis.stream.calls.direct.connection.trusted`.
    """

    def __init__(
        self,
        scope: SigningScope,
        url: str | None,
        *,
        keys: AccessKeys | None,
        trusted: str | bool,
        user_agent: str,
    ) -> None:
        self.keys = keys
        self.trusted = trusted
        self._scope = scope
        self._url = url
        """The configured endpoint; None for AWS's."""
        self._user_agent = user_agent

    def request(self, operation: str, request: Mapping[str, Any]) -> LearnedRequest | None:
        """Return the request of a call, but for its body; None if only botocore knows it."""
        url = self._url or self._endpoint(operation, request)
        if url is None:
            return None
        target, content_type = _TARGETS[self._scope.service]
        return repeated(
            url,
            self._scope,
            _SIGNED,
            {
                "x-amz-target": f"{target}.{operation}",
                "content-type": content_type,
                "user-agent": self._user_agent,
            },
        )

    def _endpoint(self, operation: str, request: Mapping[str, Any]) -> str | None:
        region, host = self._scope.region, self._scope.service
        for partition, regions, domain in _PARTITIONS:
            if regions.fullmatch(region):
                if "Queue" in operation:
                    owner, host = _queue_id(partition, request), f"{host}-queues"
                else:
                    owner = _account(partition, request)
                if owner is None:
                    return None
                if owner:
                    plane = "control" if operation in _OF_CONTROL else "data"
                    host = f"{owner}.{plane}-{host}"
                return f"https://{host}.{region}.{domain}/"
        return None


def _account(partition: str, request: Mapping[str, Any]) -> str | None:
    """Return the account whose endpoint takes a request; empty for none, None if in doubt."""
    arns = [str(each) for name, each in request.items() if name in _WITH_ARN and ":" in each]
    if not arns:
        return ""
    found = _ARN.fullmatch(arns[0])
    is_known = found is not None and len(arns) == 1 and found["partition"] == partition
    return found["account"] if found is not None and is_known else None


def _queue_id(partition: str, request: Mapping[str, Any]) -> str | None:
    """Return the queue whose endpoint takes a request; empty for none, None if in doubt."""
    if "QueueARN" not in request:
        return ""
    found = _QUEUE_ARN.fullmatch(request["QueueARN"])
    return found["id"] if found is not None and found["partition"] == partition else None


def usual_settings(
    service: str,
    region: str | None,
    endpoint: str | None,
    source: CredentialSource,
    environment: Mapping[str, str] = os.environ,
) -> UsualSettings | None:
    """Return the settings of a client; None if there may be others than those known here."""
    if source.profile is not None or not _is_usual(environment):
        return None
    region = region or next(filter(None, map(environment.get, REGION_VARIABLES)), None)
    if region is None and is_loopback(endpoint):
        region = LOCAL_REGION
    if region is None or not REGION.fullmatch(region) or region.startswith("fips-"):
        return None
    names = (f"AWS_ENDPOINT_URL_{service.upper()}", "AWS_ENDPOINT_URL")
    url = endpoint or next(filter(None, map(environment.get, names)), None)
    if url is not None:
        if not _PLAIN_URL.fullmatch(url) or not is_url(url):
            return None
        url = url if url.endswith("/") else f"{url}/"
    access_key, secret_key, token = map(environment.get, _KEYS)
    keys = None
    if access_key and secret_key and source.role_arn is None:
        keys = AccessKeys(access_key, secret_key, token)
    trusted = environment.get("AWS_CA_BUNDLE", environment.get("REQUESTS_CA_BUNDLE", True))
    agent = _user_agent(environment.get("AWS_EXECUTION_ENV"))
    return UsualSettings(
        SigningScope(region, service), url, keys=keys, trusted=trusted, user_agent=agent
    )


def _is_usual(environment: Mapping[str, str]) -> bool:
    for name, value in environment.items():
        if name.startswith(("AWS_", "BOTO")):
            if not value or not _KNOWN.fullmatch(name):
                return False
        elif name.lower().endswith("_proxy"):
            return False
    # Other systems have proxies in their own settings.
    return (
        sys.platform == "linux"
        and sys.implementation.name == "cpython"
        and not any(os.path.exists(os.path.expanduser(file)) for file in _FILES)  # noqa: PTH110, PTH111 - as botocore
    )


def _user_agent(execution: str | None) -> str:
    """Return the User-Agent of botocore, without the part that counts its features."""
    system = os.uname()
    parts = (
        f"Botocore/{botocore.__version__}",
        "ua/2.1",
        f"os/linux#{system.release}",
        f"md/arch#{system.machine.lower()}",
        f"lang/python#{sys.version.split()[0]}",
        "md/pyimpl#CPython",
        *((f"exec-env/{execution}",) if execution else ()),
        "cfg/retry-mode#standard",
        "sparkinesis",
    )
    return " ".join(
        f"{kind}/{_NO_AGENT.sub('-', value)}" if value else kind
        for kind, _, value in (part.partition("/") for part in parts)
    )
