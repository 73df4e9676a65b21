"""Which way of fetching a properties file asks for: ``retrievalMode`` and ``fanoutConfig.*``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkinesis.compat.kclpy import property_values as values
from sparkinesis.worker.options import FanOutOptions

KEYS = {
    "retrievalMode": values.retrieval_mode,
    "fanoutConfig.consumerName": values.name("a consumer's name", 1, 128),
    "fanoutConfig.consumerArn": values.text,
}

_POLLING_KEYS = frozenset({"maxRecords", "idleTimeBetweenReadsInMillis"})


def retrieval_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a worker; ``given``: values by key. Raises `OptionError`.

    Where ``retrievalMode`` is DEFAULT or not given, the daemon polls if any key of polling is, and
    else registers a consumer. Here that takes a key of enhanced fan-out too: a consumer is billed,
    and nobody should get one without having asked.
    """
    name, arn = given.get("fanoutConfig.consumerName"), given.get("fanoutConfig.consumerArn")
    mode = given.get("retrievalMode", "DEFAULT")
    if mode == "DEFAULT":
        asks = bool(name or arn) and _POLLING_KEYS.isdisjoint(given)
        mode = "FANOUT" if asks else "POLLING"
    if mode == "POLLING":
        return {}
    # To the daemon, too, the ARN comes first.
    fan_out = FanOutOptions(consumer_arn=arn) if arn else FanOutOptions(consumer_name=name)
    return {"retrieval": "efo", "fan_out": fan_out}
