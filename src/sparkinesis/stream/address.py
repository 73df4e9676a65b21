"""Which stream, and how to reach it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from sparkinesis.errors import OptionError
from sparkinesis.stream.credentials import FOUND_BY_BOTO, CredentialSource

CONSUMER_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
"""What a registered consumer may be called (API reference, ConsumerName)."""


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


def stream_address(
    stream: str,
    region: str | None = None,
    endpoint: str | None = None,
    credentials: CredentialSource = FOUND_BY_BOTO,
) -> StreamAddress:
    """The address of a stream given by its name, or by its ARN. Raises `OptionError`."""
    if not stream.startswith("arn:"):
        return StreamAddress(stream, None, region, endpoint, credentials)
    parts = stream.split(":")
    if len(parts) != 6 or parts[2] != "kinesis" or not parts[5].startswith("stream/"):
        raise OptionError(
            f"stream is {stream!r}; a stream's ARN looks like "
            "arn:aws:kinesis:<region>:<account>:stream/<name>."
        )
    name = parts[5].removeprefix("stream/")
    return StreamAddress(name, stream, region or parts[3], endpoint, credentials)


def place_of(region: str | None, endpoint: str | None) -> str:
    """Where something is on AWS, or elsewhere, in the words of an error."""
    at = f" at {endpoint}" if endpoint else ""
    return f"{region or 'the default region'}{at}"


def is_url(text: str) -> bool:
    """Whether this is the URL of an endpoint."""
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, or a port that is no number
        return False


def is_loopback(endpoint: str | None) -> bool:
    """Whether a URL is of this machine: a local Kinesis, which accepts any signature."""
    host = urlsplit(endpoint).hostname if endpoint else None
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"
