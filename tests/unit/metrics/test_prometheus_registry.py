"""A registry tells the workers of a process, and keeps the counters of those that have ended."""

from __future__ import annotations

import gc
import pickle
import urllib.request
import weakref

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, start_http_server

from sparkinesis import OptionError
from sparkinesis.metrics import PrometheusMetrics
from sparkinesis.metrics.catalogue import LEASES_HELD, PROCESS_DURATION, RECORDS_PROCESSED
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import Metrics, Sample
from sparkinesis.metrics.prometheus import MOST_ENDED

PROCESSED = "sparkinesis_records_processed_total"
HELD = "sparkinesis_leases_held"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def opened(registry: CollectorRegistry, worker: str, held: float | None = None) -> Metrics:
    metrics = PrometheusMetrics(registry).open(Measured.worker("app", worker))
    if held is not None:
        metrics.watch(lambda: [Sample(LEASES_HELD, (), held)])
    return metrics


def processed(registry: CollectorRegistry, worker: str) -> float | None:
    labels = {"application": "app", "worker": worker, "stream": "s"}
    return registry.get_sample_value(PROCESSED, labels)


def held(registry: CollectorRegistry, worker: str) -> float | None:
    return registry.get_sample_value(HELD, {"application": "app", "worker": worker})


def test_the_application_serves_both_its_own_metrics_and_ours(registry: CollectorRegistry) -> None:
    Counter("orders", "The application's own.", registry=registry).inc(3)
    for name in ("a", "b"):
        opened(registry, name, held=2).add(RECORDS_PROCESSED, ("s", "shard"), 10)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        with urllib.request.urlopen(url) as answer:
            text = answer.read().decode()
        with urllib.request.urlopen(f"{url}?name[]={HELD}") as answer:
            chosen = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert text.count(f"# TYPE {PROCESSED} counter") == 1
    assert f'{PROCESSED}{{application="app",stream="s",worker="a"}} 10.0' in text
    assert f'{HELD}{{application="app",worker="b"}} 2.0' in text
    assert "orders_total 3.0" in text
    assert HELD in chosen
    assert PROCESSED not in chosen


def test_a_worker_that_ended_keeps_its_counters_and_loses_its_gauges(
    registry: CollectorRegistry,
) -> None:
    first, second = opened(registry, "a", held=3), opened(registry, "b", held=4)
    first.add(RECORDS_PROCESSED, ("s", "shard"), 10)
    first.observe(PROCESS_DURATION, ("s", "shard", "ok"), 0.1)
    first.close()
    first.close()
    first.watch(lambda: [Sample(LEASES_HELD, (), 9)])
    assert processed(registry, "a") == 10
    assert (held(registry, "a"), held(registry, "b")) == (None, 4)
    second.close()
    assert held(registry, "b") is None


def test_a_worker_that_starts_again_under_its_name_counts_on(registry: CollectorRegistry) -> None:
    """Two of them at a time, too: the metrics stay open until both have ended."""
    first, second = opened(registry, "a", held=1), opened(registry, "a", held=2)
    first.add(RECORDS_PROCESSED, ("s", "shard"), 10)
    first.close()
    second.add(RECORDS_PROCESSED, ("s", "shard"), 5)
    assert (processed(registry, "a"), held(registry, "a")) == (15, 2)
    second.close()
    third = opened(registry, "a")
    third.add(RECORDS_PROCESSED, ("s", "shard"), 1)
    assert (processed(registry, "a"), held(registry, "a")) == (16, None)
    third.close()
    assert processed(registry, "a") == 16


def test_the_latest_workers_that_ended_are_kept(registry: CollectorRegistry) -> None:
    living = opened(registry, "living")
    living.add(RECORDS_PROCESSED, ("s", "shard"))
    for number in range(MOST_ENDED + 2):
        one = opened(registry, str(number))
        one.add(RECORDS_PROCESSED, ("s", "shard"))
        one.close()
    assert [processed(registry, name) for name in ("0", "1", "2")] == [None, None, 1]
    assert processed(registry, str(MOST_ENDED + 1)) == 1
    assert processed(registry, "living") == 1


def test_a_name_that_the_application_uses_is_refused(registry: CollectorRegistry) -> None:
    Counter(PROCESSED, "Not ours.", registry=registry)
    with pytest.raises(OptionError, match=PROCESSED):
        opened(registry, "a")
    with pytest.raises(OptionError, match=PROCESSED):
        opened(registry, "a")


def test_a_fleet_gets_the_registry_of_each_process() -> None:
    exporter = pickle.loads(pickle.dumps(PrometheusMetrics()))
    metrics = exporter.open(Measured.worker("app", "on an executor"))
    metrics.add(RECORDS_PROCESSED, ("s", "shard"), 10)
    assert processed(REGISTRY, "on an executor") == 10
    with pytest.raises(OptionError, match=r"Use PrometheusMetrics\(\) for a fleet"):
        pickle.dumps(PrometheusMetrics(CollectorRegistry()))


def test_a_registry_that_nobody_uses_goes() -> None:
    registry = CollectorRegistry()
    opened(registry, "a").close()
    gone = weakref.ref(registry)
    del registry
    gc.collect()
    assert gone() is None
