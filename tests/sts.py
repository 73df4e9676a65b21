"""A port before a local server's STS that keeps what STS handed out, for tests to look for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qsl

import urllib3

from tests.answering import answering

DENIED = (
    "<ErrorResponse><Error><Code>AccessDenied</Code><Message>User: arn:aws:iam::123456789012:user/u"
    " is not authorized to perform: sts:AssumeRole</Message></Error></ErrorResponse>"
)


@dataclass(frozen=True)
class Assumed:
    """One AssumeRole call and what it gave."""

    request: dict[str, str]
    signed_by: str
    access_key: str
    secret_key: str
    token: str


@dataclass
class RecordedSts:
    """The credentials handed out so far, and those to hand out from now on, by session name."""

    endpoint_url: str = ""
    assumed: list[Assumed] = field(default_factory=list)
    lifetimes: dict[str, float] = field(default_factory=dict)
    """Seconds until credentials expire; an hour by default."""
    allowed: dict[str, int] = field(default_factory=dict)
    """The number of times that the role may be assumed, by role; unlimited by default."""

    def select(self, session: str) -> list[Assumed]:
        return [a for a in list(self.assumed) if a.request["RoleSessionName"] == session]

    def access_keys(self, session: str) -> list[str]:
        return [assumed.access_key for assumed in self.select(session)]

    @property
    def secrets(self) -> set[str]:
        return {s for a in self.assumed for s in (a.access_key, a.secret_key, a.token)}


def _text(name: str, body: str) -> str:
    found = re.search(f"<{name}>(.+?)</{name}>", body, re.DOTALL)
    assert found, body
    return found[1].strip()


@contextmanager
def recorded_sts(server_url: str) -> Iterator[RecordedSts]:
    """Passes calls on to the STS of ``server_url`` and records them."""
    recorded = RecordedSts()
    pool = urllib3.PoolManager()

    def answer(headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        request = dict(parse_qsl(body.decode()))
        session = request["RoleSessionName"]
        if len(recorded.select(session)) >= recorded.allowed.get(session, 1_000_000):
            return 403, DENIED.encode()
        passed = {name: value for name, value in headers.items() if name != "host"}
        response = pool.request("POST", server_url, body=body, headers=passed)
        text = response.data.decode()
        if session in recorded.lifetimes:
            expiry = datetime.now(timezone.utc) + timedelta(seconds=recorded.lifetimes[session])
            text = text.replace(_text("Expiration", text), expiry.isoformat())
        signed_by = re.search("Credential=([^/]+)/", headers["authorization"])
        assert signed_by
        names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
        recorded.assumed.append(
            Assumed(request, signed_by[1], *(_text(name, text) for name in names))
        )
        return response.status, text.encode()

    with pool, answering(answer, "text/xml") as recorded.endpoint_url:
        yield recorded
