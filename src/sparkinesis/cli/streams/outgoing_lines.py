"""Makes the records of lines, and refuses a line by its number. Pure, but for random keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sparkinesis.cli.streams.record_objects import Keys, parse_object, parse_record
from sparkinesis.errors import OptionError
from sparkinesis.stream.put_entry import random_key, why_refused

Parse: TypeAlias = Callable[[bytes], tuple[Keys, bytes]]
"""Returns the keys and the data of a line; raises `OptionError` that continues a sentence."""


class BadLineError(OptionError):
    """A line of the input cannot be put."""


def with_key(key: str | None) -> Parse:
    """Return a function that gives each line this partition key; None: a random one."""
    return lambda line: (Keys(key), line)


def with_key_of(field: str) -> Parse:
    """Return a function that takes the partition key from a field of a line of JSON."""

    def parse(line: bytes) -> tuple[Keys, bytes]:
        value = parse_object(line).get(field)
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise OptionError(f'it has no text or whole number "{field}"')
        return Keys(str(value)), line

    return parse


with_all_of = parse_record
"""Takes keys and data from an object that `sparkinesis tail --json` prints."""


@dataclass
class OutgoingLines:
    """Makes records of the lines of one input, and counts the lines."""

    parse: Parse
    most_bytes: int
    """The most bytes of data and partition key together."""
    number: int = 0
    """The number of the last line, from 1."""

    @property
    def longest_line(self) -> int:
        """The bytes of a line beyond which its record is too large, in whatever form it is."""
        return 2 * self.most_bytes + 10_000

    def records(
        self, lines: Sequence[bytes]
    ) -> tuple[list[tuple[str, str | None, bytes]], BadLineError | None]:
        """Return the records of the next lines: of those before the first that cannot be put."""
        made = []
        for line in lines:
            self.number += 1
            try:
                made.append(self._record(line))
            except OptionError as error:
                return made, BadLineError(
                    f"Line {self.number} cannot be put: {error}. All lines before it are put, and "
                    "none after it."
                )
        return made, None

    def _record(self, line: bytes) -> tuple[str, str | None, bytes]:
        if len(line) > self.longest_line:
            raise OptionError(f"it has more than {self.most_bytes:,} bytes, the most of a record")
        keys, data = self.parse(line)
        key = keys.partition_key if keys.partition_key is not None else random_key()
        if why := why_refused(key, keys.explicit_hash_key):
            raise OptionError(why)
        size = len(data) + len(key.encode())
        if size > self.most_bytes:
            raise OptionError(
                f"data and partition key have {size:,} bytes, and a record of the stream has "
                f"{self.most_bytes:,} at most"
            )
        return key, keys.explicit_hash_key, data
