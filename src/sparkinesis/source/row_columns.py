"""The columns of rows, and the options that those of a table of the catalog carry.

Spark 4.2 and 4.3 give the options of a table (``CREATE TABLE flights USING kinesis OPTIONS (...)``)
to a Python data source once, when the table is created: a query of the table comes without them.
What Spark keeps, and gives to each read and to most writes, is the table's schema. So the schema of
a new table carries the options, as metadata of its columns.

A write may carry the columns of the table that is read instead (``INSERT INTO copy SELECT * FROM
flights``), so `sparkinesis.source.writing` refuses values in the columns that Kinesis fills.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping

from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkinesis.errors import OptionError
from sparkinesis.source.options.checked_options import (
    batch_read_options,
    check_options,
    stream_read_options,
    write_options,
)
from sparkinesis.source.options.option_table import (
    ROW_COLUMNS,
    Options,
    Use,
    nearest_option,
    options_for,
    refuse_credentials,
)
from sparkinesis.stream.address import shown

SCHEMA = StructType(
    [
        StructField("partitionKey", StringType()),
        StructField("data", BinaryType()),
        StructField("stream", StringType()),
        StructField("shardId", StringType()),
        StructField("sequenceNumber", StringType()),
        StructField("approximateArrivalTimestamp", TimestampType()),
        StructField("subSequenceNumber", LongType()),
        StructField("explicitHashKey", StringType()),
    ]
)
"""The first six have the names of Databricks' Kinesis source. They are types, not Spark's DDL: what
TIMESTAMP means there is a setting of the session, ``spark.sql.timestampType``."""


def read_schema(columns: Iterable[str] = ROW_COLUMNS) -> StructType:
    """Return the schema of a read that has these columns of `SCHEMA`, in this order."""
    return StructType([SCHEMA[name] for name in columns])


def described(schema: StructType) -> str:
    """Return columns as people write them."""
    return ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in schema)


_DIGEST = "sparkinesis.table"
"""The key of the metadata that all columns of a table share."""
_OPTIONS = "sparkinesis.options"
"""The key of the metadata of one column, of ``data`` if it is there: the options as JSON."""

_SPARKS_OWN = {"provider", "owner", "comment", "collation", "external", "is_managed_location"}
"""Properties of a table that Spark sets, or that SQL has clauses for."""
_SECRET = re.compile(r"secret|passw|token|credential|accesskey")


def is_new_table(options: Mapping[str, str], source: str) -> bool:
    """Return True if Spark asks for the schema of a table that is about to be created."""
    return options.get("provider", "").lower() == source.lower()


def new_table_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a new table, by the properties that Spark hands over.

    These hold each entry of OPTIONS twice, the second time with the prefix ``option.``, and the
    entries of TBLPROPERTIES once, which may be options, too, or a user's own. Raises `OptionError`
    for a secret, because the catalog shows properties to all its users, and for a misspelled name.
    """
    refuse_credentials(properties)
    found = {}
    properties = {name.lower(): value for name, value in properties.items()}
    for name, value in properties.items():
        if name in _SPARKS_OWN or name.startswith("option."):
            continue
        if name in {"path", "location"}:
            raise OptionError(
                "A table of the kinesis source has no LOCATION: its rows are in a stream. Leave "
                "out LOCATION, and name the stream by the option streamName."
            )
        if _SECRET.search(re.sub("[^a-z]", "", name)):
            raise OptionError(
                f"The table property {shown(name)} is refused: its name says that it is a secret, "
                "and whoever may read the catalog would read it. Give the driver and the executors "
                "a role or a profile (the options roleArn and profile)."
            )
        is_option = f"option.{name}" in properties
        if is_option or nearest_option(name, 0.8) is not None:
            found[name] = value
    return found


def check_new_table(options: Mapping[str, str]) -> None:
    """Raise `OptionError` if a read, a streaming read or a write of the table would be refused."""
    given = Options(options)
    check_options(given, *Use)
    stream_read_options(Options(options_for(options, Use.READ_STREAM)))
    batch_read_options(Options(options_for(options, Use.READ)))
    if len(given.addresses()) == 1:  # a table of several streams is for reading
        write_options(Options(options_for(options, Use.WRITE)))


def table_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of a new table; they carry the options, which are checked."""
    text = json.dumps(dict(options), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    streams = options.get("streamname") or options["streamarn"]
    columns = Options(options)["columns"]
    fields = []
    for column in read_schema(columns):
        metadata = {_DIGEST: digest}
        if column.name == ("data" if "data" in columns else columns[0]):
            metadata[_OPTIONS] = text
        if column.name == "stream":
            metadata["comment"] = f"The stream; this table is of {streams}"
        fields.append(StructField(column.name, column.dataType, metadata=metadata))
    return StructType(fields)


def table_options(schema: StructType) -> dict[str, str]:
    """Return the options of the table whose columns these are; none if they are of no one table."""
    found = [field for field in schema.fields if field.name in ROW_COLUMNS]
    digests = {field.metadata.get(_DIGEST) for field in found}
    texts = [text for field in found if (text := field.metadata.get(_OPTIONS))]
    if len(digests) != 1 or not texts:
        return {}
    options: dict[str, str] = json.loads(texts[0])
    return options if len(found) == len(Options(options)["columns"]) else {}


def refuse_without_stream() -> None:
    """Raise the `OptionError` of a query that names no stream, and has no table's options."""
    raise OptionError(
        "The stream to use is not clear. Give either the option streamName or the option "
        "streamARN. If this is a table of the catalog, Spark does not pass its options here. Spark "
        "passes them if the table is created without a list of columns and without AS SELECT, and "
        "if a write names its columns: INSERT INTO flights (partitionKey, data) SELECT ..., or "
        'df.select("partitionKey", "data").writeTo("flights").append(). A streaming query does not '
        'write to a table: it takes writeStream.format("kinesis") and the options.'
    )
