"""The probes: each measures on the bench, and on the stream of all, and yields its answers."""

from tests.aws.probes import (
    arrival_order,
    at_timestamp,
    encodings,
    lease_table,
    positions,
    reshard,
    tip,
)

PROBES = (
    at_timestamp.probe,
    arrival_order.probe,
    tip.probe,
    encodings.probe,
    reshard.probe,
    positions.probe,
    lease_table.probe,
)
"""In their order: the reshard closes shards that those before it read."""
