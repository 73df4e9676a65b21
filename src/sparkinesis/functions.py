"""Functions of columns: what producers put around a payload is taken off.

- `gunzip`: what gzip has compressed
- `glue_record`: the parts of a record that has the header of the AWS Glue Schema Registry
- `spring_record`: the parts of a record in which Spring Cloud Stream has embedded headers
- `dynamodb_record`: a change that DynamoDB has captured, with plain values
- `connect_decimal`: a number of Kafka Connect's logical type Decimal

They work on any column of bytes, such as ``data`` of ``format("kinesis")``, in batch and streaming
queries, in classic sessions and those of Spark Connect. They give null for data of another format,
and fail no query, whatever a producer has put. `sparkinesis.payloads` has the same for bytes.
``docs/payloads.md`` has whole programs.

All but decompression are Spark's own expressions. Spark has none that decompresses, so that an
Arrow UDF does, which needs sparkinesis on executors: only rows that are compressed reach its
function as bytes, the others as null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkinesis import payloads
from sparkinesis.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

__all__ = ["connect_decimal", "dynamodb_record", "glue_record", "gunzip", "spring_record"]

BYTES_OF_ARRAY = 64 * 1024 * 1024
"""An array of decompressed payloads that reaches this size is passed on; an Arrow array of the type
binary takes 2 GiB."""

_GLUE_VERSION = b"\x03"
_UNCOMPRESSED, _ZLIB = b"\x00", b"\x05"
_GLUE_HEADER_BYTES = 18
_LENGTHS_IN_UUID = (8, 4, 4, 4, 12)
_TO_THE_END = 2**31 - 1
_END_OF_TIME = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""


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
    inflated = _decompressed(sf.when(has_header & is_zlib, body), payloads.ZLIB)
    parts = sf.struct(
        _uuid(sf.substring(data, 3, 16)).alias("schemaId"),
        sf.when(is_zlib, inflated).otherwise(body).alias("payload"),
    )
    return sf.when(has_header, parts).alias("glue_record")


def gunzip(data: Column | str) -> Column:
    """Return the bytes that gzip has compressed, in one member or in several.

    The result is null for bytes that are not in gzip's format, are damaged, or would become larger
    than 256 MiB. ``coalesce(gunzip("data"), "data")`` keeps those that are not compressed.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - see above

    data = _bytes_of(data)
    is_gzip = sf.substring(data, 1, 2) == sf.lit(bytearray(b"\x1f\x8b"))
    return _decompressed(sf.when(is_gzip, data), payloads.GZIP).alias("gunzip")


def spring_record(data: Column | str) -> Column:
    """Return the parts of a record in which Spring Cloud Stream has embedded headers.

    The result is ``STRUCT<headers: MAP<STRING, STRING>, payload: BINARY>``. A header that is no
    text has its JSON. ``headers`` is null if they are not JSON. The struct is null for a record
    whose lengths are not those of this format.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - see above

    data = _bytes_of(data)
    # No more than the record, so that the sums below are of the type INT.
    length = sf.least(_unsigned(sf.substring(data, 1, 4)), sf.length(data))
    rest = sf.length(data) - length - 8
    has_headers = (sf.substring(data, 5, 1) == sf.lit(bytearray(b"{"))) & (
        _unsigned(sf.substring(data, length + 5, sf.lit(4))) == rest
    )
    headers = sf.substring(data, sf.lit(5), length).cast("string")
    parts = sf.struct(
        sf.from_json(headers, "MAP<STRING, STRING>").alias("headers"),
        sf.substring(data, length + 9, sf.lit(_TO_THE_END)).alias("payload"),
    )
    return sf.when(has_headers, parts).alias("spring_record")


def _unsigned(four_bytes: Column) -> Column:
    from pyspark.sql import functions as sf  # noqa: PLC0415 - see above

    return sf.conv(sf.hex(four_bytes), 16, 10).cast("bigint")


def dynamodb_record(data: Column | str, item: StructType | str) -> Column:
    """Return a change that DynamoDB has captured in a stream, with plain values.

    item: the attributes of the table's items that are wanted, as ``plane STRING, delay INT``. A
    number is an INT, BIGINT, DECIMAL or such, or a STRING; B is BINARY; a list or a set is an
    ARRAY; M is a STRUCT or a ``MAP<STRING, ...>``.

    The result has the record's fields ``eventID``, ``eventName``, ``tableName`` (STRING),
    ``userIdentity`` (``STRUCT<principalId: STRING, type: STRING>``),
    ``ApproximateCreationDateTime`` (TIMESTAMP), and ``Keys``, ``NewImage`` and ``OldImage`` as
    structs of ``item``. An attribute that is missing, NULL or of another type is null, as an image
    is that the record does not have. The struct is null for a record that is not such a change.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - see above
    from pyspark.sql.types import StructType  # noqa: PLC0415

    wanted = StructType.fromDDL(item) if isinstance(item, str) else item
    if not isinstance(wanted, StructType):
        raise OptionError(
            f"{item} names no attributes. Name them, as in 'plane STRING, delay INT'."
        )
    change = sf.from_json(_bytes_of(data).cast("string"), _change(wanted))
    # Spark parses the JSON anew for each field that is taken of it, but a lambda's variable once.
    plain = sf.transform(sf.array(change), lambda one: _plain_change(one, wanted))
    return sf.get(plain, sf.lit(0)).alias("dynamodb_record")


