"""A decorator for methods that a processor must override."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def must_override(method: Method) -> Method:
    """Mark a method that only raises NotImplementedError.

    `abc.abstractmethod` will not do: amazon_kclpy allows instances that lack such a method, and its
    metaclass may conflict with other bases of user code.
    """
    method.must_override = True  # type: ignore[attr-defined]
    return method


def needs_override(method: object) -> bool:
    """Return True if a method is marked or abstract."""
    return bool(
        getattr(method, "must_override", False) or getattr(method, "__isabstractmethod__", 0)
    )
