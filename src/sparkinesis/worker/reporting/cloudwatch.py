"""Metrics sent to CloudWatch by PutMetricData, with the names of the KCL for Java."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any, Literal

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ParamValidationError,
)

from sparkinesis.errors import OptionError
from sparkinesis.metrics.cloudwatch.publisher import Fate, Point, Publisher, Sent
from sparkinesis.metrics.cloudwatch.publishing_options import DEFAULT_MAX_SERIES, PublishingOptions
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import Metrics
from sparkinesis.public import public_metrics
from sparkinesis.stream.address import (
    FOUND_BY_BOTO,
    CredentialSource,
    check_place,
    repr_without_secrets,
)
from sparkinesis.stream.calls.retry import error_code, is_in_doubt
from sparkinesis.stream.calls.session import open_client

CALL_TIMEOUT = 5.0
"""Seconds that a call may take."""
CLOSE_WITHIN = 5.0
"""Seconds that the end of a worker waits for its last metrics."""

_INVALID = frozenset(
    {
        "InvalidParameterCombination",
        "InvalidParameterCombinationException",
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "MissingParameter",
        "MissingRequiredParameterException",
        "RequestEntityTooLarge",
        "ValidationError",
        "ValidationException",
    }
)
"""Error codes of requests that never succeed."""


@public_metrics
@dataclass(frozen=True)
class CloudWatchMetrics(PublishingOptions):
    """Publishes metrics in CloudWatch, with the KCL's names, units, dimensions and levels.

    CloudWatch bills each metric, and each combination of its dimensions is one. A thread of its own
    calls ``PutMetricData``; what it sends are statistic sets, whose number does not depend on the
    number of records. While CloudWatch refuses them, they are kept, up to ``max_series``, and sent
    later. A call without an answer is not repeated, so that nothing counts twice.

    Raises `OptionError` for a value that cannot be used.
    """

    namespace: str | None = None
    """Default: the application's name, as in the KCL."""
    level: Literal["summary", "detailed"] = "summary"
    """``"detailed"`` adds what the KCL publishes at its level DETAILED, which is the KCL's default
    (``metricsLevel``)."""
    shard_metrics: bool = False
    """True adds the dimension ``ShardId``: each shard then has metrics of its own, and is billed.
    The KCL's default is True (``metricsEnabledDimensions``)."""
    worker_metrics: bool = True
    """False leaves out the dimension ``WorkerIdentifier``, which the metrics of renewing and taking
    leases have: each worker that starts is a new one."""
    own_metrics: bool = True
    """False publishes only what the KCL publishes, too. True adds data loss, failed batches, dead
    letters, checkpoint age and others, with the operation ``Sparkinesis``."""
    region: str | None = None
    """Default: the application's region."""
    endpoint: str | None = None
    """CloudWatch's URL; default: that of the application if it is a local server, else AWS's."""
    credentials: CredentialSource | None = None
    """Default: the application's credentials."""
    flush_every: float = 10.0
    """Default: 10 s. The time between two calls (KCL ``metricsBufferTimeMillis``). CloudWatch keeps
    a value for each minute."""
    max_series: int = DEFAULT_MAX_SERIES
    """Default: 10,000. The most statistic sets that wait to be sent (KCL ``metricsMaxQueueSize``);
    beyond them, the oldest are dropped, which is logged. Each takes about 500 bytes."""

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        self.check(self.max_series)
        check_place(self.region, self.endpoint)
        if self.credentials is not None and not isinstance(self.credentials, CredentialSource):
            raise OptionError("credentials must be CredentialSource(...), or None.")

    def open(self, measured: Measured) -> Metrics:
        """Begin to publish the metrics of a worker, fleet or query. Calls nothing yet."""
        return self.publisher(measured).start()

    def publisher(self, measured: Measured) -> Publisher:
        """Return the publisher, which is not started."""
        place = measured.place
        credentials = self.credentials or place.credentials or FOUND_BY_BOTO
        assert isinstance(credentials, CredentialSource)
        region = self.region or place.region
        endpoint = self.endpoint or place.endpoint

        def connect() -> Any:
            return open_client(
                "cloudwatch",
                credentials,
                region,
                endpoint,
                read_timeout=CALL_TIMEOUT,
                max_pool_connections=1,
            )

        target = partial(PutMetricData, connect=connect)
        return self.publisher_to(target, measured, CLOSE_WITHIN, self.max_series)


class PutMetricData:
    """Sends points by PutMetricData. connect: makes a botocore client, at the first call."""

    name = "CloudWatch"

    def __init__(self, namespace: str, connect: Callable[[], Any]) -> None:
        self._namespace = namespace
        self._connect = connect
        self._client: Any = None

    def send(self, points: Sequence[Point]) -> Sent:
        data = [datum_of(point) for point in points]
        try:
            if self._client is None:
                self._client = self._connect()
        except (BotoCoreError, ClientError) as error:
            return Sent(Fate.KEPT, str(error), error_code(error))
        try:
            self._client.put_metric_data(Namespace=self._namespace, MetricData=data)
        except (BotoCoreError, ClientError) as error:
            return Sent(fate_after(error), str(error), error_code(error))
        return Sent(Fate.PUBLISHED)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def datum_of(point: Point) -> dict[str, Any]:
    """Return a point as a MetricDatum of PutMetricData."""
    values = point.values
    return {
        "MetricName": point.datum.name,
        "Unit": point.datum.unit,
        "Timestamp": datetime.fromtimestamp(point.minute * 60, timezone.utc),
        "Dimensions": [{"Name": name, "Value": value} for name, value in point.datum.dimensions],
        "StatisticValues": {
            "SampleCount": float(values.count),
            "Sum": float(values.sum),
            "Minimum": float(values.least),
            "Maximum": float(values.most),
        },
    }


def fate_after(error: BaseException) -> Fate:
    """Return what became of points whose call raised an error."""
    if isinstance(error, ParamValidationError) or error_code(error) in _INVALID:
        return Fate.INVALID
    if isinstance(error, ConnectTimeoutError | EndpointConnectionError):
        return Fate.KEPT  # never sent
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if status == 503:
            return Fate.KEPT  # refused before it was processed
    return Fate.LOST if is_in_doubt(error) else Fate.KEPT