def _plain_change(change: Column, wanted: StructType) -> Column:
    from pyspark.sql import functions as sf  # noqa: PLC0415 - see above

    images = change["dynamodb"]
    number = images["ApproximateCreationDateTime"]
    is_micro = images["ApproximateCreationDateTimePrecision"] == "MICROSECOND"
    micros = sf.when(is_micro, number).otherwise(sf.try_multiply(number, sf.lit(1000)))
    time = sf.timestamp_micros(sf.when(micros.between(0, _END_OF_TIME), micros))
    parts = sf.struct(
        *(change[name].alias(name) for name in _OF_CHANGE),
        time.alias("ApproximateCreationDateTime"),
        *(_members(images[name], wanted).alias(name) for name in ("Keys", "NewImage", "OldImage")),
    )
    return sf.when(images["Keys"].isNotNull(), parts)


_OF_CHANGE = ("eventID", "eventName", "tableName", "userIdentity")


def _change(item: StructType) -> StructType:
    """Return the type of a change in JSON: no DDL, as the name of an attribute is any text."""
    from pyspark.sql import types as t  # noqa: PLC0415 - see above

    text, image = t.StringType(), _attribute(item, "").fields[0].dataType
    identity = t.StructType().add("principalId", text).add("type", text)
    images = t.StructType().add("ApproximateCreationDateTime", t.LongType())
    images.add("ApproximateCreationDateTimePrecision", text)
    for name in ("Keys", "NewImage", "OldImage"):
        images.add(name, image)
    change = t.StructType().add("eventID", text).add("eventName", text).add("tableName", text)
    return change.add("userIdentity", identity).add("dynamodb", images)


def _attribute(type_: DataType, name: str) -> StructType:
    """Return the type of an attribute in a change: a field for each DynamoDB type it may have."""
    from pyspark.sql import types as t  # noqa: PLC0415 - see above

    def fields(**types: DataType) -> StructType:
        return t.StructType([t.StructField(kind, type_) for kind, type_ in types.items()])

    text = t.StringType()
    match type_:
        case t.StringType():
            return fields(S=text, N=text)
        case t.NumericType():
            return fields(N=text)
        case t.BooleanType():
            return fields(BOOL=type_)
        case t.BinaryType():
            return fields(B=type_)
        case t.StructType():
            members = [t.StructField(f.name, _attribute(f.dataType, f.name)) for f in type_]
            return fields(M=t.StructType(members))
        case t.MapType(keyType=t.StringType()):
            return fields(M=t.MapType(text, _attribute(type_.valueType, name)))
        case t.ArrayType():
            one = _attribute(type_.elementType, name)
            sets = {f"{f.name}S": t.ArrayType(f.dataType) for f in one if f.name in "SNB"}
            return fields(L=t.ArrayType(one), **sets)
    raise OptionError(
        f"The attribute {name} has the type {type_.simpleString()}, which DynamoDB has not. Name "
        "a number, STRING, BINARY, BOOLEAN, STRUCT, ARRAY or MAP<STRING, ...>, and cast the result."
    )


