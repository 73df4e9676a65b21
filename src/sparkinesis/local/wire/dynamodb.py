"""DynamoDB, STS and CloudWatch: moto's server, in a child process that never outlives this process.

`main` runs in the child: it prints its port and serves one request at a time, because moto's
conditional writes are atomic only then. The child exits when its standard input ends, which happens
even if the parent is killed. The first line of its standard input is a secret that every request
has to bring, so that no web page and no other program calls moto past the checks of the parent.

The child corrects moto: what differs from DynamoDB so that a Java KCL notices, and from CloudWatch.

- ``AttributeUpdates``, which Java KCLs update leases with: moto stores bytes and booleans that such
  an update puts as texts, and a set of bytes as a list. A Java KCL would find no state beside a
  checkpoint that it had prepared.
- An index that exists: moto answers 500, with a traceback on standard error, when two Java workers
  that start at the same time create the index of the lease table.
- Memory and time: moto keeps a list of all rows that it ever returned, and serializes each value in
  each way that it knows.
- Metric data: moto's GetMetricData ignores the namespace if it is given dimensions, so that two
  applications would be one. ListMetrics names a metric of two dimensions once for each of its
  values. And moto keeps all values for as long as it runs.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sparkinesis.errors import SparkinesisError

if TYPE_CHECKING:
    import urllib3

    from sparkinesis.local.wire.answer import Answer


_SKIPPED = {b"connection", b"transfer-encoding", b"content-length", b"date", b"server"}
_BRINGS_SECRET = "x-sparkinesis-secret"  # noqa: S105 - a header
_NAMES_SERVICE = "x-sparkinesis-service"
_SERVICES = frozenset({"dynamodb", "sts", "cloudwatch"})


class MotoError(SparkinesisError):
    """moto's server did not start."""


class Moto:
    """The child process and the connection pool to it. The child starts on the first request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Calls wait here for their turn, not for the pool's only connection: closing the pool would
        # not wake them.
        self._turn = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._stopped = False
        self._secret = secrets.token_hex(16)

    @property
    def pid(self) -> int | None:
        """The child's process id; None if it is not running."""
        return self._child.pid if self._child is not None else None

    def start(self) -> urllib3.HTTPConnectionPool:
        """Start the child if it is not running, and return the pool. Raises: MotoError."""
        with self._lock:
            if self._stopped:
                raise MotoError("the local server is stopping")
            if self._pool is None:
                port = self._spawn()
                import urllib3  # noqa: PLC0415

                self._pool = urllib3.HTTPConnectionPool("127.0.0.1", port, maxsize=1)
            return self._pool

    def _spawn(self) -> int:
        if importlib.util.find_spec("moto") is None:
            raise MotoError(
                "moto, which serves DynamoDB, is not installed: pip install 'sparkinesis[local]'"
            )
        self._child = child = subprocess.Popen(
            [sys.executable, "-c", "from sparkinesis.local.wire.dynamodb import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        # An error here means that the child has ended, and prints no port.
        with contextlib.suppress(OSError):
            child.stdin.write(f"{self._secret}\n".encode())
            child.stdin.flush()
        line = child.stdout.readline().strip()
        if not line.isdigit():
            self._end_child()
            raise MotoError("moto did not start; see its message on standard error")
        return int(line)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._end_child()
            if self._pool is not None:
                self._pool.close()

    def _end_child(self) -> None:
        child = self._child
        if child is None:
            return
        self._child = None
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        child.wait()

    def forward(
        self,
        service: str,
        method: str,
        path: str,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes,
    ) -> Answer:
        """Return moto's answer; wait for it in this thread."""
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        from sparkinesis.local.wire.answer import Answer, text  # noqa: PLC0415

        passed_on = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in headers
            if name not in _SKIPPED
        }
        passed_on[_BRINGS_SECRET] = self._secret
        passed_on[_NAMES_SERVICE] = service
        try:
            with self._turn:
                response = self.start().urlopen(
                    method,
                    path,
                    body=body,
                    headers=passed_on,
                    redirect=False,
                    retries=False,
                    decode_content=False,
                )
        except MotoError as error:
            # 501, because clients retry after 500, 502, 503 and 504.
            return text(501, str(error))
        except HTTPError as error:
            return text(503, str(error))
        answered = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in response.headers.items()
        ]
        return Answer(
            response.status, [pair for pair in answered if pair[0] not in _SKIPPED], response.data
        )


def _exit_with_parent() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


class _Services:
    """Services of moto as a WSGI application; no other service can be reached.

    make: makes moto's application of one service. secret: every request has to bring it.
    """

    def __init__(self, make: Callable[[str], Any], secret: str) -> None:
        self._make = functools.cache(make)
        self._secret = secret

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        brought = str(environ.get("HTTP_X_SPARKINESIS_SECRET", ""))
        if not hmac.compare_digest(brought.encode(), self._secret.encode()):
            start_response("403 Forbidden", [("Content-Length", "0")])
            return []
        service = str(environ.get("HTTP_X_SPARKINESIS_SERVICE"))
        if service not in _SERVICES:
            start_response("400 Bad Request", [("Content-Length", "0")])
            return []
        from botocore.model import OperationNotFoundError  # noqa: PLC0415

        try:
            answer: Iterable[bytes] = self._make(service)(environ, start_response)
        # Before moto has begun its response: the parent reports it in the caller's protocol.
        except (NotImplementedError, OperationNotFoundError) as error:
            status, said = "501 Not Implemented", f"moto does not serve this: {error}"
        except RecursionError as error:
            # The request is nested too deeply for moto alone.
            status, said = "400 Bad Request", str(error)
        else:
            return answer
        body = said.encode()
        kind, length = ("Content-Type", "text/plain"), ("Content-Length", str(len(body)))
        start_response(status, [kind, length])
        return [body]


def main() -> None:
    """Run moto's server in the child process; the first line of its output is its port."""
    # Ctrl-C in a terminal reaches the child too; the parent stops the child.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    secret = sys.stdin.buffer.readline().decode().strip()
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    import logging  # noqa: PLC0415

    # Without this, moto lets the pages of every site read its answers.
    os.environ["MOTO_DISABLE_GLOBAL_CORS"] = "true"
    from moto.server import create_backend_app  # noqa: PLC0415
    from werkzeug.serving import make_server  # noqa: PLC0415

    from sparkinesis.local.wire import partiql  # noqa: PLC0415

    partiql.install()
    _correct_dynamodb()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)

    def make(service: str) -> Any:
        if service == "cloudwatch":  # half a second to import, which few need
            correct_cloudwatch()
        return create_backend_app(service)

    app: Any = _Services(make, secret)
    server = make_server("127.0.0.1", 0, app, threaded=False)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


_MISTAKEN = {"B", "BOOL", "BS"}
_PLAIN = {"S": str, "N": str, "BOOL": bool}
"""The kinds of DynamoDB's values that moto holds as it has to send them."""


def _correct_dynamodb() -> None:
    """Correct moto's DynamoDB in this process."""
    stop_recording_models()
    _pass_values_on()
    _install_updates()
    _install_indexes()


MOST_VALUES = 100_000


def correct_cloudwatch() -> None:
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
