"""The address and the identifier of a stream, with the source of the credentials for its calls.

Checks what users write in an address, and keeps what is secret out of texts.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

import msgspec

from sparkinesis.errors import OptionError
from sparkinesis.public import public

CONSUMER_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
"""The names that a registered consumer may have (API reference, ConsumerName)."""
STREAM_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
STREAM_ARN = re.compile(
    r"arn:aws[^:]*:kinesis:(?P<region>[a-z0-9-]+):[0-9]{12}:stream/(?P<name>[a-zA-Z0-9_.-]{1,128})"
)
TABLE_NAME = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]+")
_IDENTIFIER = re.compile(r"([0-9]+):([^:]+):([0-9]{1,18})")
_MARK = re.compile(r"([^:]*):([^:]*):([^:]+):([0-9]{1,14})")
_LABEL = "(?!-)[a-zA-Z0-9-]{1,63}(?<!-)"
_HOST = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}\.?")
"""The same rule as in botocore."""
_URL = re.compile(
    r"([a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^\s\"'<>/]*@)?([^\s\"'<>?#]*)(?:[?#][^\s\"'<>]*)?"
)
_NO_URL = re.compile(r"[\s\"'<>]")
"""Characters that end a URL within a text."""


DEFAULT_SESSION_NAME = "sparkinesis"


@public
@dataclass(frozen=True, slots=True)
class CredentialSource:
    """The settings by which each process, on driver and executors, finds its own credentials.

    It is sent to the executors with the stream's address, so it holds no secret. AWS does not treat
    the external id as a secret either, but no text shows it: it belongs to the role's owner.
    """

    profile: str | None = None
    """A profile in this process's ~/.aws; None for boto3's default search."""
    role_arn: str | None = None
    """A role to assume with these credentials."""
    external_id: str | None = field(default=None, repr=False)
    session_name: str = DEFAULT_SESSION_NAME
    """The session name that CloudTrail shows for the assumed role."""
    sts_endpoint: str | None = field(default=None, repr=False)
    """The URL of another STS, such as a VPC endpoint."""


FOUND_BY_BOTO = CredentialSource()


class StreamAddress(msgspec.Struct, frozen=True):
    """The name and location of a stream. It is sent to executors, so it never holds credentials."""

    name: str
    arn: str | None = None
    region: str | None = None
    endpoint: str | None = None
    credentials: CredentialSource = FOUND_BY_BOTO
    is_querys: bool = False
    """True for a DataFrame's: errors then name its options, and those of an application else."""

    def __repr__(self) -> str:
        return repr_without_secrets(self)

    @property
    def account(self) -> str | None:
        """The account in the ARN; None without an ARN: then the credentials belong to it."""
        return None if self.arn is None else self.arn.split(":")[4]

    def __str__(self) -> str:
        place = place_of(self.region, self.endpoint, self.credentials.profile)
        account = "" if self.account is None else f" of account {self.account}"
        return f"stream {self.name!r}{account} in {place}"