def _value(attribute: Column, type_: DataType) -> Column:
    """Return the plain value of an attribute."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - see above
    from pyspark.sql import types as t  # noqa: PLC0415

    match type_:
        case t.StringType():
            return sf.coalesce(attribute["S"], attribute["N"])
        case t.BooleanType():
            return attribute["BOOL"]
        case t.BinaryType():
            return attribute["B"]
        case t.StructType():
            return _members(attribute["M"], type_)
        case t.MapType():
            values = type_.valueType
            return sf.transform_values(attribute["M"], lambda _, each: _value(each, values))
        case t.ArrayType():
            element = type_.elementType
            lists = [sf.transform(attribute["L"], lambda each: _value(each, element))]
            lists += [
                sf.transform(attribute[f"{kind.name}S"], _caster(element))
                for kind in _attribute(element, "")
                if kind.name in "SNB"
            ]
            return sf.coalesce(*lists)
    return attribute["N"].try_cast(type_)


def _caster(type_: DataType) -> Callable[[Column], Column]:
    return lambda each: each.try_cast(type_)


def _members(image: Column, item: StructType) -> Column:
    from pyspark.sql import functions as sf  # noqa: PLC0415 - see above

    values = (_value(image[field.name], field.dataType).alias(field.name) for field in item)
    return sf.when(image.isNotNull(), sf.struct(*values))


def connect_decimal(value: Column | str, scale: int) -> Column:
    """Return the number behind the bytes of Kafka Connect's logical type Decimal.

    value: the bytes, as `from_json` reads them from Base64 into a field of the type BINARY.
    scale: the digits behind the point, which the field's schema names.

    The result is ``DECIMAL(38, scale)``, and null for bytes of a number of more digits than 38.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - see above

    value, wide = _bytes_of(value), "DECIMAL(20, 0)"
    digits, length = sf.hex(value), sf.length(value)
    is_negative = sf.substring(digits, 1, 1) >= "8"
    sign = sf.when(is_negative, "F").otherwise("0")
    of_eight_bytes = sf.conv(sf.lpad(digits, 16, sign), 16, -10)
    digits = sf.lpad(digits, 32, sign)
    high = sf.conv(sf.substring(digits, 1, 16), 16, -10).cast(wide)
    low = sf.conv(sf.substring(digits, 17, 16), 16, 10).cast(wide)
    # Both of one sign, so that the product is no larger than the number.
    high += sf.when(is_negative, 1).otherwise(0)
    low -= sf.when(is_negative, sf.lit(_TWO_64)).otherwise(sf.lit("0")).cast(wide)
    number = sf.try_add(sf.try_multiply(high, sf.lit(_TWO_64).cast(wide)), low)
    text = sf.when(length.between(1, 8), of_eight_bytes)
    text = text.when(length.between(9, 16), number.cast("string"))
    # As text: the division of decimals would round.
    scaled = sf.concat(text, sf.lit(f"E-{scale}")).cast(f"DECIMAL(38, {scale})")
    return scaled.alias("connect_decimal")


_TWO_64 = str(2**64)


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


def _decompressed(data: Column, format_: int) -> Column:
    from pyspark.sql import functions as sf  # noqa: PLC0415 - see above

    def each(arrays: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return decompress(arrays, format_)

    # Made for each call: whether a UDF is one of Spark Connect is settled when it is made.
    make: Any = sf.arrow_udf  # type: ignore[attr-defined] # PySpark's stubs lack the name
    column: Column = make(each, "binary")(data)
    return column


def decompress(arrays: Iterator[pa.Array], format_: int) -> Iterator[pa.Array]:
    """Decompress the values of arrays, in arrays that may be shorter. Runs on an executor."""
    for array in arrays:
        values: list[bytes | None] = []
        size = 0
        for data in array.to_pylist():
            values.append(None if data is None else payloads.decompressed(data, format_))
            size += len(values[-1] or b"")
            if size >= BYTES_OF_ARRAY:
                # Its own type: with useLargeVarTypes, Spark passes and expects another one.
                yield pa.array(values, array.type)
                values, size = [], 0
        if values:
            yield pa.array(values, array.type)
