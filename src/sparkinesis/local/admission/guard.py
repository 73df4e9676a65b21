"""The requests that the server refuses: those that a web page may have sent.

A browser sends the requests of every page that it shows, also to servers on this machine. The
server checks no credentials, so it refuses what comes from a page of another site:

- Browsers say where a request comes from, in `Origin` and `Sec-Fetch-Site` (Fetch Metadata). The
  AWS SDKs send neither.
- A page can let its own name resolve to this machine (DNS rebinding), and is then of the same site.
  So the server refuses requests for names (`Host`) that are not its own. An address is no name.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Iterable

from sparkinesis.errors import LocalServerError

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/@\[\]]+))(?::\d*)?")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_LONGEST_NAME = 253  # RFC 1035, section 2.3.4, less the first and the last length
_OWN_SITE = {b"same-origin", b"none"}  # "none": typed into the address bar


class Guard:
    """The decision whether a request is refused.

    host_names: the names of this server, besides `localhost`, all names under it, and addresses.
    Raises: LocalServerError for a name that is none.
    """

    def __init__(self, host_names: Iterable[str] = ()) -> None:
        names = [host_names] if isinstance(host_names, str) else list(host_names)
        self._names = frozenset(_checked(name) for name in names)

    def refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Return why a request with these headers (names in lower case) is refused, or None."""
        hosts: list[bytes] = []
        origins: list[bytes] = []
        sites: list[bytes] = []
        found = {b"host": hosts, b"origin": origins, b"sec-fetch-site": sites}
        for name, value in headers:
            if name in found:
                found[name].append(value.strip())
        if len(hosts) != 1:
            return f"a request has exactly one Host header, and this one has {len(hosts)}"
        if not self._is_own(hosts[0].decode("latin-1")):
            return _unknown_host(hosts[0].decode("latin-1"))
        own = b"http://" + hosts[0].lower()
        if any(origin.lower() != own for origin in origins) or not _OWN_SITE.issuperset(sites):
            return (
                "the request comes from a web page of another site, and the local server answers "
                "programs only"
            )
        return None

    def _is_own(self, host: str) -> bool:
        parts = _HOST.fullmatch(host)
        if parts is None:
            return False
        if parts[1] is not None:
            return _is_address(parts[1])
        name = parts[2].lower().removesuffix(".")
        return (
            name == "localhost"
            or name.endswith(".localhost")
            or name in self._names
            or _is_address(name)
        )


def _checked(name: str) -> str:
    bare = name.lower().removesuffix(".")
    if len(bare) > _LONGEST_NAME or not _NAME.fullmatch(bare):
        raise LocalServerError(
            f"{name!r} is no host name: give the name alone, without a scheme and a port, as in "
            "kinesis or kinesis.example.com"
        )
    return bare


@functools.lru_cache(256)
def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _unknown_host(host: str) -> str:
    shown = repr(host[:100])
    return (
        f"the request is for the host {shown}, which is no name of the local server: a web page "
        "could have sent the request under a name of its own (DNS rebinding). If the name is "
        "right, start the server with --host-name and that name, or LocalServer with host_names"
    )
