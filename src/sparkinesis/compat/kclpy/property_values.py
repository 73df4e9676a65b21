"""Parsers of property values: functions from text to a value, which raise ValueError.

The daemon takes a comma-separated list of credential providers; bars separate the parts of one:
``StsAssumeRoleCredentialsProvider|arn:aws:iam::123456789012:role/r|session|externalId=x``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Literal

from sparkinesis.stream.address import FOUND_BY_BOTO, REGION, STREAM_ARN, CredentialSource, is_url

_MAX_SECONDS = 10**11
"""The year 5138: a larger number is assumed to be in milliseconds."""


def name(what: str, shortest: int, longest: int) -> Callable[[str], str]:
    """Return a parser of names of letters, digits, '_', '.' and '-', as AWS allows them."""

    def read(value: str) -> str:
        if not re.fullmatch(rf"[a-zA-Z0-9_.-]{{{shortest},{longest}}}", value):
            raise ValueError(
                f"{what} has {shortest} to {longest} letters, digits, '_', '.' and '-'"
            )
        return value

    return read


def boolean(value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise ValueError("must be true or false")
    return value.lower() == "true"


def choice(*names: str) -> Callable[[str], str]:
    """Return a parser of one of these names, in whatever case."""

    def read(value: str) -> str:
        if value.upper() not in names:
            raise ValueError(f"must be {', '.join(names[:-1])} or {names[-1]}")
        return value.upper()

    return read


def integer(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,18}", value) or not low <= int(value) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(value)

    return read


LONGEST_WAIT = 3_600_000
"""Milliseconds: the longest wait that `WorkerOptions` takes."""


def millis(low: int = 0, high: int | None = LONGEST_WAIT) -> Callable[[str], float]:
    """Return a parser of whole milliseconds, which returns seconds."""

    def read(value: str) -> float:
        if not re.fullmatch(r"[0-9]{1,15}", value) or int(value) < low:
            raise ValueError(f"must be a whole number of milliseconds, at least {low}")
        if high is not None and int(value) > high:
            raise ValueError(f"must be at most {high:,} milliseconds, which is an hour")
        return int(value) / 1000

    return read


def seconds(value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}", value) or not int(value):
        raise ValueError("must be a whole number of seconds, at least 1")
    return float(value)


def position(value: str) -> Literal["latest", "trim_horizon"]:
    """``latest`` or ``trim_horizon``."""
    if value.upper() == "AT_TIMESTAMP":
        raise ValueError(
            "for an instant, remove this key and set initialPositionInStreamExtended to seconds "
            "since 1970"
        )
    named = choice("LATEST", "TRIM_HORIZON")(value)
    return "latest" if named == "LATEST" else "trim_horizon"


def instant(value: str) -> datetime:
    """Parse seconds since 1970 to an aware datetime."""
    if not re.fullmatch(r"[0-9]{1,15}", value):
        raise ValueError("must be a whole number of seconds since 1970, such as 1636609142")
    if int(value) >= _MAX_SECONDS:
        raise ValueError(
            f"must be in seconds since 1970, but looks like milliseconds: {value[:-3]}?"
        )
    return datetime.fromtimestamp(int(value), tz=timezone.utc)


def stream_arn(value: str) -> tuple[str, str, str]:
    """Parse a stream ARN to the ARN, its region and its stream's name."""
    found = STREAM_ARN.fullmatch(value)
    if not found:
        raise ValueError(
            "must be the ARN of a stream, such as "
            "arn:aws:kinesis:eu-west-1:123456789012:stream/flights"
        )
    return value, found["region"], found["name"]


def region(value: str) -> str:
    if not REGION.fullmatch(value):
        raise ValueError("must be an AWS region, such as eu-west-1")
    return value


def endpoint(value: str) -> str:
    if not is_url(value):
        raise ValueError("must be a URL, such as http://127.0.0.1:4566")
    return value


_ROLE_ARN = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[!-~]{1,574}")
# The names in both versions of the SDK, and the KCL's own, which also take an endpoint.
_ASSUMES_ROLE = re.compile(r"(Kcl)?S[tT][sS]AssumeRole(Session)?CredentialsProvider")


def credential_provider(value: str) -> CredentialSource:
    """Return the credential source for the first provider of the list. Raises ValueError.

    A role and a profile are translated. Any other provider, such as DefaultCredentialsProvider,
    becomes boto3's own chain: environment, files, container, instance. Errors never show the value,
    because it may contain an external id.
    """
    kind, *arguments = [part.strip() for part in value.split(",", maxsplit=1)[0].split("|")]
    kind = kind.rsplit(".", maxsplit=1)[-1]
    if _ASSUMES_ROLE.fullmatch(kind):
        return _role(arguments)
    if kind == "ProfileCredentialsProvider" and arguments:
        return CredentialSource(profile=arguments[0].removeprefix("profileName="))
    return FOUND_BY_BOTO


def _role(arguments: Sequence[str]) -> CredentialSource:
    positional = [argument for argument in arguments if "=" not in argument.split("/")[0]]
    named = dict(
        argument.split("=", maxsplit=1) for argument in arguments if argument not in positional
    )
    if len(positional) != 2 or not _ROLE_ARN.fullmatch(positional[0]):
        raise ValueError(
            "a role provider takes a role ARN and a session name: "
            "StsAssumeRoleCredentialsProvider|arn:aws:iam::123456789012:role/reader|name"
        )
    arn, session = positional
    return CredentialSource(
        role_arn=arn,
        session_name=session,
        external_id=named.get("externalId"),
        sts_endpoint=_sts_endpoint(named),
    )


def _sts_endpoint(named: dict[str, str]) -> str | None:
    if "endpoint" in named:  # URL^region, the region being what the SDK for Java signs for
        url = named["endpoint"].split("^")[0]
        if "://" not in url:
            url = f"https://{url}"
        if not is_url(url):
            raise ValueError("endpoint= takes a URL and a region, as https://HOST^eu-west-1")
        return url
    if "endpointRegion" in named:
        region = named["endpointRegion"]
        if not REGION.fullmatch(region):
            raise ValueError("endpointRegion= takes an AWS region, such as eu-west-1")
        domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        return f"https://sts.{region}.{domain}"
    return None
