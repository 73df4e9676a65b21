"""The address of a lease table: the name and the region, and how to reach DynamoDB."""

from __future__ import annotations

from dataclasses import dataclass

from sparkinesis.stream.address import FOUND_BY_BOTO, CredentialSource, place_of


@dataclass(frozen=True, slots=True)
class TableAddress:
    """The lease table of the application ``name``, which is the table's name as well.

    Its text names the table and the region or endpoint, for errors and log lines.
    """

    name: str
    region: str | None = None
    endpoint: str | None = None
    credentials: CredentialSource = FOUND_BY_BOTO
    is_ours: bool = True
    """False for the table of another application, which is only read."""

    def __str__(self) -> str:
        place = place_of(self.region, self.endpoint, self.credentials.profile)
        return f"lease table {self.name!r} in {place}"
