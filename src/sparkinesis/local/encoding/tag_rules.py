"""The service's rules for tags that its model does not state: characters, and the number of tags.

Rules: https://docs.aws.amazon.com/streams/latest/dev/tagging.html
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping

from sparkinesis.local import errors
from sparkinesis.local.model.limits import MAX_TAGS

_RESERVED = "aws:"
_SYMBOLS = frozenset("_./=+-@:")


def check(resource: str, tags: Mapping[str, str], existing: Mapping[str, str]) -> None:
    """Raise KinesisError if tags may not be added to a resource, as in "stream s", with others."""
    failed = f"Failed to add tags to {resource} because"
    _check_characters(failed, [*tags, *tags.values()])
    reserved = [key for key in tags if key.lower().startswith(_RESERVED)]
    if reserved:
        raise errors.invalid_argument(
            f"{failed} the prefix {_RESERVED} is reserved: {', '.join(reserved)}."
        )
    if len({*existing, *tags}) > MAX_TAGS:
        kind = resource.partition(" ")[0]
        raise errors.invalid_argument(
            f"{failed} a given {kind} cannot have more than {MAX_TAGS} tags associated with it."
        )


def check_keys(resource: str, keys: Iterable[str]) -> None:
    """Raise KinesisError if no tag can have one of these keys."""
    _check_characters(f"Failed to remove tags from {resource} because", keys)


def _check_characters(failed: str, texts: Iterable[str]) -> None:
    characters = set("".join(texts))
    if not all(_is_allowed(character) for character in characters - {"%"}):
        raise errors.invalid_argument(
            "Some tags contain invalid characters. Valid characters: "
            "Unicode letters, digits, white space, _ . / = + - % @ :."
        )
    # The service lets this one pass its first check, and refuses it in the second.
    if "%" in characters:
        raise errors.invalid_argument(
            f"{failed} some tags contained illegal characters. The allowed characters are "
            "Unicode letters, white-spaces, '_',',','/','=','+','-','@',':'."
        )


def _is_allowed(character: str) -> bool:
    # Letters, numbers and separators; a tab and a line feed are none of these.
    return character in _SYMBOLS or unicodedata.category(character)[0] in "LNZ"
