"""A Glue Schema Registry by moto, and records as its serializers write them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import boto3
from moto.server import ThreadedMotoServer

from tests.documents import ROOT

FIXTURE = json.loads((ROOT / "tests" / "fixtures" / "glue" / "records.json").read_text("utf-8"))
"""Records that the registry's library for Java and a package of others have written."""


@contextmanager
def glue_registry() -> Iterator[tuple[Any, str]]:
    """A client of a Glue that has a registry, and its address."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        client = boto3.client("glue", "eu-west-1", endpoint_url=endpoint)
        client.create_registry(RegistryName="registry")
        yield client, endpoint
        client.delete_registry(RegistryId={"RegistryName": "registry"})  # moto's state is global
    finally:
        server.stop()


def add_schema(registry: Any, data_format: str, definition: str) -> str:
    """Create a schema with one version, whose id is returned."""
    version = registry.create_schema(
        RegistryId={"RegistryName": "registry"},
        SchemaName="flight",
        DataFormat=data_format,
        Compatibility="BACKWARD",
        SchemaDefinition=definition,
    )
    return str(version["SchemaVersionId"])


def add_version(registry: Any, definition: str) -> str:
    """Register another version of the schema; returns its id."""
    version = registry.register_schema_version(
        SchemaId={"RegistryName": "registry", "SchemaName": "flight"}, SchemaDefinition=definition
    )
    return str(version["SchemaVersionId"])


def header(schema_id: str, payload: bytes, *, compresses: bool = False) -> bytes:
    """A record with the header of a schema's version."""
    if compresses:
        return b"\x03\x05" + UUID(schema_id).bytes + zlib.compress(payload)
    return b"\x03\x00" + UUID(schema_id).bytes + payload
