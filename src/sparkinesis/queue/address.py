"""The address of a queue: its ARN and its place. Checks what users write of a queue."""

from __future__ import annotations

import re

import msgspec

from sparkinesis.errors import OptionError
from sparkinesis.stream.address import (
    FOUND_BY_BOTO,
    CredentialSource,
    check_place,
    place_of,
    repr_without_secrets,
    shown,
)

LONGEST_VISIBILITY = 43_200
"""The longest visibility timeout in seconds (API reference)."""

QUEUE_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
QUEUE_ARN = re.compile(
    r"arn:aws[^:]*:kinesis:(?P<region>[a-z0-9-]+):[0-9]{12}:queue/(?P<id>[^\s/:]{1,1024})"
)


class QueueAddress(msgspec.Struct, frozen=True):
    """The ARN and location of a queue. It never holds credentials."""

    arn: str
    name: str | None = None
    """None for a queue that was given by its ARN and is not described yet: an ARN has an id."""
    region: str | None = None
    endpoint: str | None = None
    """The URL of queues, which may be another one than that of streams: see `NewQueue`."""
    credentials: CredentialSource = FOUND_BY_BOTO

    @property
    def queue_id(self) -> str:
        """The id that the service has generated: the part of the ARN behind ``queue/``."""
        return self.arn.rpartition("queue/")[2]

    @property
    def name_or_id(self) -> str:
        """The name, as far as it is known; else the id."""
        return self.name or self.queue_id

    @property
    def label(self) -> str:
        """The queue in measurements, where others have the name of a stream."""
        return f"queue/{self.name_or_id}"

    def __repr__(self) -> str:
        return repr_without_secrets(self)

    def __str__(self) -> str:
        place = place_of(self.region, self.endpoint, self.credentials.profile)
        named = self.queue_id if self.name is None else f"{self.name!r} ({self.queue_id})"
        return f"queue {named} in {place}"


def queue_address(
    arn: str,
    region: str | None = None,
    endpoint: str | None = None,
    credentials: CredentialSource = FOUND_BY_BOTO,
) -> QueueAddress:
    """Return the address of a queue from its ARN. Raises `OptionError`.

    region: None: that of the ARN. A region that contradicts the ARN is refused: the host of a
    queue's calls is made of the region that is given, and would be one without this queue.
    """
    check_place(region, endpoint)
    found = QUEUE_ARN.fullmatch(arn)
    if found is None:
        of_stream = " NewQueue(stream=...) makes a queue of a stream." if ":stream/" in arn else ""
        raise OptionError(
            f"queue is {shown(arn)}; a queue's ARN looks like arn:aws:kinesis:<region>:<account>:"
            f"queue/<id>, with an id that the service generates.{of_stream}"
        )
    if region is not None and region != found["region"]:
        raise OptionError(
            f"region is {region!r}, but the queue's ARN names {found['region']!r}: {arn}. Leave "
            "region out, or give the ARN of the queue that is meant."
        )
    return QueueAddress(arn, None, found["region"], endpoint, credentials)


def check_queue_name(name: str) -> None:
    """Raise `OptionError` for a text that is no queue's name."""
    if not QUEUE_NAME.fullmatch(name):
        raise OptionError(
            f"queue is {shown(name)}; a queue's name has 1 to 128 letters, digits, '_', '.' and "
            "'-'. Its ARN will do as well."
        )


def check_whole(name: str, value: object, least: int, most: int, also: str = "") -> None:
    """Raise `OptionError` for what is no whole number within bounds. True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise OptionError(
            f"{name} is {value!r}; it must be a whole number from {least:,} to {most:,}{also}."
        )
