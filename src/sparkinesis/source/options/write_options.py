"""The options of ``write`` and ``writeStream``, checked."""

from __future__ import annotations

from dataclasses import dataclass

from sparkinesis.errors import OptionError
from sparkinesis.source.options.option_table import Options, Use
from sparkinesis.stream.address import StreamAddress

AGGREGATE_KEY_SIZE = 1
"""Bytes of `sparkinesis.stream.put_entry.AGGREGATE_KEY`."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a stream is written, checked. Pickled to executors: never any credentials."""

    address: StreamAddress
    ordered: bool
    aggregation: bool
    aggregation_max_size: int
    """Bytes of an aggregate at most."""
    max_record_size: int
    """Bytes of a record at most: its data and its partition key."""

    @property
    def aggregate_size(self) -> int | None:
        """Bytes of an aggregate at most, so that with its key it is no larger than a record may be.

        None without aggregation.
        """
        if not self.aggregation:
            return None
        return min(self.aggregation_max_size, self.max_record_size - AGGREGATE_KEY_SIZE)


def write_options(options: Options) -> WriteOptions:
    """The options of ``write`` and ``writeStream``. Raises `OptionError`, which names it."""
    options.check_use(Use.WRITE)
    addresses = options.addresses()
    if len(addresses) > 1:
        given = options.given.get("streamName") or options.given["streamARN"]
        names = ", ".join(address.name for address in addresses)
        raise OptionError(
            f"The option {given} names {len(addresses)} streams to write to ({names}); it takes "
            "exactly one. Write once for each stream."
        )
    if "aggregationMaxSize" in options.given and not options["aggregation"]:
        raise OptionError("The option aggregationMaxSize needs the option aggregation=true.")
    return WriteOptions(
        address=addresses[0],
        ordered=options["ordered"],
        aggregation=options["aggregation"],
        aggregation_max_size=options["aggregationMaxSize"],
        max_record_size=options["maxRecordSize"],
    )
