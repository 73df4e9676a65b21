"""Corrections of moto: differences from DynamoDB that a Java KCL notices, and from CloudWatch.

``AttributeUpdates``, which Java KCLs update leases with: moto stores bytes and booleans that such
an update puts as texts, and a set of bytes as a list. A Java KCL would find no state beside a
checkpoint that it had prepared.

An index that exists: moto answers 500, with a traceback on standard error, when two Java workers
that start at the same time create the index of the lease table.

Memory and time: moto keeps a list of all rows that it ever returned, and serializes each value in
each way that it knows.

Metric data: moto's GetMetricData ignores the namespace if it is given dimensions, so that two
applications would be one. ListMetrics names a metric of two dimensions once for each of its values.
And moto keeps all values for as long as it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_MISTAKEN = {"B", "BOOL", "BS"}
_PLAIN = {"S": str, "N": str, "BOOL": bool}
"""The kinds of DynamoDB's values that moto holds as it has to send them."""


def install() -> None:
    """Correct moto's DynamoDB in this process."""
    stop_recording_models()
    _pass_values_on()
    _install_updates()
    _install_indexes()


MOST_VALUES = 100_000


def install_metrics() -> None:
    """Make moto's CloudWatch, in this process, keep namespaces apart, and name each metric once.

    And forget the oldest values.
    """
    from moto.cloudwatch.models import CloudWatchBackend  # noqa: PLC0415

    get, put = CloudWatchBackend.get_metric_data, CloudWatchBackend.put_metric_data

    def get_metric_data(self: Any, queries: Iterable[Any], *args: Any, **named: Any) -> Any:
        queries = list(queries)
        spaces = {
            query["MetricStat"]["Metric"]["Namespace"] for query in queries if "MetricStat" in query
        }
        if len(spaces) != 1:
            return get(self, queries, *args, **named)
        (space,) = spaces
        everything = self.metric_data
        self.metric_data = [each for each in everything if each.namespace == space]
        try:
            return get(self, queries, *args, **named)
        finally:
            self.metric_data = everything

    def put_metric_data(self: Any, *args: Any, **named: Any) -> None:
        put(self, *args, **named)
        del self.metric_data[:-MOST_VALUES]

    def get_filtered_metrics(self: Any, *args: Any, **named: Any) -> list[Any]:
        found = {_identity(one): one for one in filtered(self, *args, **named)}
        return list(found.values())

    filtered = CloudWatchBackend.get_filtered_metrics
    CloudWatchBackend.get_filtered_metrics = get_filtered_metrics
    CloudWatchBackend.get_metric_data = get_metric_data
    CloudWatchBackend.put_metric_data = put_metric_data


def _identity(metric: Any) -> tuple[object, ...]:
    dimensions = frozenset((one.name, one.value) for one in metric.dimensions)
    return metric.namespace, metric.name, dimensions


def _install_updates() -> None:
    from moto.dynamodb.models.dynamo_type import DynamoType, Item  # noqa: PLC0415

    by_moto = Item.update_with_attribute_updates

    def update(self: Any, attribute_updates: Mapping[str, Mapping[str, Any]]) -> None:
        rest = dict(attribute_updates)
        for name, change in attribute_updates.items():
            value = change.get("Value", {})
            if change.get("Action", "PUT") == "PUT" and value.keys() & _MISTAKEN:
                self.attrs[name] = DynamoType(value)
                del rest[name]
        by_moto(self, rest)

    Item.update_with_attribute_updates = update


def _install_indexes() -> None:
    from moto.dynamodb.exceptions import MockValidationException  # noqa: PLC0415
    from moto.dynamodb.models import DynamoDBBackend  # noqa: PLC0415

    by_moto = DynamoDBBackend.update_table_global_indexes

    def update(self: Any, table: Any, updates: Iterable[Mapping[str, Any]]) -> None:
        updates = list(updates)
        there = {index.name for index in table.global_indexes}
        if any(update.get("Create", {}).get("IndexName") in there for update in updates):
            raise MockValidationException("Attempting to create an index which already exists")
        by_moto(self, table, updates)

    DynamoDBBackend.update_table_global_indexes = update


def stop_recording_models() -> None:
    """Stop moto, in this process, from keeping a list of all models that it ever made.

    moto lists them for a web page: a copy of each row of each Scan, for as long as it runs.
    """
    from moto.core.common_models import BaseModel  # noqa: PLC0415

    BaseModel.__new__ = staticmethod(lambda cls, *_, **__: object.__new__(cls))


def _pass_values_on() -> None:
    """Have moto, in this process, answer with the texts, numbers and booleans of rows as they are.

    moto looks for a value of each kind in each value, by several spellings: 0.4 ms a lease. A
    version of moto without that serializer stays as it is.
    """
    try:
        from moto.core.serialize import JSONSerializer  # noqa: PLC0415
    except ImportError:
        return
    by_moto = JSONSerializer._serialize_type_structure

    def serialize(self: Any, serialized: Any, value: Any, shape: Any, key: str) -> None:
        if shape.name == "AttributeValue" and isinstance(value, dict) and len(value) == 1:
            ((kind, plain),) = value.items()
            if type(plain) is _PLAIN.get(kind):
                self._default_serialize(serialized, value, shape, key)
                return
        by_moto(self, serialized, value, shape, key)

    JSONSerializer._serialize_type_structure = serialize
