"""Requests of one kind, which differ in their bodies and signatures only.

`learn` takes what is the same in each of them from a request that botocore has prepared, `repeated`
makes it of known headers, and a `Signer` signs each (signature version 4). The rules are those of
the IAM guide, "Create a signed AWS API request"; a test compares each signature with botocore's.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import msgspec
from botocore.exceptions import ClientError

from sparkinesis.stream.timing import second_of

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[^ ,]+/[0-9]{8}/(?P<region>[^/ ,]+)/(?P<service>[^/ ,]+)"
    r"/aws4_request, SignedHeaders=(?P<signed>[a-z0-9;-]+), Signature=[0-9a-f]{64}"
)


DATE = "x-amz-date"
TOKEN = "x-amz-security-token"  # noqa: S105 - the name of a header


class SigningScope(msgspec.Struct, frozen=True):
    """The part of a signature that says what it is for."""

    region: str
    service: str

    def at(self, day: str) -> str:
        return f"{day}/{self.region}/{self.service}/aws4_request"


class Canonical(msgspec.Struct, frozen=True):
    """A canonical request up to the hash of its body, cut where the date and the token belong."""

    before_date: str
    after_date: str
    """All the rest of a request without a session token."""
    before_token: str
    after_token: str
    signed: str
    """The names of the signed headers, as the Authorization header lists them."""
    signed_with_token: str


def canonical(signed: Iterable[str], values: Mapping[str, str]) -> Canonical:
    """Prepare the canonical request of POSTs to ``/``.

    signed: the names of the headers to sign, the date included. values: those that are the same in
    each request.
    """
    names = sorted({*signed} - {TOKEN})
    rest = names[names.index(DATE) + 1 :]
    lines = {name: f"{name}:{values[name]}\n" for name in names if name != DATE}
    before = "".join(lines[name] for name in names if name < DATE)
    plain, with_token = ";".join(names), ";".join(sorted([*names, TOKEN]))
    return Canonical(
        f"POST\n/\n\n{before}{DATE}:",
        f"\n{''.join(lines[name] for name in rest)}\n{plain}\n",
        f"\n{''.join(lines[name] for name in rest if name < TOKEN)}{TOKEN}:",
        f"\n{''.join(lines[name] for name in rest if name > TOKEN)}\n{with_token}\n",
        plain,
        with_token,
    )


def parse_authorization(header: str) -> tuple[SigningScope, tuple[str, ...]] | None:
    """Return scope and signed headers; None if the header is of another kind of signature."""
    found = _AUTHORIZATION.fullmatch(header)
    if found is None:
        return None
    return SigningScope(found["region"], found["service"]), tuple(found["signed"].split(";"))


_OF_EACH_CALL = frozenset(
    {
        "authorization",
        DATE,
        TOKEN,
        "content-length",
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        "x-amzn-trace-id",
    }
)
"""Headers that botocore makes anew for each call; the service needs none of the last three."""


class LearnedRequest(msgspec.Struct, frozen=True):
    """The part of a request that is the same in each call of its kind."""

    url: str
    scope: SigningScope
    canonical: Canonical
    head: bytes
    """The request line and the headers that are the same in each call."""
    signed: tuple[str, ...]
    headers: Mapping[str, str]

    def in_type(self, content_type: str) -> LearnedRequest:
        """Return the request with a body of another type."""
        headers = {**self.headers, "content-type": content_type}
        return repeated(self.url, self.scope, self.signed, headers)


def learn(request: Any) -> LearnedRequest | None:
    """Return the part of botocore's prepared request that later calls repeat.

    None for a request that cannot be repeated with another body: not a POST of JSON to ``/``, or
    not signed by signature version 4.
    """
    parts = urlsplit(request.url)
    headers = {name.lower(): as_text(value) for name, value in request.headers.items()}
    authorization = parse_authorization(headers.get("authorization", ""))
    is_json = headers.get("content-type", "").startswith("application/x-amz-json-1.")
    if (
        authorization is None
        or not is_json
        or request.method != "POST"
        or parts.path not in {"", "/"}
        or parts.query
    ):
        return None
    scope, signed = authorization
    fixed = {name: value for name, value in headers.items() if name not in _OF_EACH_CALL}
    if DATE not in signed or not set(signed) <= {*fixed, "host", DATE, TOKEN}:
        return None
    return repeated(request.url, scope, signed, fixed)


def repeated(
    url: str, scope: SigningScope, signed: Iterable[str], headers: Mapping[str, str]
) -> LearnedRequest:
    """Return the request with these headers, and with those that http.client would add.

    signed: the names of the headers to sign, the date included.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    if parts.port not in {None, {"http": 80, "https": 443}[parts.scheme]}:
        host = f"{host}:{parts.port}"
    fixed = {**headers, "host": host}
    # Without this header, any encoding would be welcome.
    sent = {"accept-encoding": "identity", **fixed}
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    return LearnedRequest(
        url,
        scope,
        canonical(
            signed,
            {name: " ".join(value.split()) for name, value in fixed.items() if name in signed},
        ),
        f"POST / HTTP/1.1\r\n{head}".encode("latin-1"),
        tuple(signed),
        headers,
    )


