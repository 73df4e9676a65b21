"""Refuses properties that name several streams: the MultiLangDaemon reads one.

Its configuration (KCL 3.5, ``MultiLangDaemonConfiguration``) has ``streamName`` and ``streamArn``,
and nothing of the Java KCL's ``StreamTracker``:
https://github.com/awslabs/amazon-kinesis-client/issues/913.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparkinesis.compat.kclpy.properties import Entry
from sparkinesis.errors import OptionError

_ONE = ("streamName", "streamArn")
_SEVERAL = re.compile(
    r"streams|stream_?(name|arn|identifier|id|config)_?(s|list)|.*(multi_?stream|stream_?tracker).*"
    r"|former_?streams.*",
    re.IGNORECASE,
)
"""Keys as somebody would write them who knows the Java KCL's names."""
_SEPARATOR = re.compile(r"[,;\s|]")

_INSTEAD = (
    "A properties file names one stream, as with the MultiLangDaemon, which has no StreamTracker. "
    "To read several streams in one application, derive your processor from "
    "sparkinesis.RecordProcessor and run Application(name, streams=[...], processor=...). Or start "
    "a program for each stream, with an applicationName of its own."
)


def require_one_stream(entries: Iterable[Entry], file: str) -> None:
    """Raise `OptionError`, with file and line, if the properties seem to name several streams.

    Of several lines with one key the last counts, as in Java: whoever copies a sample adds a line.
    """
    for entry in entries:
        key, value = entry.key.strip(), entry.value.strip()
        where = f"{file}, line {entry.line}: {key}"
        if key in _ONE and _SEPARATOR.search(value):
            raise OptionError(f"{where} is {value[:200]!r}, which is not one stream. {_INSTEAD}")
        if _SEVERAL.fullmatch(key):
            raise OptionError(f"{where} is not a key of the MultiLangDaemon. {_INSTEAD}")
