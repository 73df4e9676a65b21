"""Which stream, and how to reach it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from sparkinesis.stream.credentials import FOUND_BY_BOTO, CredentialSource


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """A stream's name and place. Travels to executors, so it never holds credentials."""

    name: str
    arn: str | None = None
    region: str | None = None
    endpoint: str | None = None
    credentials: CredentialSource = FOUND_BY_BOTO

    def __str__(self) -> str:
        return f"stream {self.name!r} in {place_of(self.region, self.endpoint)}"


def place_of(region: str | None, endpoint: str | None) -> str:
    """Where something is on AWS, or elsewhere, in the words of an error."""
    at = f" at {endpoint}" if endpoint else ""
    return f"{region or 'the default region'}{at}"


def is_loopback(endpoint: str | None) -> bool:
    """Whether a URL is of this machine: a local Kinesis, which accepts any signature."""
    host = urlsplit(endpoint).hostname if endpoint else None
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"
