"""Validation of requests against botocore's model of the service.

A value of the wrong type raises a SerializationException; a value that breaks a constraint (length,
range, pattern, enumeration, presence) raises a ValidationException with the service's wording.

The rules for tags are not in the model:
https://docs.aws.amazon.com/streams/latest/dev/tagging.html
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from sparkinesis.local import service_errors
from sparkinesis.local.model.limits import MAX_TAGS

Types = Mapping[str, tuple[type[Any], ...]]

# The Python types that each type of the service model decodes to from JSON.
JSON_TYPES: Types = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
    "string": (str,),
    "blob": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "double": (int, float),
    "timestamp": (int, float),
}


@functools.lru_cache(maxsize=1)
def _service() -> Any:
    # Imported late: it takes a tenth of a second.
    from botocore.loaders import Loader  # noqa: PLC0415
    from botocore.model import ServiceModel  # noqa: PLC0415

    return ServiceModel(Loader().load_service_model("kinesis", "service-2"), "kinesis")


def check_known(operation: str) -> None:
    """Raise KinesisError if this botocore, an old one, does not know an operation."""
    if operation not in _service().operation_names:
        import botocore  # noqa: PLC0415 - imported late, as above

        raise service_errors.unknown_to_botocore(operation, botocore.__version__)


@functools.cache
def input_shape(operation: str) -> Any:
    return _service().operation_model(operation).input_shape


@functools.cache
def timestamps() -> frozenset[str]:
    """Return the names of the members that are instants, in requests and responses."""
    shapes = map(_service().shape_for, _service().shape_names)
    structures = (shape.members for shape in shapes if shape.type_name == "structure")
    return frozenset(
        name
        for members in structures
        for name, member in members.items()
        if member.type_name == "timestamp"
    )


def check(operation: str, request: Any) -> None:
    """Validate a decoded JSON request. Raises: KinesisError."""
    check_types(operation, request, JSON_TYPES)
    check_constraints(operation, request)


def check_types(operation: str, request: Any, types: Types) -> None:
    """Raise KinesisError if a member of a decoded request has the wrong type."""
    _check_type(request, input_shape(operation), types)


def check_constraints(operation: str, request: Any) -> None:
    """Raise KinesisError if a type-checked request breaks a constraint."""
    problems = list(_problems(request, input_shape(operation), ""))
    if problems:
        raise service_errors.validation(*problems[:10])


def check_given(operation: str, members: Mapping[str, Any]) -> None:
    """Raise KinesisError if one of these members, all well-typed or None, breaks a constraint."""
    shapes = input_shape(operation).members
    problems = [
        problem
        for name, value in members.items()
        if value is not None
        for problem in _problems(value, shapes[name], _lower(name))
    ]
    if problems:
        raise service_errors.validation(*problems)


def _check_type(value: Any, shape: Any, types: Types) -> None:
    # `type`, not isinstance: bool is a subclass of int in Python, but not on the wire.
    if type(value) not in types[shape.type_name]:
        raise service_errors.serialization(
            f"{type(value).__name__} can not be converted to {shape.type_name} {shape.name}"
        )
    if shape.type_name == "blob":
        _check_blob(value)
    elif shape.type_name == "structure":
        for name, member in shape.members.items():
            if value.get(name) is not None:
                _check_type(value[name], member, types)
    elif shape.type_name == "list":
        for item in value:
            _check_type(item, shape.member, types)
    elif shape.type_name == "map":
        for key, item in value.items():
            _check_type(key, shape.key, types)
            _check_type(item, shape.value, types)


def _check_blob(value: str | bytes) -> None:
    try:
        msgspec.convert(value, bytes)
    except msgspec.ValidationError:
        raise service_errors.serialization(
            f"'{value[:40]!s}' can not be converted to a Blob: it is not base64"
        ) from None


def _problems(value: Any, shape: Any, where: str) -> Iterator[str]:
    yield from _own_problems(value, shape, where)
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            at = f"{where}.{_lower(name)}" if where else _lower(name)
            item = value.get(name)
            if item is not None:
                yield from _problems(item, member, at)
            elif name in shape.required_members:
                yield violation("null", at, "Member must not be null")
    elif shape.type_name == "list" and shape.member.type_name == "structure":
        for number, item in enumerate(value, 1):
            yield from _problems(item, shape.member, f"{where}.{number}.member")
    elif shape.type_name == "list":
        yield from _item_problems(value, value, shape.member, where, "Member")
    elif shape.type_name == "map":
        yield from _item_problems(value, value, shape.key, where, "Map keys")
        yield from _item_problems(value, value.values(), shape.value, where, "Map value")


def _item_problems(
    value: Any, items: Iterable[Any], shape: Any, where: str, noun: str
) -> Iterator[str]:
    """Return the service's one problem for all strings of a list or map, which it shows whole."""
    if any(rule for item in items for rule in _broken_rules(item, shape)):
        rules = ", ".join(rule for rule, _ in _rules(shape))
        yield violation(f"'{_shown(value)}'", where, f"{noun} must satisfy constraint: [{rules}]")


