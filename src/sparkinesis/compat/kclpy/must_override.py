"""Marks what a processor must write itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def must_override(method: Method) -> Method:
    """Mark a method that only raises NotImplementedError.

    Not `abc.abstractmethod`: amazon_kclpy lets instances be made that lack one, and code derives
    from several bases in ways that a metaclass may forbid.
    """
    method.must_override = True  # type: ignore[attr-defined]
    return method


def needs_override(method: object) -> bool:
    """Whether a method is marked, or abstract."""
    return bool(
        getattr(method, "must_override", False) or getattr(method, "__isabstractmethod__", 0)
    )