def as_text(value: str | bytes) -> str:
    """Return the value of a header as text; botocore has some in bytes."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


class Signer:
    """Signs requests of one scope. For any thread; the derived key is kept for the day.

    clock: epoch seconds, of the service.
    """

    def __init__(self, scope: SigningScope, clock: Callable[[], float] = time.time) -> None:
        self._scope = scope
        self._clock = clock
        self._key: tuple[tuple[str, str], _Hmac] = (("", ""), _Hmac(b""))
        self._time: tuple[int, str] = (0, "")

    def sign(self, keys: Any, request: Canonical, body: bytes) -> tuple[str, str]:
        """Return the headers X-Amz-Date and Authorization of a POST to ``/``.

        keys: ``access_key``, ``secret_key`` and ``token``, as botocore freezes credentials. A token
        is a header to be sent, too.
        """
        date = self._date()
        day = date[:8]
        token = keys.token
        digest = sha256(body).hexdigest()
        if token:
            signed = request.signed_with_token
            rest = f"{request.before_token}{token}{request.after_token}"
        else:
            signed, rest = request.signed, request.after_date
        text = f"{request.before_date}{date}{rest}{digest}"
        scope = self._scope.at(day)
        to_sign = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{sha256(text.encode()).hexdigest()}"
        signature = self._day_key(keys.secret_key, day).hexdigest(to_sign.encode())
        credential = f"Credential={keys.access_key}/{scope}"
        proof = f"SignedHeaders={signed}, Signature={signature}"
        return date, f"AWS4-HMAC-SHA256 {credential}, {proof}"

    def _date(self) -> str:
        second = int(self._clock())
        known, text = self._time
        if known != second:
            text = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
            self._time = second, text
        return text

    def _day_key(self, secret: str, day: str) -> _Hmac:
        what, key = self._key
        if what != (secret, day):
            bare = f"AWS4{secret}".encode()
            for part in (day, self._scope.region, self._scope.service, "aws4_request"):
                bare = hmac.digest(bare, part.encode(), "sha256")
            key = _Hmac(bare)
            self._key = (secret, day), key
        return key


class _Hmac:
    """HMAC-SHA256 (RFC 2104) of one key, whose two pads are hashed once and not for each message.

    That halves the CPU of a signature: hmac.digest also searches OpenSSL's functions each time.
    """

    def __init__(self, key: bytes) -> None:
        padded = key.ljust(64, b"\0")
        self._inner = sha256(bytes(byte ^ 0x36 for byte in padded))
        self._outer = sha256(bytes(byte ^ 0x5C for byte in padded))

    def hexdigest(self, message: bytes) -> str:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.hexdigest()


_SKEW_CODES = frozenset(
    {
        "RequestTimeTooSkewed",
        "RequestExpired",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "RequestInTheFuture",
        "AuthFailure",
    }
)
_LEAST_SKEW = 60.0
"""Seconds. The service accepts signatures of five minutes before and after its time."""


class Signers:
    """The signers of one client, which sign with the service's time.

    clock: epoch seconds, of this machine.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._signers: dict[SigningScope, Signer] = {}
        self.skew = 0.0
        """Seconds by which the service's clock is ahead of this machine's."""

    def of(self, scope: SigningScope) -> Signer:
        signer = self._signers.get(scope)
        if signer is None:
            signer = self._signers.setdefault(scope, Signer(scope, self._service_clock))
        return signer

    def corrects_clock(self, error: ClientError, used: float) -> bool:
        """Adopt the service's time if the request was refused for its date; return True then.

        used: the correction with which the request was signed.
        """
        if error.response.get("Error", {}).get("Code") not in _SKEW_CODES:
            return False
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        second = second_of(headers.get("date"))
        if second is None or abs(second - self._clock() - used) < _LEAST_SKEW:
            return False
        self.skew = second - self._clock()
        return True

    def _service_clock(self) -> float:
        return self._clock() + self.skew
