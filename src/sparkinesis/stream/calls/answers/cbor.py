"""Reads answers in CBOR, in the form of the AWS SDKs for Java, and writes the requests for them.

Data are bytes there, and not text in base64: a quarter fewer bytes on the way. A time is an integer
of milliseconds under tag 1 (by RFC 8949, of seconds).
"""

# What is not read here is asked for again in JSON, which says the same. So this module may refuse
# what it likes, but it reads nothing otherwise than the decoder of JSON reads the same answer:
#
# - A length is compared with the bytes that are there before anything is made of it, and each byte
#   belongs to one item: what the data look like does not matter.
# - A member that comes twice, a name that is no text, a text in pieces: refused.
# - A time before 1973 is refused. It is one in seconds, as some servers write it.
#
# The records of a page have one form: the same members in the same order, and heads of the same
# length. So one record is read member by member, and those like it by three calls of `struct`: that
# takes 1.3 µs a record besides the copy of its data. Member by member it takes 10 µs, and cbor2, a
# decoder in Rust, takes 2 µs: it makes a dict of each record first.

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import msgspec

from sparkinesis.stream.calls.answers.guards import UnreadError
from sparkinesis.stream.page import Page, Record
from sparkinesis.stream.position import END_OF_TIME_MS

_POSITIVE, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _OTHER = range(8)
"""The major types of RFC 8949."""
_WIDTHS = {24: 1, 25: 2, 26: 4, 27: 8}
"""The bytes of an argument that is not in its head, by the head's low bits."""
_ENDLESS = 31
_BREAK = 0xFF
_CONSTANTS = {20: False, 21: True, 22: None}
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}

_TIME = b"\xc1\x1b"
"""The head of a time: tag 1, and an integer of 8 bytes."""
_LEAST_MS, _MOST_MS = 100_000_000_000, END_OF_TIME_MS // 1000 * 1000
"""From 1973 on. In seconds, the least is the year 5138."""

_DEEPEST = 8
"""Items in one another. A page has six."""
_MOST_ITEMS = 200_000
"""Items that are read one by one: 20 for each of 10,000 records."""
_MOST_FORMS = 4

_Body: TypeAlias = bytes | bytearray


def encode_request(request: Mapping[str, str | int]) -> bytes:
    """Return the body of a request whose members are texts and counts, as the SDK for Java does."""
    members = [
        _text(name) + (_text(value) if isinstance(value, str) else _head(_POSITIVE, value))
        for name, value in request.items()
    ]
    return b"".join((bytes((_MAP << 5 | _ENDLESS,)), *members, bytes((_BREAK,))))


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _head(_TEXT, len(encoded)) + encoded


def _head(kind: int, argument: int) -> bytes:
    if argument < 24:
        return bytes((kind << 5 | argument,))
    low, width = next(pair for pair in _WIDTHS.items() if argument < 1 << 8 * pair[1])
    return bytes((kind << 5 | low,)) + argument.to_bytes(width, "big")


def read_page(body: _Body) -> Page:
    """Return a page, with its records as they come. Raises `UnreadError`."""
    records: list[Record] = []
    members = read_object(body, records)
    try:
        page = msgspec.convert(members, Page)
    except msgspec.ValidationError as error:
        raise UnreadError(str(error)) from None
    page.records.extend(records)
    return page


def read_object(body: _Body, records: list[Record] | None = None) -> dict[str, Any]:
    """Return the members of an answer. Raises `UnreadError`.

    records: takes the records of the answer, whose member ``Records`` is empty then.
    """
    reader = _Reader(body)
    try:
        members: dict[str, Any] = {}
        for name in reader.names():
            if name == "Records" and records is not None:
                members[name] = []
                _read_records(reader, records)
            else:
                members[name] = reader.item()
    except (IndexError, UnicodeDecodeError, struct.error) as error:
        raise UnreadError(f"it is no CBOR, or cut short: {error}") from None
    if reader.at != len(body):
        raise UnreadError("bytes follow the answer")
    return members


