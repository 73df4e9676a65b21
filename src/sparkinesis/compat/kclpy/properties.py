"""The properties file: a parser by the rules of ``java.util.Properties.load``, of one stream only.

The configuration of the MultiLangDaemon (KCL 3.5, ``MultiLangDaemonConfiguration``) has
``streamName`` and ``streamArn``, and nothing of the Java KCL's ``StreamTracker``:
https://github.com/awslabs/amazon-kinesis-client/issues/913.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sparkinesis.errors import OptionError

# Java's white space is only these three; \v and no-break spaces belong to keys and values.
_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX = re.compile(r"[0-9a-fA-F]{4}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One key and its value. ``line``: the line of the key, from 1."""

    key: str
    value: str
    line: int


def decode(content: bytes) -> str:
    r"""Decode a file: UTF-8, or else ISO 8859-1, the encoding that Java reads."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("iso-8859-1")


def parse(text: str, name: str) -> Sequence[Entry]:
    """Return all entries in order; if a key occurs twice, the last entry counts.

    ``name``: the file's name, for errors. Raises `OptionError` for an escape that Java refuses.
    """
    return [_entry(line, number, name) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    r"""Yield lines without comments, joined after an odd number of final backslashes."""
    joined, begin = "", 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANK)
        if not begin and (not line or line[0] in "#!"):
            continue
        begin = begin or number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            joined += line[:-1]
            continue
        yield begin, joined + line
        joined, begin = "", 0
    if joined:  # a backslash at the end of the file
        yield begin, joined


def _entry(line: str, number: int, name: str) -> Entry:
    end = _end_of_key(line)
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(_BLANK)
    key = _unescape(line[:end], number, name)
    return Entry(key, _unescape(rest, number, name), number)


def _end_of_key(line: str) -> int:
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        at += 2 if line[at] == "\\" else 1
    return min(at, len(line))


def _unescape(text: str, number: int, name: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            parts.append(text[at])
            at += 1
            continue
        escape = text[at + 1 : at + 2]
        if escape == "u":
            digits = text[at + 2 : at + 6]
            if not _HEX.fullmatch(digits):
                raise OptionError(
                    f"{name}, line {number}: \\u{digits} is not an escape; \\u takes four "
                    "hexadecimal digits. Write a literal backslash as two."
                )
            parts.append(chr(int(digits, 16)))
            at += 6
        else:
            parts.append(_ESCAPES.get(escape, escape))
            at += 2
    # Two escapes may be a surrogate pair.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
