"""The properties file: parsers of it, by the rules of ``java.util.Properties.load``, and of values.

The configuration of the MultiLangDaemon (KCL 3.5, ``MultiLangDaemonConfiguration``) has
``streamName`` and ``streamArn``, and nothing of the Java KCL's ``StreamTracker``:
https://github.com/awslabs/amazon-kinesis-client/issues/913. It takes a comma-separated list of
credential providers; bars separate the parts of one:
``StsAssumeRoleCredentialsProvider|arn:aws:iam::123456789012:role/r|session|externalId=x``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal

from sparkinesis.errors import OptionError
from sparkinesis.stream.address import FOUND_BY_BOTO, REGION, STREAM_ARN, CredentialSource, is_url

# Java's white space is only these three; \v and no-break spaces belong to keys and values.
_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX = re.compile(r"[0-9a-fA-F]{4}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One key and its value. ``line``: the line of the key, from 1."""

    key: str
    value: str
    line: int


def decode(content: bytes) -> str:
    r"""Decode a file: UTF-8, or else ISO 8859-1, the encoding that Java reads."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("iso-8859-1")


def parse(text: str, name: str) -> Sequence[Entry]:
    """Return all entries in order; if a key occurs twice, the last entry counts.

    ``name``: the file's name, for errors. Raises `OptionError` for an escape that Java refuses.
    """
    return [_entry(line, number, name) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    r"""Yield lines without comments, joined after an odd number of final backslashes."""
    joined, begin = "", 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANK)
        if not begin and (not line or line[0] in "#!"):
            continue
        begin = begin or number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            joined += line[:-1]
            continue
        yield begin, joined + line
        joined, begin = "", 0
    if joined:  # a backslash at the end of the file
        yield begin, joined


def _entry(line: str, number: int, name: str) -> Entry:
    end = _end_of_key(line)
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(_BLANK)
    key = _unescape(line[:end], number, name)
    return Entry(key, _unescape(rest, number, name), number)


def _end_of_key(line: str) -> int:
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        at += 2 if line[at] == "\\" else 1
    return min(at, len(line))


def _unescape(text: str, number: int, name: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            parts.append(text[at])
            at += 1
            continue
        escape = text[at + 1 : at + 2]
        if escape == "u":
            digits = text[at + 2 : at + 6]
            if not _HEX.fullmatch(digits):
                raise OptionError(
                    f"{name}, line {number}: \\u{digits} is not an escape; \\u takes four "
                    "hexadecimal digits. Write a literal backslash as two."
                )
            parts.append(chr(int(digits, 16)))
            at += 6
        else:
            parts.append(_ESCAPES.get(escape, escape))
            at += 2
    # Two escapes may be a surrogate pair.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_ONE = ("streamName", "streamArn")
_SEVERAL = re.compile(
    r"streams|stream_?(name|arn|identifier|id|config)_?(s|list)|.*(multi_?stream|stream_?tracker).*"
    r"|former_?streams.*",
    re.IGNORECASE,
)
"""Keys that a user who knows the Java KCL's names might write."""
_SEPARATOR = re.compile(r"[,;\s|]")

_INSTEAD = (
    "A properties file names one stream, as with the MultiLangDaemon, which has no StreamTracker. "
    "To read several streams in one application, derive your processor from "
    "sparkinesis.RecordProcessor and run Application(name, streams=[...], processor=...). Or start "
    "a program for each stream, with an applicationName of its own."
)


def require_one_stream(entries: Iterable[Entry], file: str) -> None:
    """Raise `OptionError`, with file and line, if the properties seem to name several streams.

    Of several lines with one key the last counts, as in Java: users copy a sample and add a line.
    """
    for entry in entries:
        key, value = entry.key.strip(), entry.value.strip()
        where = f"{file}, line {entry.line}: {key}"
        if key in _ONE and _SEPARATOR.search(value):
            raise OptionError(f"{where} is {value[:200]!r}, which is not one stream. {_INSTEAD}")
        if _SEVERAL.fullmatch(key):
            raise OptionError(f"{where} is not a key of the MultiLangDaemon. {_INSTEAD}")


# Parsers of values: functions from text to a value, which raise ValueError

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
