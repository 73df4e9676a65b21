"""The identifier of a stream where one name is not enough: account, name and creation time."""

from __future__ import annotations

import re
from dataclasses import dataclass

_IDENTIFIER = re.compile(r"([0-9]+):([^:]+):([0-9]{1,18})")


@dataclass(frozen=True, slots=True, order=True)
class StreamIdentifier:
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
