"""A file system on this machine that fails when a test says so."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from pyarrow import fs


@dataclass
class Faults:
    """The faults to raise, and the calls that were made. Safe for any thread."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    """("open" or "move", path) of each that was done."""
    failed: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    _call: str | None = None
    _after: int = 0
    _times: float = 0

    def fail(self, call: str, *, after: int = 0, times: float = float("inf")) -> None:
        """Let ``call`` go well so often, then fail so often."""
        with self.changed:
            self._call, self._after, self._times = call, after, times

    def mend(self) -> None:
        with self.changed:
            self._call = None

    def ask(self, call: str, path: str) -> None:
        with self.changed:
            self.changed.notify_all()
            if call == self._call:
                self._after -= 1
                if self._after < 0 and self._times > 0:
                    self._times -= 1
                    self.failed += 1
                    raise OSError("no answer")
            self.calls.append((call, path))


class _Handler(fs.FileSystemHandler):  # type: ignore[misc]
    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._local = fs.LocalFileSystem()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__

    def get_type_name(self) -> str:
        return "flaky"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        return self._local.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        return self._local.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._local.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self._local.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self._local.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self._local.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        self._faults.ask("move", dest)
        self._local.move(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        self._local.copy_file(src, dest)

    def open_input_stream(self, path: str) -> Any:
        return self._local.open_input_stream(path)

    def open_input_file(self, path: str) -> Any:
        return self._local.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        stream = self._local.open_output_stream(path)  # before, so that a failure leaves a file
        try:
            self._faults.ask("open", path)
        except OSError:
            stream.close()
            raise
        return stream

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        return self._local.open_append_stream(path)


def flaky() -> tuple[fs.FileSystem, Faults]:
    faults = Faults()
    return fs.PyFileSystem(_Handler(faults)), faults
