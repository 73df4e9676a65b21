"""The address of an HTTP server, as an option gives it: ``127.0.0.1:9400``, ``:9400``."""

from __future__ import annotations

import ipaddress
import re

import msgspec

from sparkinesis.errors import OptionError

LOOPBACK = "127.0.0.1"

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]*)):([0-9]{1,5})")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/@\[\]]+))(?::[0-9]*)?")


class Address(msgspec.Struct, frozen=True):
    """A host and a port to listen on."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine reaches it."""
        return self.host == "localhost" or _is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(option: str, text: object) -> Address:
    """Return the address. Raises `OptionError`, which names the option."""
    found = _ADDRESS.fullmatch(text) if isinstance(text, str) else None
    if found is None or int(found[3]) > 65535:
        raise OptionError(
            f"{option} is {str(text)[:100]!r}; it must be an address and a port, such as "
            "'127.0.0.1:9400', ':9400' for the same, or '0.0.0.0:9400' for all networks of this "
            "machine."
        )
    return Address(found[1] or found[2] or LOOPBACK, int(found[3]))


def is_own_host(host: str | None, address: Address) -> bool:
    """Return True unless a Host header names something else than a server on loopback. Pure.

    A web page can let a name of its own resolve to this machine (DNS rebinding), and would read
    what the server answers. A server that is open to a network answers to any name.
    """
    if not address.is_loopback or host is None:
        return True
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = (found[1] or found[2]).lower().removesuffix(".")
    return name in {"localhost", address.host.lower()} or _is_loopback(name)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
