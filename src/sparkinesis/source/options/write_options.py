"""The options of ``write`` and ``writeStream``, checked."""

from __future__ import annotations

from dataclasses import dataclass

from sparkinesis.public import __version__
from sparkinesis.source.options.option_checks import check_options
from sparkinesis.source.options.option_table import Options, Use
from sparkinesis.stream.address import StreamAddress

AGGREGATE_KEY_SIZE = 1
"""Bytes of `sparkinesis.stream.put_entry.AGGREGATE_KEY`."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The checked options of writing. Pickled to executors, so they never hold credentials."""

    address: StreamAddress
    ordered: bool
    aggregation: bool
    aggregation_max_size: int
    """The largest size of an aggregate, in bytes."""
    max_record_size: int
    """The largest size of a record in bytes: its data and its partition key."""
    version: str = __version__
    """The driver's version of sparkinesis."""

    @property
    def aggregate_size(self) -> int | None:
        """The largest size of an aggregate's data in bytes; None without aggregation.

        With its partition key the aggregate still fits ``max_record_size``.
        """
        if not self.aggregation:
            return None
        return min(self.aggregation_max_size, self.max_record_size - AGGREGATE_KEY_SIZE)


def write_options(options: Options) -> WriteOptions:
    """Check and return the options of ``write`` and ``writeStream``. Raises `OptionError`."""
    check_options(options, Use.WRITE)
    return WriteOptions(
        address=options.addresses()[0],
        ordered=options["ordered"],
        aggregation=options["aggregation"],
        aggregation_max_size=options["aggregationMaxSize"],
        max_record_size=options["maxRecordSize"],
    )
