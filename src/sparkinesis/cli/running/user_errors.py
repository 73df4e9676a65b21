"""The errors of a user's code, as the commands that run it tell them: without their own frames."""

from __future__ import annotations

import importlib
import os
import runpy
import traceback
from pathlib import Path

from sparkinesis.errors import SparkinesisError

KCLPY = "amazon_kclpy"

_OURS = (
    str(Path(__file__).parent),
    os.path.dirname(importlib.__file__),  # noqa: PTH120 - as frames have it
    runpy.__file__,
    "<frozen ",
)
_PAGES = {"kcl_rs": "kcl-rs", "pyspark.streaming.kinesis": "dstreams"}
"""The pages for who comes from a library, by its module."""


class UserModuleError(SparkinesisError):
    """The user's code raised; the text has its traceback, or says what to change."""


def user_error(what: str, error: BaseException) -> UserModuleError:
    """Return an error with ``what`` as its first line, and the user's part of the traceback.

    An import of another library of Kinesis becomes the import, or the page, that takes its place.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OURS)
    ]
    missing = (error.name or "") if isinstance(error, ImportError) else ""
    if missing.partition(".")[0] == KCLPY and frames:
        return UserModuleError(_of_kclpy(frames[-1]))
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
    text = f"{what}\n{''.join(lines)}".rstrip()
    pages = [page for module, page in _PAGES.items() if f"{missing}.".startswith(f"{module}.")]
    if pages:
        text += f"\nWhat takes the place of {missing}: docs/coming-from/{pages[0]}.md."
    return UserModuleError(text)


def _of_kclpy(frame: traceback.FrameSummary) -> str:
    line = frame.line or ""
    return (
        f"{frame.filename}, line {frame.lineno}, imports {KCLPY}, which needs its Java daemon. "
        f"Change the imports to those of sparkinesis.compat.kclpy, here: "
        f"{line.replace(KCLPY, 'sparkinesis.compat.kclpy')}; and start the program by "
        "sparkinesis kclpy FILE.properties (docs/kclpy.md)."
    )
