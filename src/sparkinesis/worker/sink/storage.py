"""The storage of files of a sink or of dead letters. A visible file is complete and durable."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from sparkinesis.errors import OptionError, SinkUnavailableError

_PASSWORD = re.compile(r"[^/@:]*:(?!\d+/).*@", re.DOTALL)
"""User and password after ``://``; a number and a slash there would be a port. The pattern accepts
unescaped slashes, which secret keys often have: a URI parser would cut the secret in the middle."""
_OF_PYARROW = {
    *("file", "local", "mock", "s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs"),
}
"""The schemes for which pyarrow has file systems."""


@dataclass(frozen=True)
class Storage:
    """A directory in a file system. Every method raises the file system's errors.

    A file is written under a hidden name, which Spark and pyarrow skip, and then moved: a file with
    a visible name is always complete.
    """

    filesystem: fs.FileSystem
    root: str
    """The path of the directory within the file system."""
    name: str
    """The name for logs and errors, without secrets."""

    @property
    def _is_local(self) -> bool:
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def write_hidden(self, path: str, table: pa.Table, compression: str | None) -> None:
        """Write the hidden file of ``path`` (relative), so that it survives a power failure."""
        hidden = self._hidden(path)
        with self._open(hidden) as stream:
            pq.write_table(table, stream, compression=compression)
        if self._is_local:
            _sync(Path(hidden))

    def show(self, path: str) -> None:
        """Move a hidden file to its visible name ``path``, which must be new."""
        self.filesystem.move(self._hidden(path), self._at(path))

    def settle(self, paths: Iterable[str]) -> None:
        """Sync the directories of ``paths``, so that moves to them survive a power failure."""
        if self._is_local:
            files = [Path(self._at(path)) for path in paths]
            for folder in {parent for file in files for parent in file.parents}:
                # Sync up to the root: any of the directories may be new.
                with contextlib.suppress(PermissionError):
                    _sync(folder)

    def discard(self, path: str) -> None:
        """Delete the hidden file of ``path``, if possible."""
        with contextlib.suppress(Exception):
            self.filesystem.delete_file(self._hidden(path))

    def put(self, path: str, table: pa.Table, unique: str) -> None:
        """Write or replace the file ``path`` (relative), so that it survives a power failure.

        unique: a text that makes the hidden name differ from other writers' names.
        """
        staged = f"{path}.{unique}"
        try:
            self.write_hidden(staged, table, "zstd")
            self._move(self._hidden(staged), self._at(path))
        except BaseException:
            self.discard(staged)
            raise
        self.settle([path])

    def files(self) -> list[str]:
        """Return the visible Parquet files of the directory, sorted, as relative paths."""
        inside = self.filesystem.get_file_info(fs.FileSelector(self.root))
        names = [info.base_name for info in inside if info.is_file]
        return sorted(n for n in names if n.endswith(".parquet") and not n.startswith("."))

    def read(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a file's metadata and rows, in the given columns or in all."""
        with self.filesystem.open_input_file(self._at(path)) as file:
            return pq.ParquetFile(file).read(columns=columns)

    def move(self, path: str, to: str) -> None:
        """Move a file, replacing a file that is there, so that it survives a power failure."""
        target = self._at(to)
        self.filesystem.create_dir(str(PurePosixPath(target).parent), recursive=True)
        self._move(self._at(path), target)
        self.settle([path, to])

    def delete(self, path: str) -> None:
        """Delete a file, so that the deletion survives a power failure."""
        self.filesystem.delete_file(self._at(path))
        self.settle([path])

    def _move(self, source: str, target: str) -> None:
        try:
            self.filesystem.move(source, target)
        except OSError:
            # Some file systems, such as HDFS, do not replace a file by a move.
            if not self.filesystem.get_file_info(target).is_file:
                raise
            self.filesystem.delete_file(target)
            self.filesystem.move(source, target)

    def _open(self, path: str) -> pa.NativeFile:
        try:
            return self.filesystem.open_output_stream(path)
        except FileNotFoundError:
            # Only after a failure: storages without directories would waste a call each time.
            self.filesystem.create_dir(str(PurePosixPath(path).parent), recursive=True)
            return self.filesystem.open_output_stream(path)

    def _at(self, path: str) -> str:
        return f"{self.root.rstrip('/')}/{path}".rstrip("/") if self.root else path

    def _hidden(self, path: str) -> str:
        at = PurePosixPath(self._at(path))
        return str(at.with_name(f".{at.name}"))


def open_storage(path: str | os.PathLike[str], filesystem: object | None = None) -> Storage:
    """Return the storage at a user's path. Writes nothing.

    Raises `OptionError`, and `SinkUnavailableError` if the storage's client cannot be made.
    """
    text = _checked(path, filesystem)
    if filesystem is not None:
        known, base = _inner(_of_pyarrow(filesystem), text)
        return Storage(known, base, text)
    if "://" in text:
        return _by_uri(text)
    return Storage(fs.LocalFileSystem(), os.path.abspath(text), text)  # noqa: PTH100 - no symlinks