class StreamIdentifier(msgspec.Struct, frozen=True, order=True):
    """The stream of a lease in the table of an application that reads several streams.

    The text is the KCL's: ``<account>:<stream>:<creation epoch>``. The region is not part of it.
    """

    account: str
    name: str
    creation_epoch: int
    """Seconds; distinguishes a stream from an earlier one of the same name."""

    @classmethod
    def parse(cls, text: str) -> StreamIdentifier:
        """Read ``<account>:<stream>:<creation epoch>``. Raises ValueError."""
        found = _IDENTIFIER.fullmatch(text)
        if found is None or int(found[3]) == 0:
            raise ValueError(f"{text!r} is not <account>:<stream>:<creation epoch>")
        return cls(found[1], found[2], int(found[3]))

    @classmethod
    def of(cls, arn: str, created_ms: int) -> StreamIdentifier:
        """Return the identifier of the stream with this ARN and creation time (epoch ms)."""
        account, _, name = arn.split(":", 4)[4].partition(":stream/")
        return cls(account, name, created_ms // 1000)

    @property
    def file_label(self) -> str:
        """The text for file names: ``<stream>@<account>.<creation epoch>``.

        No stream's name has an ``@``, so the text is never the name of another stream. A colon, as
        in the identifier, is not permitted in the paths of HDFS.
        """
        return f"{self.name}@{self.account}.{self.creation_epoch}"

    def __str__(self) -> str:
        return f"{self.account}:{self.name}:{self.creation_epoch}"


class StreamMark(msgspec.Struct, frozen=True):
    """The stream of a row in the lease table of an application that reads one stream.

    The text, which is not the KCL's, is ``<region>:<account>:<stream>:<creation time>``.
    """

    region: str
    account: str
    name: str
    created_ms: int
    """Epoch ms; 0 if the service does not return it."""

    @classmethod
    def parse(cls, text: str) -> StreamMark:
        """Read the text of a mark. Raises ValueError."""
        found = _MARK.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not <region>:<account>:<stream>:<creation time in ms>")
        return cls(found[1], found[2], found[3], int(found[4]))

    @classmethod
    def of(cls, arn: str, created_ms: int) -> StreamMark:
        """Return the mark of the stream with this ARN and creation time (epoch ms).

        A server other than Kinesis may give its streams shorter ARNs.
        """
        region, account, resource = (5 * [""] + arn.split(":", 5))[-3:]
        return cls(region, account, resource.rpartition("/")[2], created_ms)

    @property
    def identifier(self) -> StreamIdentifier:
        """The stream as a row in the table of several streams names it."""
        return StreamIdentifier(self.account, self.name, self.created_ms // 1000)

    def has_name_of(self, other: StreamMark) -> bool:
        """Return True if both streams have one ARN: they are one stream, or one after the other."""
        return (self.region, self.account, self.name) == (other.region, other.account, other.name)

    def is_stream(self, other: StreamMark) -> bool:
        """Return True if both are one stream.

        A creation time may be known to the second only: the protocol of the call decides. It comes
        as a fraction of seconds, so two readers of it may differ by a millisecond.
        """
        if not self.has_name_of(other):
            return False
        one, two = self.created_ms, other.created_ms
        if one % 1000 == 0 or two % 1000 == 0:
            return 0 in {one, two} or abs(one - two) < 1000
        return abs(one - two) <= 1

    def is_before(self, other: StreamMark) -> bool:
        """Return True if the other stream has the name now, and this one had it before."""
        is_other = self.has_name_of(other) and not self.is_stream(other)
        return is_other and self.created_ms < other.created_ms

    def __str__(self) -> str:
        return f"{self.region}:{self.account}:{self.name}:{self.created_ms}"


def stream_address(
    stream: str,
    region: str | None = None,
    endpoint: str | None = None,
    credentials: CredentialSource = FOUND_BY_BOTO,
) -> StreamAddress:
    """Return the address of a stream from its name or ARN. Raises `OptionError`.

    region: as a user gives it; None: that of the ARN, or of this process's environment. A region
    that contradicts the ARN is refused.
    """
    check_place(region, endpoint)
    if credentials.sts_endpoint is not None:
        check_endpoint("sts_endpoint", credentials.sts_endpoint)
    if not stream.startswith("arn:"):
        if not STREAM_NAME.fullmatch(stream):
            raise OptionError(
                f"stream is {shown(stream)}; a stream's name has 1 to 128 letters, digits, '_', "
                "'.' and '-'."
            )
        return StreamAddress(stream, None, region, endpoint, credentials)
    found = STREAM_ARN.fullmatch(stream)
    if found is None:
        of_queue = " A QueueApplication consumes a queue." if ":queue/" in stream else ""
        raise OptionError(
            f"stream is {shown(stream)}; a stream's ARN looks like "
            f"arn:aws:kinesis:<region>:<account>:stream/<name>.{of_queue}"
        )
    if region is not None and region != found["region"]:
        raise OptionError(
            f"region is {region!r}, but the stream's ARN names {found['region']!r}: {stream}. "
            "Leave region out, or give the ARN of the stream that is meant."
        )
    return StreamAddress(found["name"], stream, found["region"], endpoint, credentials)


def address_of(
    stream: StreamIdentifier,
    region: str | None = None,
    endpoint: str | None = None,
    credentials: CredentialSource = FOUND_BY_BOTO,
) -> StreamAddress:
    """Return the address of a stream that a lease names: an ARN, as another account may own it.

    region: the region, which a lease does not name; None: that of this process's environment.
    Makes no call. Raises `OptionError` if there is no region.
    """
    from sparkinesis.stream.calls.default_region import default_region, partition_of  # noqa: PLC0415 - slow to import

    check_place(region, endpoint)
    found, source = region, "given"
    if found is None:
        found, source = default_region(credentials.profile, is_local=is_loopback(endpoint))
    if found is None:
        raise OptionError(
            f"The region of the stream {stream} is not known ({source}). Give the region, which "
            "leases do not name."
        )
    arn = f"arn:{partition_of(found)}:kinesis:{found}:{stream.account}:stream/{stream.name}"
    return StreamAddress(stream.name, arn, found, endpoint, credentials)


def check_place(region: str | None, endpoint: str | None) -> None:
    """Raise `OptionError` for an invalid region or endpoint."""
    if region is not None and not REGION.fullmatch(region):
        raise OptionError(f"region is {shown(region)}; a region looks like eu-west-1.")
    if endpoint is not None:
        check_endpoint("endpoint", endpoint)


def check_table_name(option: str, name: str) -> None:
    """Raise `OptionError` for an invalid name of a DynamoDB table, such as the lease table."""
    if not isinstance(name, str) or not TABLE_NAME.fullmatch(name):
        raise OptionError(
            f"{option} is {shown(str(name))}; a lease table's name, which is the application's, "
            "has 3 to 255 letters, digits, '_', '.' and '-'."
        )


def check_endpoint(option: str, endpoint: str) -> None:
    """Raise `OptionError` for an invalid URL, or one that holds credentials."""
    if "@" in endpoint:  # first, because other errors show the value
        raise OptionError(f"{option} may not hold credentials: they would be logged.")
    if not is_url(endpoint):
        without_query = re.split("[?#]", endpoint, maxsplit=1)[0]
        raise OptionError(
            f"{option} is {shown(without_query)}; it takes a URL, such as http://127.0.0.1:4566."
        )


def shown(text: str) -> str:
    """Quote a user's text for an error, truncated to 200 characters."""
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}..."


def place_of(region: str | None, endpoint: str | None, profile: str | None = None) -> str:
    """Describe a region and endpoint for an error.

    A region that is not given is the one that botocore finds in this process; the text says where.
    """
    at = f" at {without_secrets(endpoint)}" if endpoint else ""
    if region is not None:
        return f"{region}{at}"
    from sparkinesis.stream.calls.default_region import default_region  # noqa: PLC0415 - slow to import

    found, source = default_region(profile, is_local=is_loopback(endpoint))
    return f"{found} ({source}){at}" if found else f"an unknown region ({source}){at}"


def without_secrets(text: str) -> str:
    """Return a text without the parts of its URLs that may be secret: user, password and query."""
    return _URL.sub(r"\1\2", text)


def repr_without_secrets(value: Any) -> str:
    """Return the text of a struct or a dataclass, without the secret parts of its URLs."""
    if isinstance(value, msgspec.Struct):
        names = list(value.__struct_fields__)
    else:
        names = [one.name for one in fields(value) if one.repr]
    inside = ", ".join(f"{name}={getattr(value, name)!r}" for name in names)
    return without_secrets(f"{type(value).__qualname__}({inside})")


def is_url(text: str) -> bool:
    """Return True if the text is the URL of an endpoint."""
    try:
        if _NO_URL.search(text):
            return False
        parts = urlsplit(text)
        host = parts.hostname or ""
        is_host = ":" in host or (bool(_HOST.fullmatch(host)) and len(host) < 256)
        return parts.scheme in {"http", "https"} and is_host and parts.port != 0
    except ValueError:  # an unclosed bracket, or a port that is not a number
        return False


def is_loopback(endpoint: str | None) -> bool:
    """Return True if the endpoint is on this machine: a local Kinesis accepts any signature."""
    host = urlsplit(endpoint).hostname if endpoint else None
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"
