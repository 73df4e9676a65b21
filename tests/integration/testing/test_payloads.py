"""The functions `handle` of ``docs/payloads.md`` run in record processors and in queues."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sparkinesis.testing import Result, Sandbox
from tests.producers import PROGRAMS, SERVICES, Service


def applications(service: Service) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for program in (service.handler, PROGRAMS[0]):
        exec(program.text, names)
    return names


@pytest.mark.parametrize("name", SERVICES)
def test_a_record_processor_prints_each_row(
    run_application: Callable[..., Result], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    service = SERVICES[name]
    run_application(applications(service)["of_shards"], service.records)
    assert capsys.readouterr().out.splitlines() == service.handled


@pytest.mark.parametrize("name", SERVICES)
def test_a_queue_has_each_row_printed(
    kinesis: Sandbox, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    service = SERVICES[name]
    with kinesis.queue(applications(service)["of_queue"]) as run:
        run.put(service.records)
        assert len(run.acknowledged) == len(service.records)
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(service.handled)


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_damaged_is_raised(name: str) -> None:
    service = SERVICES[name]
    handle = applications(service)["handle"]
    for data in service.damaged:
        with pytest.raises(ValueError, match=r"."):
            handle(SimpleNamespace(data=data))
