"""Functions of columns: what producers put around a payload is taken off.

- `glue_record`: the parts of a record that has the header of the AWS Glue Schema Registry
- `gunzip`: what gzip has compressed

They work on any column of bytes, such as ``data`` of ``format("kinesis")``, in batch and streaming
queries, in classic sessions and those of Spark Connect. Executors need sparkinesis, as they do for
``format("kinesis")``. ``docs/payloads.md`` has whole programs.

Spark reads a header by its own expressions. It has none that decompresses, so that an Arrow UDF
does: only rows that are compressed reach its function as bytes, the others as null.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkinesis.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["glue_record", "gunzip"]

MOST_BYTES = 256 * 1024 * 1024
"""A payload that would become larger is damaged or hostile: Kinesis takes records of 10 MiB."""

MOST_IN_BATCH = 2**31 - 1
"""Bytes of all values in an Arrow array of the type binary."""

_GLUE_VERSION = b"\x03"
_UNCOMPRESSED, _ZLIB = b"\x00", b"\x05"
_GLUE_HEADER_BYTES = 18
_LENGTHS_IN_UUID = (8, 4, 4, 4, 12)
_TO_THE_END = 2**31 - 1

_ZLIB_FORMAT, _GZIP_FORMAT = zlib.MAX_WBITS, 16 + zlib.MAX_WBITS


def glue_record(data: Column | str) -> Column:
    """Return the parts of a record that a serializer of the AWS Glue Schema Registry wrote.

    The result is ``STRUCT<schemaId: STRING, payload: BINARY>``:

    - ``schemaId``: the id of the schema's version, as ``get_schema_version`` of Glue takes it
    - ``payload``: what follows the header, decompressed. It is null if it cannot be decompressed,
      or would be larger than 256 MiB

    The struct is null for a record without this header. A query that uses only ``schemaId`` or
    filters by it decompresses nothing for that.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - only a Spark program has pyspark

    data = _bytes_of(data)
    compression, body = sf.substring(data, 2, 1), sf.substring(data, 19, _TO_THE_END)
    is_zlib = compression == sf.lit(bytearray(_ZLIB))
    has_header = (
        (sf.length(data) >= _GLUE_HEADER_BYTES)
        & (sf.substring(data, 1, 1) == sf.lit(bytearray(_GLUE_VERSION)))
        & (is_zlib | (compression == sf.lit(bytearray(_UNCOMPRESSED))))
    )
    inflated = _decompressed(sf.when(has_header & is_zlib, body), inflate)
    parts = sf.struct(
        _uuid(sf.substring(data, 3, 16)).alias("schemaId"),
        sf.when(is_zlib, inflated).otherwise(body).alias("payload"),
    )
    return sf.when(has_header, parts).alias("glue_record")


def gunzip(data: Column | str) -> Column:
    """Return the bytes that gzip has compressed.

    The result is null for bytes that are not in gzip's format, are damaged, or would become larger
    than 256 MiB. ``coalesce(gunzip("data"), "data")`` keeps those that are not compressed.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - see above

    data = _bytes_of(data)
    is_gzip = sf.substring(data, 1, 2) == sf.lit(bytearray(b"\x1f\x8b"))
    return _decompressed(sf.when(is_gzip, data), _gunzip).alias("gunzip")


def _bytes_of(data: Column | str) -> Column:
    from pyspark.sql import functions as sf  # noqa: PLC0415 - see above

    # Of a STRING, substring and length would count characters.
    return (sf.col(data) if isinstance(data, str) else data).cast("binary")


def _uuid(sixteen_bytes: Column) -> Column:
    from pyspark.sql import functions as sf  # noqa: PLC0415 - see above

    digits, parts, start = sf.lower(sf.hex(sixteen_bytes)), [], 1
    for length in _LENGTHS_IN_UUID:
        parts.append(sf.substring(digits, start, length))
        start += length
    return sf.concat_ws("-", *parts)


def _decompressed(data: Column, decompress: Callable[[pa.Array], pa.Array]) -> Column:
    from pyspark.sql import functions as sf  # noqa: PLC0415 - see above

    # Made for each call: whether a UDF is one of Spark Connect is settled when it is made.
    make: Any = sf.arrow_udf  # type: ignore[attr-defined] # PySpark's stubs lack the name
    column: Column = make(decompress, "binary")(data)
    return column


def inflate(column: pa.Array) -> pa.Array:
    """Decompress what zlib has compressed. Runs on an executor."""
    return _each(column, _ZLIB_FORMAT)


def _gunzip(column: pa.Array) -> pa.Array:
    return _each(column, _GZIP_FORMAT)


def _each(column: pa.Array, format_: int) -> pa.Array:
    values: list[bytes | None] = []
    left = MOST_IN_BATCH
    for data in column.to_pylist():
        value = None if data is None else decompressed(data, format_)
        left -= len(value or b"")
        if left < 0 and not pa.types.is_large_binary(column.type):
            raise OptionError(
                f"The {len(column)} rows of an Arrow batch have more than 2 GiB of decompressed "
                "payloads. Lower spark.sql.execution.arrow.maxRecordsPerBatch, which is 10000 "
                "unless the session sets another number."
            )
        values.append(value)
    # Its own type: with useLargeVarTypes, Spark passes and expects another one.
    return pa.array(values, column.type)


def decompressed(data: bytes, format_: int) -> bytes | None:
    """Return the bytes behind a format of zlib (its wbits); None if they are damaged or too many.

    A gzip file may have several members, which follow one another. What follows a zlib stream is
    ignored, as the deserializer for Java ignores it.
    """
    from zlib_ng import zlib_ng  # noqa: PLC0415 - in Spark's Python processes

    parts, left = [], MOST_BYTES
    while data:
        stream = zlib_ng.decompressobj(format_)
        try:
            parts.append(stream.decompress(data, left + 1))
        except zlib_ng.error:  # type: ignore[misc] # its stub has no type of it
            return None
        left -= len(parts[-1])
        if left < 0 or not stream.eof:
            return None
        data = stream.unused_data if format_ == _GZIP_FORMAT else b""
    return parts[0] if len(parts) == 1 else b"".join(parts) if parts else None
