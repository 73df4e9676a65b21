"""The options of ``spark.read.format("kinesis")``."""

from __future__ import annotations

from dataclasses import dataclass

from sparkinesis.source.offsets import Offset
from sparkinesis.source.options.batch_boundary import boundary_by_stream
from sparkinesis.source.options.option_table import Options, Use
from sparkinesis.source.options.read_options import ReadOptions, read_options


@dataclass(frozen=True, slots=True)
class BatchReadOptions:
    """The checked options of a batch read. A stream not in ``start`` or ``end`` is unbounded."""

    reading: ReadOptions
    start: Offset
    end: Offset
    filter_pushdown: bool
    """Use the query's filters to read less. Off by default: Spark 4.3.0 keeps the filtered plan on
    the loaded DataFrame, and uses it for other queries on that DataFrame as well."""


def batch_read_options(options: Options) -> BatchReadOptions:
    """Check and return the options of ``read``. Raises `OptionError`, which names the option."""
    options.check_use(Use.READ)
    reading = read_options(options)
    start, end = (
        boundary_by_stream(name, options[name], reading.streams)
        for name in ("startingPosition", "endingPosition")
    )
    return BatchReadOptions(reading, start, end, options["filterPushdown"])
