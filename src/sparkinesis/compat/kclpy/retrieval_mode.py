"""The retrieval mode of a properties file: ``retrievalMode`` and ``fanoutConfig.*``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparkinesis.compat.kclpy import property_values as values
from sparkinesis.worker.options import FanOutOptions

KEYS: Mapping[str, Callable[[str], Any]] = {
    "retrievalMode": values.choice("FANOUT", "POLLING", "DEFAULT"),
    "fanoutConfig.consumerName": values.name("a consumer name", 1, 128),
    "fanoutConfig.consumerArn": str,
}

_POLLING_KEYS = frozenset({"maxRecords", "idleTimeBetweenReadsInMillis"})


def retrieval_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a worker's options; ``given``: values by key. Raises `OptionError`.

    If ``retrievalMode`` is DEFAULT or absent, the daemon polls if any key of polling is given, and
    else registers a consumer. Here, a consumer also requires a key of enhanced fan-out: consumers
    are billed, so they are only registered on request.
    """
    name, arn = given.get("fanoutConfig.consumerName"), given.get("fanoutConfig.consumerArn")
    mode = given.get("retrievalMode", "DEFAULT")
    if mode == "DEFAULT":
        wants_fan_out = bool(name or arn) and _POLLING_KEYS.isdisjoint(given)
        mode = "FANOUT" if wants_fan_out else "POLLING"
    if mode == "POLLING":
        return {}
    # The ARN takes precedence, as in the daemon.
    fan_out = FanOutOptions(consumer_arn=arn) if arn else FanOutOptions(consumer_name=name)
    return {"retrieval": "efo", "fan_out": fan_out}