def check_place(path: str | os.PathLike[str], filesystem: object | None = None) -> None:
    """Check a path as `open_storage` does, as far as possible without a connection.

    Raises `OptionError`.
    """
    text = _checked(path, filesystem)
    if filesystem is not None:
        _of_pyarrow(filesystem)
    elif "://" in text:
        scheme, _, rest = text.partition("://")
        if scheme not in _OF_PYARROW:
            _check_fsspec(scheme, _redacted(text))
        elif not rest.strip("/"):
            raise OptionError(f"The path {_redacted(text)} has no bucket or directory. Add one.")


def is_local(path: str | os.PathLike[str], filesystem: object | None = None) -> bool:
    """Return True if a path that `check_place` accepts is on a disk of this machine."""
    if filesystem is not None:
        return isinstance(_inner(_of_pyarrow(filesystem), "")[0], fs.LocalFileSystem)
    scheme, separator, _ = os.fspath(path).partition("://")
    return not separator or scheme in {"file", "local"}


def _checked(path: object, filesystem: object | None) -> str:
    """Return the path as text. Raises `OptionError`."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not text or not isinstance(text, str) or "\0" in text:
        raise OptionError(
            f"path is {path!r}; it must be a path, or a URI such as s3://bucket/path."
        )
    if "://" not in text:
        return text
    name = _redacted(text)
    if filesystem is not None:
        raise OptionError(f"path is the URI {name}; with a filesystem it is a path within that.")
    if _PASSWORD.match(text.partition("://")[2]):
        raise OptionError(
            f"The path {name} contains a password or secret key. Give a filesystem with "
            "credentials instead, or let the storage's client find them."
        )
    return text


def _by_uri(uri: str) -> Storage:
    name = _redacted(uri)
    scheme, _, rest = uri.partition("://")
    # s3a and s3n are Hadoop's names for S3.
    known = f"s3://{rest}" if scheme in {"s3a", "s3n"} else uri
    try:
        try:
            filesystem, base = fs.FileSystem.from_uri(known)
        except pa.ArrowInvalid as error:
            if "Unrecognized filesystem type" not in str(error):
                raise
            filesystem, base = _by_fsspec(uri, name)
    except OptionError:
        raise
    except (ValueError, NotImplementedError, ImportError) as error:
        raise OptionError(f"The path {name} cannot be used: {_without(known, error)}") from None
    except OSError as error:
        raise SinkUnavailableError(
            f"Connecting to {name} failed: {_without(known, error)}. Nothing was written."
        ) from None
    return Storage(filesystem, base, name)


def _by_fsspec(uri: str, name: str) -> tuple[fs.FileSystem, str]:
    _check_fsspec(uri.partition("://")[0], name)
    from fsspec.core import url_to_fs  # noqa: PLC0415

    filesystem, path = url_to_fs(uri)
    return _of_pyarrow(filesystem), path


def _check_fsspec(scheme: str, name: str) -> None:
    """Raise `OptionError` unless fsspec knows the scheme, which pyarrow does not know."""
    try:
        from fsspec import get_filesystem_class  # noqa: PLC0415
    except ImportError:
        raise OptionError(
            f"The path {name} has a scheme that pyarrow does not know. Install fsspec and its "
            "package for this scheme, or give a filesystem."
        ) from None
    try:
        get_filesystem_class(scheme)
    except (ValueError, ImportError) as error:
        raise OptionError(f"The path {name} cannot be used: {error}") from None


def _of_pyarrow(filesystem: object) -> fs.FileSystem:
    if isinstance(filesystem, fs.FileSystem):
        return filesystem
    try:
        from fsspec import AbstractFileSystem  # noqa: PLC0415
    except ImportError:
        is_fsspec = False
    else:
        is_fsspec = isinstance(filesystem, AbstractFileSystem)
    if not is_fsspec:
        raise OptionError(
            f"filesystem is of type {type(filesystem).__name__}; it must be a file system of "
            "pyarrow.fs or of fsspec."
        )
    protocol = getattr(filesystem, "protocol", "")
    if "file" in ((protocol,) if isinstance(protocol, str) else protocol):
        return fs.LocalFileSystem()  # only local files are made durable here
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem))


def _inner(filesystem: fs.FileSystem, path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system below sub-trees, so that a local one is recognised."""
    while isinstance(filesystem, fs.SubTreeFileSystem):
        path = f"{filesystem.base_path.rstrip('/')}/{path.lstrip('/')}"
        filesystem = filesystem.base_fs
    if isinstance(filesystem, fs.LocalFileSystem):
        path = os.path.abspath(path)  # noqa: PTH100 - no symlinks
    return filesystem, path


def _redacted(uri: str) -> str:
    """Return the URI without user, password and query."""
    scheme, _, rest = uri.partition("://")
    parts = urlsplit(f"{scheme}://{_PASSWORD.sub('', rest, count=1)}")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _without(uri: str, error: BaseException) -> str:
    return str(error).replace(uri, _redacted(uri))


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno != errno.EINVAL:  # the file system does not support fsync
            raise
    finally:
        os.close(opened)
