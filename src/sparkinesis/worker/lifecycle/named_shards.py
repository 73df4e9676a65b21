"""The lease of the shard that a program names by the shard's id or the lease's key. Pure."""

from __future__ import annotations

from collections.abc import Collection

from sparkinesis.errors import OptionError, listed
from sparkinesis.lease.lease import parse_lease_key


def lease_named(shard: str, known: Collection[str]) -> str:
    """Return the key of the lease that ``shard`` names, of the known ones.

    Raises `OptionError` if there is none, or if shards of several streams have the id.
    """
    if shard in known:
        return shard
    found = sorted(key for key in known if parse_lease_key(key)[1] == shard)
    if not found:
        raise OptionError(
            f"There is no shard {shard!r} among the leases of the application: "
            f"{listed(sorted(known)) or 'it has none yet'}. Give the id of a shard, or the key of "
            "its lease."
        )
    if len(found) > 1:
        raise OptionError(
            f"The shard {shard!r} is one of {len(found)} streams. Give the key of its lease: "
            f"{listed(found)}."
        )
    return found[0]