def _own_problems(value: Any, shape: Any, where: str) -> Iterator[str]:
    for rule in _broken_rules(value, shape):
        yield violation(f"'{_shown(value)}'", where, rule)


def _broken_rules(value: Any, shape: Any) -> list[str]:
    return [rule for rule, holds in _rules(shape) if not holds(value)]


@functools.cache
def _rules(shape: Any) -> list[tuple[str, Callable[[Any], bool]]]:
    """Return the constraints of a shape, each in the service's words and as a condition."""
    limits, kind = shape.metadata, shape.type_name
    if kind == "blob":
        return []  # the size limit depends on the stream: `operations.put` checks it
    number = kind in {"integer", "long"}
    noun = "value" if number else "length"
    size: Callable[[Any], int] = int if number else len
    rules: list[tuple[str, Callable[[Any], bool]]] = []
    if "max" in limits:
        most = limits["max"]
        rule = f"Member must have {noun} less than or equal to {most}"
        rules.append((rule, lambda value: size(value) <= most))
    if "min" in limits:
        least = limits["min"]
        rule = f"Member must have {noun} greater than or equal to {least}"
        rules.append((rule, lambda value: size(value) >= least))
    if "pattern" in limits:
        pattern = limits["pattern"]
        rule = f"Member must satisfy regular expression pattern: {pattern}"
        rules.append((rule, lambda value: _pattern(pattern).fullmatch(value) is not None))
    if "enum" in limits:
        known = limits["enum"]
        rule = f"Member must satisfy enum value set: [{', '.join(known)}]"
        rules.append((rule, lambda value: value in known))
    return rules


def _shown(value: Any) -> str:
    """Return a value as in the service's messages, without its quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={item}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        plain = all(isinstance(item, str) for item in value)
        return f"[{', '.join(value)}]" if plain else f"[{len(value)} members]"
    return str(value)


def violation(value: str, where: str, rule: str) -> str:
    """Return one problem in the wording of ValidationException. `value` includes its quotes."""
    return f"Value {value} at '{where}' failed to satisfy constraint: {rule}"


@functools.cache
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.removeprefix("^").removesuffix("$"))


def _lower(name: str) -> str:
    return name[0].lower() + name[1:]


_RESERVED = "aws:"
_SYMBOLS = frozenset("_./=+-@:")


def check_tags(resource: str, tags: Mapping[str, str], existing: Mapping[str, str]) -> None:
    """Raise KinesisError if tags may not be added to a resource, as in "stream s", with others."""
    failed = f"Failed to add tags to {resource} because"
    _check_characters(failed, [*tags, *tags.values()])
    reserved = [key for key in tags if key.lower().startswith(_RESERVED)]
    if reserved:
        raise service_errors.invalid_argument(
            f"{failed} the prefix {_RESERVED} is reserved: {', '.join(reserved)}."
        )
    if len({*existing, *tags}) > MAX_TAGS:
        kind = resource.partition(" ")[0]
        raise service_errors.invalid_argument(
            f"{failed} a given {kind} cannot have more than {MAX_TAGS} tags associated with it."
        )


def check_tag_keys(resource: str, keys: Iterable[str]) -> None:
    """Raise KinesisError if no tag can have one of these keys."""
    _check_characters(f"Failed to remove tags from {resource} because", keys)


def _check_characters(failed: str, texts: Iterable[str]) -> None:
    characters = set("".join(texts))
    if not all(_is_allowed(character) for character in characters - {"%"}):
        raise service_errors.invalid_argument(
            "Some tags contain invalid characters. Valid characters: "
            "Unicode letters, digits, white space, _ . / = + - % @ :."
        )
    # The service lets this one pass its first check, and refuses it in the second.
    if "%" in characters:
        raise service_errors.invalid_argument(
            f"{failed} some tags contained illegal characters. The allowed characters are "
            "Unicode letters, white-spaces, '_',',','/','=','+','-','@',':'."
        )


def _is_allowed(character: str) -> bool:
    # Letters, numbers and separators; a tab and a line feed are none of these.
    return character in _SYMBOLS or unicodedata.category(character)[0] in "LNZ"