class _Reader:
    """Reads items one by one. Raises IndexError at the end of the body, and `UnreadError`."""

    def __init__(self, body: _Body) -> None:
        self.body = body
        self.at = 0
        self._depth = 0
        self._left = _MOST_ITEMS

    def names(self) -> Iterator[str]:
        """Yield the names of a map's members. The caller reads the item of each."""
        seen: set[str] = set()
        for _ in self.entries(_MAP):
            name = self.item()
            if not isinstance(name, str) or name in seen:
                raise UnreadError("a member has no name of its own")
            seen.add(name)
            yield name

    def entries(self, kind: int) -> Generator[int, int | None, None]:
        """Yield how many entries an array or a map still has, if it says so, else a number below 0.

        The caller reads each. It may send the number of those that it has read.
        """
        low = self._low(kind)
        is_endless = low == _ENDLESS
        left = -1 if is_endless else self._argument(low)
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnreadError("its items are nested too deeply")
        while left and not (is_endless and self.body[self.at] == _BREAK):
            left -= (yield left) or 1
        self.at += is_endless
        self._depth -= 1

    def item(self) -> Any:
        """Read an item; of one with a tag, what is tagged."""
        self._left -= 1
        if self._left < 0:
            raise UnreadError("it has too many items")
        kind = self.body[self.at] >> 5
        if kind == _ARRAY:
            return [self.item() for _ in self.entries(_ARRAY)]
        if kind == _MAP:
            return {name: self.item() for name in self.names()}
        low = self._low(kind)
        if kind == _OTHER:
            return self._other(low)
        argument = self._argument(low)
        if kind in {_BYTES, _TEXT}:
            found = bytes(self._take(argument))
            return found if kind == _BYTES else found.decode()
        if kind == _TAG:
            if self.body[self.at] >> 5 == _TAG:
                raise UnreadError("a tag has a tag")
            return self.item()
        return argument if kind == _POSITIVE else -1 - argument

    def time(self) -> float:
        """Read a time; return seconds."""
        if self._take(2) != _TIME:
            raise UnreadError("a time is no integer of 8 bytes under tag 1")
        return _seconds(int.from_bytes(self._take(8), "big"))

    def _low(self, kind: int) -> int:
        head = self.body[self.at]
        if head >> 5 != kind:
            raise UnreadError(f"an item has the head {head:x}")
        self.at += 1
        return head & 31

    def _argument(self, low: int) -> int:
        if low < 24:
            return low
        width = _WIDTHS.get(low)
        if width is None:
            raise UnreadError("an item has no length")
        return int.from_bytes(self._take(width), "big")

    def _other(self, low: int) -> bool | float | None:
        if low in _CONSTANTS:
            return _CONSTANTS[low]
        if low not in _FLOATS:
            raise UnreadError("an item has an unknown value")
        number: float = struct.unpack(_FLOATS[low], self._take(_WIDTHS[low]))[0]
        return number

    def _take(self, count: int) -> _Body:
        end = self.at + count
        if end > len(self.body):
            raise UnreadError("an item is longer than the answer")
        start, self.at = self.at, end
        return self.body[start:end]


def _seconds(ms: int) -> float:
    if not _LEAST_MS <= ms < _MOST_MS:
        raise UnreadError("a time is not in milliseconds")
    return ms / 1000


def _read_records(reader: _Reader, records: list[Record]) -> None:
    """Append the records of an array."""
    forms: list[_Form] = []
    view = memoryview(reader.body)
    entries = reader.entries(_ARRAY)
    left = next(entries, 0)
    while left:
        count = 0
        for form in forms:
            count, reader.at = form.read(view, reader.at, left, records)
            if count:
                break
        else:
            record, own = _read_record(reader)
            records.append(record)
            if own is not None and len(forms) < _MOST_FORMS:
                forms.append(own)
        try:
            left = entries.send(count or 1)
        except StopIteration:
            break


