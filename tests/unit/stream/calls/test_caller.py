"""The boto3 client of Kinesis, which the threads of many shards share."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls import caller
from sparkinesis.stream.calls.caller import call_client

THREADS = 8


def test_threads_that_ask_at_once_open_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    all_ask = threading.Barrier(THREADS)

    open_client = caller._open

    def counted(*args: Any) -> Any:
        opened.append(args)
        return open_client(*args)

    def ask(_: int) -> Any:
        all_ask.wait()
        return call_client(address)

    # A session is opened only where the environment is not the usual one.
    monkeypatch.setattr(caller, "_open", counted)
    address = StreamAddress("s", None, "us-east-1", "http://127.0.0.1:17")  # no other test's
    with ThreadPoolExecutor(THREADS) as threads:
        clients = list(threads.map(ask, range(THREADS)))
    assert len(opened) == 1
    assert len(set(map(id, clients))) == 1


def test_the_clients_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "_open", lambda *_: object())
    monkeypatch.setattr(caller, "_clients", {})
    monkeypatch.setattr(caller, "MOST_CLIENTS", 3)
    streams = [StreamAddress("s", region=f"eu-west-{n}") for n in range(5)]
    clients = [call_client(stream) for stream in streams]
    assert len(caller._clients) == 3
    assert [call_client(stream) for stream in streams[2:]] == clients[2:]


def test_who_uses_a_client_waits_for_no_other_that_is_opened() -> None:
    address = StreamAddress("s", None, "us-east-1", "http://127.0.0.1:9")
    client = call_client(address)
    with caller._opening, ThreadPoolExecutor(1) as threads:
        assert threads.submit(call_client, address).result(30) is client


def test_a_process_that_is_forked_while_a_client_is_opened_opens_its_own() -> None:
    address = StreamAddress("s", None, "us-west-2", "http://127.0.0.1:9")
    child = multiprocessing.get_context("fork").Process(target=call_client, args=(address,))
    with caller._opening:
        child.start()
    child.join(30)
    child.kill()
    assert child.exitcode == 0
