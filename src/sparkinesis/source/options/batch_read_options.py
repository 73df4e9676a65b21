"""The options of ``spark.read.format("kinesis")``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sparkinesis.source.offsets import Offset
from sparkinesis.source.options.batch_boundary import boundary_by_stream
from sparkinesis.source.options.option_checks import STREAM_OPTIONS, check_options
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
    bounds: dict[str, Offset] = {}

    def bound(name: str) -> None:
        names = [address.name for address in options.addresses()]
        bounds[name] = boundary_by_stream(name, options[name], names)

    start, end = "startingPosition", "endingPosition"
    checks = [((name, *STREAM_OPTIONS), partial(bound, name)) for name in (start, end)]
    check_options(options, Use.READ, more=checks)
    return BatchReadOptions(
        read_options(options), bounds[start], bounds[end], options["filterPushdown"]
    )