def _read_record(reader: _Reader) -> tuple[Record, _Form | None]:
    """Read a record member by member. Return its form, too, if others may have it."""
    start = reader.at
    members: dict[str, Any] = {}
    places: dict[str, tuple[int, int]] = {}
    for name in reader.names():
        head = reader.at
        members[name] = reader.time() if name == "ApproximateArrivalTimestamp" else reader.item()
        places[name] = head, reader.at
    try:
        # bytes as a type of its own: no text is taken for data in base64.
        record = msgspec.convert(members, Record, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise UnreadError(str(error)) from None
    if record.partition_key is None and "PartitionKey" in members:
        return record, None
    return record, _form(reader.body, start, reader.at, places, record)


class _Part(NamedTuple):
    """The bytes of a record up to a value of any length, and its length."""

    unpack: Callable[[memoryview, int], tuple[Any, ...]]
    """Returns bytes that are the same in each record, and values, in turn. The last value is the
    length, or the head that has it."""
    size: int
    same: tuple[bytes, ...]
    """The bytes that are the same."""
    base: int = 0
    """The head of an empty value; 0 if the length follows the head."""
    most: int = 0
    """The greatest length that such a head has."""


_NOTHING = _Part(lambda _, __: (b"", 0), 0, (b"",))
"""In place of a key."""


class _Form(NamedTuple):
    """The members of a record: their order, and the lengths of their heads."""

    parts: tuple[_Part, _Part, _Part]
    """Up to the first of data and key, up to the second one, and up to the end."""
    is_data_first: bool
    has_key: bool
    number: int
    """The place of the sequence number among what the parts return."""
    time: int

    def read(self, view: memoryview, at: int, most: int, records: list[Record]) -> tuple[int, int]:
        """Append the records of this form from ``at`` on; return how many, and the place behind.

        most: how many may follow; below 0 any number.
        """
        begin, middle, finish = self.parts
        first, first_size, first_same, first_base, first_most = begin
        second, second_size, second_same, second_base, second_most = middle
        last, last_size, last_same, _, _ = finish
        _, is_data_first, has_key, number, time = self
        count, append = 0, records.append
        with suppress(struct.error):  # the bytes end
            while count != most:
                values = first(view, at)
                if values[::2] != first_same:
                    break
                one = at + first_size
                length = values[-1] - first_base
                others = second(view, one + length)
                if others[::2] != second_same or not 0 <= length <= first_most:
                    break
                one_end = one + length
                two = one_end + second_size
                length = others[-1] - second_base
                at_end = two + length
                if not 0 <= length <= second_most:
                    break
                values += others
                if last_size:
                    others = last(view, at_end)
                    if others[::2] != last_same:
                        break
                    values += others
                ms = values[time]
                if not _LEAST_MS <= ms < _MOST_MS:
                    break
                data, key = view[one:one_end], view[two:at_end]
                if not is_data_first:
                    data, key = key, data
                append(
                    Record(
                        data=bytes(data),
                        partition_key=str(key, "utf-8") if has_key else None,
                        sequence_number=values[number].decode(),
                        approximate_arrival_timestamp=ms / 1000,
                    )
                )
                at = at_end + last_size
                count += 1
        return count, at


def _form(
    body: _Body, start: int, end: int, places: Mapping[str, tuple[int, int]], record: Record
) -> _Form | None:
    """Return the form of a record from ``start`` to ``end``, whose members are at ``places``.

    None for one without a time, or with heads that no other record has.
    """
    if "ApproximateArrivalTimestamp" not in places:
        return None
    lengths = {
        "Data": len(record.data),
        "PartitionKey": len((record.partition_key or "").encode()),
        "SequenceNumber": len(record.sequence_number),
        "ApproximateArrivalTimestamp": 8,
    }
    at, layout = start, ">"
    same: list[bytes] = []
    parts: list[_Part] = []
    values: list[str] = []
    for name in sorted(places.keys() & lengths.keys(), key=places.__getitem__):
        head, stop = places[name]
        value = stop - lengths[name]
        values.append(name)
        if name in {"Data", "PartitionKey"}:
            width = value - head - 1
            if width > 4:
                return None
            known = head + (width > 0)
            same.append(bytes(body[at:known]))
            unpacked = struct.Struct(f"{layout}{known - at}s{_LENGTHS[width]}")
            base = 0 if width else (_BYTES if name == "Data" else _TEXT) << 5
            most = (1 << 8 * width) - 1 if width else 23
            parts.append(_Part(unpacked.unpack_from, unpacked.size, tuple(same), base, most))
            layout, same = ">", []
            if name == "Data" and "PartitionKey" not in places:
                parts.append(_NOTHING)
                values.append("PartitionKey")
        else:
            same.append(bytes(body[at:value]))
            kind = "Q" if name == "ApproximateArrivalTimestamp" else f"{stop - value}s"
            layout += f"{value - at}s{kind}"
        at = stop
    unpacked = struct.Struct(f"{layout}{end - at}s")
    same.append(bytes(body[at:end]))
    first, second = parts
    return _Form(
        (first, second, _Part(unpacked.unpack_from, unpacked.size, tuple(same))),
        values.index("Data") < values.index("PartitionKey"),
        "PartitionKey" in places,
        2 * values.index("SequenceNumber") + 1,
        2 * values.index("ApproximateArrivalTimestamp") + 1,
    )


_LENGTHS = {0: "B", 1: "B", 2: "H", 4: "I"}
"""The formats of a length, by the bytes that follow the head; of none, the format of the head."""
