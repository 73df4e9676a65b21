"""Archives events of flights as Parquet files, in a directory for each day."""

from functools import partial
from io import BytesIO
from typing import Any

import pyarrow as pa
from pyarrow.json import ParseOptions, read_json

from sparkinesis import Application, Checkpointer, ProcessorShard, RecordBatch, RecordProcessor

TEXTS = [(name, pa.string()) for name in ("id", "kind", "tail", "carrier", "origin", "dest")]
EVENT = pa.schema([*TEXTS, ("flight", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
JSON = ParseOptions(explicit_schema=EVENT, unexpected_field_behavior="ignore")


class Archive(RecordProcessor):
    def __init__(self, path: str, max_age: float) -> None:
        self.path, self.max_age = path, max_age

    def initialize(self, shard: ProcessorShard) -> None:
        schema = EVENT.append(pa.field("day", pa.date32()))
        self.sink = shard.sink(self.path, schema, partition_by=["day"], max_age=self.max_age)

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if len(batch):
            lines = BytesIO(b"\n".join(batch.to_arrow()["data"].to_pylist()))
            events = read_json(lines, parse_options=JSON)
            self.sink.write(events.append_column("day", events["at"].cast(pa.date32())))
        if self.sink.is_due:
            checkpointer.checkpoint()  # stores the rows first

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()


def archive(stream: str, path: str, max_age: float = 60.0, **place: Any) -> Application:
    processor = partial(Archive, path, max_age)
    return Application("archive", stream, processor, initial_position="trim_horizon", **place)
