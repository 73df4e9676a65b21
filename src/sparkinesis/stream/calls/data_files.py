"""botocore's data files, read in a fraction of botocore's time.

A client needs the endpoints of all services and a model of its own service. botocore parses them
with Python's json, and searches the folders of all 400 services for each file:
together half of the time that the first client takes.
"""

from __future__ import annotations

import functools
import gzip
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from botocore.loaders import Loader


class DataFiles:
    """Finds and parses a JSON file, compressed or not; botocore's ``file_loader``."""

    def exists(self, file_path: str) -> bool:
        """Return True if there is a file of this path, which lacks its ending."""
        return any(Path(f"{file_path}{ending}").is_file() for ending in _READ)

    def load_file(self, file_path: str) -> Any:
        """Return the data of a file whose path lacks its ending; None if there is no such file."""
        for ending, read in _READ.items():
            file = Path(f"{file_path}{ending}")
            if file.is_file():
                data = read(file.read_bytes())
                return _endpoints(data) if file.stem == "endpoints" else msgspec.json.decode(data)
        return None


_READ: dict[str, Callable[[bytes], bytes]] = {
    ".json": lambda data: data,
    ".json.gz": gzip.decompress,
}
"""The endings of data files, in botocore's order, and how to read each."""


class _Parts(Mapping[str, Any]):
    """A JSON object whose parts are parsed when they are read; each is parsed once."""

    def __init__(self, raw: Mapping[str, msgspec.Raw]) -> None:
        self._raw = raw
        self._parsed: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._parsed:
            self._parsed[name] = msgspec.json.decode(self._raw[name])
        return self._parsed[name]

    def __contains__(self, name: object) -> bool:
        return name in self._raw

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)


def _endpoints(data: bytes) -> Any:
    """Parse the endpoints of all services: 30,000 objects, and a client reads about ten of them."""
    found = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    whole = {name: msgspec.json.decode(raw) for name, raw in found.items() if name != "partitions"}
    partitions = msgspec.json.decode(found["partitions"], type=list[dict[str, msgspec.Raw]])
    return {**whole, "partitions": [_partition(each) for each in partitions]}


def _partition(found: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    parsed = {name: msgspec.json.decode(raw) for name, raw in found.items() if name != "services"}
    if "services" in found:
        services = msgspec.json.decode(found["services"], type=dict[str, msgspec.Raw])
        parsed["services"] = _Parts(services)
    return parsed


class DataLoader(Loader):  # type: ignore[misc]
    """botocore's loader, which searches only the folder of a service for its files."""

    def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002 - botocore's
        """Return the names of all folders of data, whether or not they have such a file."""
        paths = [path for path in self.search_paths if os.path.isdir(path)]  # noqa: PTH112 - text
        return sorted({entry.name for path in paths for entry in os.scandir(path)})


def share_data_files(session: Any) -> None:
    """Have a botocore session use the data files that this process has parsed, and will parse."""
    session.lazy_register_component(
        "data_loader", lambda: _shared_loader(session.get_config_variable("data_path"))
    )


def data_loader(data_path: str | None) -> DataLoader:
    """Return a loader that keeps what it has parsed.

    data_path: botocore's setting ``data_path``, folders that come before botocore's own.
    """
    folders = (data_path or "").split(os.pathsep) if data_path else []
    expanded = [os.path.expanduser(os.path.expandvars(folder)) for folder in folders]  # noqa: PTH111 - text
    return DataLoader(expanded, DataFiles())


_shared_loader = functools.cache(data_loader)
