"""Errors of a worker name no option of a DataFrame, nor the other way round."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoRegionError,
)

import sparkinesis
from sparkinesis.source.options.option_table import OPTIONS
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.explain import explain
from sparkinesis.stream.position import AfterRecord, AtTimestamp, Position

SPARKS = {name for name in OPTIONS if re.search("[a-z][A-Z]", name)} | {"startingPosition"}
WORKERS = {"initial_position", "sts_endpoint", "consumer_name", "sparkinesis reset"}
_ROOT = Path(sparkinesis.__file__).parent

_FIRST, _AT = AfterRecord("1"), AtTimestamp(4_070_908_800_000)
_FAILURES: list[tuple[str, str | None, Position | None]] = [
    ("ResourceNotFoundException", None, None),
    ("ResourceNotFoundException", "shardId-000000000000", None),
    ("InvalidArgumentException", "shardId-000000000000", _FIRST),
    ("InvalidArgumentException", "shardId-000000000000", _AT),
    ("ResourceInUseException", "shardId-000000000000", _FIRST),
    ("AccessDeniedException", None, None),
    ("ExpiredIteratorException", "shardId-000000000000", None),
]


def _errors() -> Iterator[tuple[ClientError | BotoCoreError, str | None, Position | None]]:
    for code, shard_id, position in _FAILURES:
        error = ClientError({"Error": {"Code": code, "Message": "no"}}, "SubscribeToShard")
        yield error, shard_id, position
    yield NoRegionError(), None, None
    yield EndpointConnectionError(endpoint_url="https://kinesis.example"), None, None


@pytest.mark.parametrize(("is_querys", "others"), [(True, WORKERS), (False, SPARKS)])
def test_a_failed_call_is_told_in_the_words_of_its_door(
    others: set[str], *, is_querys: bool
) -> None:
    address = StreamAddress("s", None, "us-east-1", is_querys=is_querys)
    own = SPARKS if is_querys else WORKERS
    named = set()
    for error, shard_id, position in _errors():
        said = str(explain(error, "SubscribeToShard", address, shard_id, position))
        assert {name for name in others if name in said} == set(), said
        named |= {name for name in own if name in said}
    assert len(named) >= 4, "the advice names what to set"


_TABLE_OF_A_QUERY = {"initialPosition", "dynamodbEndpoint"}
_OF_QUERIES = {
    "stream/calls/explain.py": SPARKS,
    "stream/reading/shard_end.py": {"endingPosition"},  # of batch reads
    "stream/reading/retention.py": {"failOnDataLoss"},  # where no worker takes the loss
    "lease/table/calls.py": _TABLE_OF_A_QUERY,
}
"""Modules below both doors that have texts for queries, and the options in these."""
_WIRE = {"streamName"}
"""Also a column of lease tables."""


@pytest.mark.parametrize("layer", ["worker", "lease", "stream", "monitor", "cli", "fleet"])
def test_no_text_below_a_worker_names_an_option_of_spark(layer: str) -> None:
    names = re.compile(rf"\b({'|'.join(SPARKS - _WIRE)})\b")
    sources = {path: path.read_text(encoding="utf-8") for path in (_ROOT / layer).rglob("*.py")}
    found = {
        (str(path.relative_to(_ROOT)), name)
        for path, source in sources.items()
        if names.search(source)  # few are parsed
        for text in _texts(ast.parse(source))
        for name in names.findall(text)
        if name not in _OF_QUERIES.get(str(path.relative_to(_ROOT)), ())
    }
    assert found == set()


def _texts(tree: ast.AST) -> Iterator[str]:
    """The texts of a module, without docstrings."""
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            is_text = isinstance(child, ast.Constant) and isinstance(child.value, str)
            if is_text and not isinstance(node, ast.Expr):
                yield child.value  # type: ignore[attr-defined]
