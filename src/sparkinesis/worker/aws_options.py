"""The options of what a worker creates at AWS, a lease table and a registered consumer; and checks.

`sparkinesis.worker.options` has the worker's own options, which are checked in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal, TypeAlias

from sparkinesis.errors import Check, OptionError, check_all
from sparkinesis.public import public
from sparkinesis.stream.address import CONSUMER_NAME, shown
from sparkinesis.worker.processors.user_calls import asynchronous

_CONSUMER_ARN = re.compile(
    r"arn:aws[a-z-]*:kinesis:[a-z0-9-]+:[0-9]{12}"
    r":stream/(?P<stream>[a-zA-Z0-9_.-]{1,128})/consumer/[a-zA-Z0-9_.-]{1,128}:[0-9]+"
)

LONGEST = 3_652 * 86_400.0
"""Seconds (ten years): longer than any wait, and small enough to add to any clock."""

_MOST = {"int": 2**31 - 1, "Bytes": 2**63 - 1, "float": LONGEST}
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "True or False"),
    "int": ((int,), f"a whole number below {2**31:,}"),
    "Bytes": ((int,), "a whole number of bytes"),
    "float": ((int, float), f"a number of seconds, {LONGEST:.0f} at most"),
}


def type_checks(options: Any) -> Iterator[Check]:
    """Yield a check of each option: that its value is of its type, and no number too large."""
    for each in fields(options):
        kind, _, none = str(each.type).partition(" | ")
        value = getattr(options, each.name)
        if kind in _KINDS and not (value is None and none == "None"):
            yield (each.name,), partial(_check_type, each.name, kind, value)


def _check_type(name: str, kind: str, value: Any) -> None:
    types, wanted = _KINDS[kind]
    is_of_type = isinstance(value, types) and isinstance(value, bool) == (kind == "bool")
    is_sane = kind == "bool" or (is_of_type and abs(value) <= _MOST[kind])
    if not is_of_type or not is_sane:
        raise OptionError(f"{name} is {shown_value(value)}; it must be {wanted}.")


def at_least(options: object, least: float, *names: str) -> Iterator[Check]:
    """Yield a check of each option whose number must not be too small."""

    def check(name: str, value: Any) -> None:
        if value is not None and value < least:
            raise OptionError(f"{name} is {value!r}; it must be a number of at least {least}.")

    return (((name,), partial(check, name, getattr(options, name))) for name in names)


def require_listener(on_event: object) -> None:
    """Raise `OptionError` for an ``on_event`` that is no plain function."""
    how = asynchronous(on_event)
    if on_event is not None and (how is not None or not callable(on_event)):
        given = how or f"is {shown_value(on_event)}"
        raise OptionError(f"on_event {given}; it must be a plain function that takes an event.")


def shown_value(value: object) -> str:
    try:
        return shown(value) if isinstance(value, str) else repr(value)[:200]
    except ValueError:  # a number of thousands of digits
        return f"a {type(value).__name__} too large to show"


BillingMode: TypeAlias = Literal["PAY_PER_REQUEST", "PROVISIONED"]


@public
@dataclass(frozen=True, slots=True)
class LeaseTableOptions:
    """The properties of a lease table that is created. An existing table is left as it is."""

    billing_mode: BillingMode = "PAY_PER_REQUEST"
    read_capacity: int = 10
    """Default: 10. Capacity units a second; for PROVISIONED only (KCL
    ``initialLeaseTableReadCapacity``)."""
    write_capacity: int = 10
    """Default: 10. Capacity units a second; for PROVISIONED only (KCL
    ``initialLeaseTableWriteCapacity``)."""
    point_in_time_recovery: bool = False
    """Default: False. True switches point-in-time recovery on at each start, for an existing table
    too, as the KCL does (``leaseTablePitrEnabled``). False never switches it off."""
    deletion_protection: bool = False
    """Default: False. True protects a new table from deletion (KCL
    ``leaseTableDeletionProtectionEnabled``)."""
    tags: tuple[tuple[str, str], ...] = ()
    """Default: none. Pairs of key and value for a new table (KCL ``tags``)."""

    def __post_init__(self) -> None:
        check_all(
            (
                (("billing_mode",), self._check_billing_mode),
                *type_checks(self),
                *at_least(self, 1, "read_capacity", "write_capacity"),
                (("tags",), self._check_tags),
            )
        )

    def _check_billing_mode(self) -> None:
        if self.billing_mode not in ("PAY_PER_REQUEST", "PROVISIONED"):
            raise OptionError(
                f"billing_mode is {self.billing_mode!r}; it must be PAY_PER_REQUEST or PROVISIONED."
            )

    def _check_tags(self) -> None:
        is_pairs = isinstance(self.tags, tuple) and all(
            isinstance(tag, tuple) and len(tag) == 2 and all(isinstance(text, str) for text in tag)
            for tag in self.tags
        )
        if not is_pairs:
            raise OptionError("tags must be a tuple of (key, value) pairs of strings.")


@public
@dataclass(frozen=True, slots=True)
class FanOutOptions:
    """Options of enhanced fan-out: the registered consumer that an application's workers share."""

    consumer_name: str | None = None
    """Default: the application's name. The consumer's name (KCL ``fanoutConfig.consumerName``). The
    consumer is registered if the stream has none of that name."""
    consumer_arn: str | None = None
    """Default: none. The ARN of an existing consumer (KCL ``fanoutConfig.consumerArn``). With an
    ARN, no consumer is registered or described."""
    fall_back_to_polling: bool = False
    """Default: False, which raises an error. True polls with GetRecords when registering the
    consumer is refused: the stream has its maximum of consumers, or the credentials lack the
    permission. A warning gives the reason. The KCL has no such option."""
    deregister: bool = False
    """Default: False, as in the KCL. True deregisters the consumer when the last worker shuts down
    gracefully. A registered consumer is billed by the hour, used or not."""

    def __post_init__(self) -> None:
        checks = [*type_checks(self)]
        if self.consumer_name is not None:
            name = self.consumer_name
            checks.append((("consumer_name",), lambda: check_consumer_name("consumer_name", name)))
        if self.consumer_arn is not None:
            checks.append((("consumer_arn",), self._check_arn))
        check_all(checks)

    def _check_arn(self) -> None:
        arn = self.consumer_arn
        if not isinstance(arn, str) or not _CONSUMER_ARN.fullmatch(arn):
            raise OptionError(
                f"consumer_arn is {arn!r}; it must be the ARN of a consumer, such as "
                "arn:aws:kinesis:eu-west-1:123456789012:stream/flights/consumer/app:1700000000."
            )
        for name in ("consumer_name", "fall_back_to_polling", "deregister"):
            if getattr(self, name):
                raise OptionError(
                    f"{name} is for a consumer that the worker registers; consumer_arn names an "
                    "existing one. Give one of the two options."
                )

    @property
    def stream_of_arn(self) -> str | None:
        """The name of the stream in ``consumer_arn``; None without an ARN."""
        found = _CONSUMER_ARN.fullmatch(self.consumer_arn or "")
        return found["stream"] if found else None


def check_consumer_name(option: str, name: str) -> None:
    """Raise `OptionError` unless ``name`` may be a consumer's (API reference, ConsumerName)."""
    if not isinstance(name, str) or not CONSUMER_NAME.fullmatch(name):
        raise OptionError(
            f"{option} is {name!r}; the name of a consumer has 1 to 128 letters, digits, '_', '.' "
            "and '-'."
        )


DEFAULT_FAN_OUT = FanOutOptions()
