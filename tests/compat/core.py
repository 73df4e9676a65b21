"""The tests that `make compat` runs in each environment: each door, in a few minutes.

The whole suite holds the properties. These tests notice a package that answers otherwise than the
one that the suite runs with.
"""

from __future__ import annotations

CORE = """
compat/installed.py

# The source: reads, writes, enhanced fan-out, a restart
spark/test_batch_read.py
spark/test_fan_out.py
spark/test_p2_no_gap_no_overlap.py
spark/test_sink.py
spark/test_sql.py
spark/test_testing_kit.py
unit/source/options
unit/test_pyspark_package.py

# Workers, and a small fleet
integration/worker/test_cloudwatch.py
integration/worker/test_opentelemetry.py
integration/worker/test_w1_order.py
integration/worker/test_w2_checkpoints.py
spark/test_fleet_local.py
unit/fleet/test_channel.py
unit/fleet/test_channel_tls.py
unit/fleet/test_control_server.py
unit/fleet/test_driver_link.py
unit/worker/batches
unit/worker/sink

# The lease table
integration/lease/test_golden_rows.py
integration/lease/test_table.py

# Calls, and their answers
integration/queue/test_calls.py
integration/queue/test_old_boto3.py
integration/stream/test_watched_subscription.py
unit/stream/calls
unit/stream/kpl

# The local server, commands, the page, the testing kit
integration/local/test_cloudwatch.py
integration/local/test_command.py
integration/local/test_dynamodb.py
integration/local/test_http2.py
integration/local/test_partiql.py
integration/testing/test_documented.py
integration/ui/test_requests.py
unit/cli
unit/metrics/test_prometheus.py
unit/monitor/doctor
unit/ui
"""

CONNECT = """
spark/test_connect.py::test_workers_of_a_killed_client_release_their_leases_to_the_next
"""
"""Where grpc is installed."""

LEFT_OUT = """
unit/stream/calls/direct/test_signed_request.py::test_a_signature_is_that_of_botocore
"""
"""Tests that need a newer package than the product does: they call what only that one has."""


def listed(table: str) -> list[str]:
    """The lines of a table, as paths from the root."""
    lines = (line.strip() for line in table.splitlines())
    return [f"tests/{line}" for line in lines if line and not line.startswith("#")]
