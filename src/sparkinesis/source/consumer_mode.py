"""The options that choose between polling and enhanced fan-out, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkinesis.errors import OptionError

if TYPE_CHECKING:
    from sparkinesis.source.options.options import Options


@dataclass(frozen=True, slots=True)
class FanOut:
    """Read as a registered consumer of each stream, by SubscribeToShard."""

    consumer_name: str
    deregister: bool
    """Deregister the consumer when the query stops."""


def fan_out(options: Options) -> FanOut | None:
    """What ``consumerMode=efo`` was given; None for polling. Raises `OptionError`."""
    name: str | None = options["consumerName"]
    if options["consumerMode"] == "efo":
        if name is None:
            raise OptionError(
                "The option consumerMode=efo needs the option consumerName, under which the query "
                "is registered with its streams. Give each query a name of its own, and let it "
                "keep that when it restarts: two queries of one name take each other's "
                "subscriptions."
            )
        return FanOut(name, options["requireConsumerDeregistration"])
    for other in ("consumerName", "requireConsumerDeregistration"):
        if other in options.given:
            raise OptionError(
                f"The option {options.given[other]} is about a consumer with enhanced fan-out. "
                "Leave it out, or set the option consumerMode to efo."
            )
    return None
