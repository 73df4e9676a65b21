"""Properties files, by the examples of ``java.util.Properties.load`` and beyond."""

from __future__ import annotations

import pytest

from sparkinesis.compat.kclpy.properties import Entry, decode, parse
from sparkinesis.errors import OptionError


def pairs(text: str) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in parse(text, "f")]


@pytest.mark.parametrize("line", ["k=v", "k:v", "k v", "k = v", "  k\t:  v", "k\fv", "k =v"])
def test_a_key_ends_at_an_equals_sign_a_colon_or_a_blank(line: str) -> None:
    assert pairs(line) == [("k", "v")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# c\n ! c\n\n \t\nk=v", [("k", "v")]),
        ("k", [("k", "")]),
        ("k=", [("k", "")]),
        ("=v", [("", "v")]),
        ("k==v", [("k", "=v")]),
        ("k= = v", [("k", "= v")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("k=v  ", [("k", "v  ")]),
        ("k=a # no comment", [("k", "a # no comment")]),
        ("fruits  apple, \\\n    pear, \\\r\n  fig", [("fruits", "apple, pear, fig")]),
        ("k=a\\\n# goes on", [("k", "a# goes on")]),
        ("k=a\\\\\nl=b", [("k", "a\\"), ("l", "b")]),
        ("k=a\\", [("k", "a")]),
        ("# c\\\nk=v", [("k", "v")]),
        ("a\\=b\\:c\\ d=v", [("a=b:c d", "v")]),
        ("k=\\t\\n\\r\\f\\z\\\\", [("k", "\t\n\r\fz\\")]),
        ("k=\\u0041\\u00e9\\ud83d\\ude00", [("k", "Aé😀")]),
        ("k=1\nk=2", [("k", "1"), ("k", "2")]),
        ("", []),
    ],
)
def test_reading(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_an_entry_knows_the_line_of_its_key() -> None:
    entries = parse("# c\na=1 \\\n  2\n\nb=3", "f")
    assert entries == [Entry("a", "1 2", 2), Entry("b", "3", 5)]


@pytest.mark.parametrize("value", ["\\u12", "\\uxyzw", "\\u"])
def test_a_broken_escape_is_refused_with_its_place(value: str) -> None:
    with pytest.raises(OptionError, match=r"my\.properties, line 2: .*four hexadecimal digits"):
        parse(f"a=1\nb={value}", "my.properties")


def test_text_is_utf_8_or_else_latin_1() -> None:
    assert decode("k=é".encode()) == "k=é"
    assert decode("k=é".encode("latin-1")) == "k=é"
    assert decode(b"\xef\xbb\xbfk=v") == "k=v"
