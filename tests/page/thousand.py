"""Measures the page with 1,000 shards: `python -m tests.page.thousand [picture.png]`."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.local import LocalServer
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.stream.address import CredentialSource
from sparkinesis.ui.serving import serve_table
from sparkinesis.ui.watcher import NOTHING_REPORTED
from sparkinesis.worker.aws_options import LeaseTableOptions
from tests.page.browser import Browser

SHARDS, WORKERS = 1000, 20


def thousand(stack: ExitStack, interval: float = 2.0) -> str:
    """Serve the page of an application of 1,000 shards; return its address."""
    server = stack.enter_context(LocalServer(port=0, dynamodb=True))
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName="many", ShardCount=SHARDS)
    streams = ChosenStreams.of(("many",), "us-east-1", server.endpoint_url, CredentialSource())
    table = streams.table("many", None)
    table.provision(LeaseTableOptions())
    whole = 2**128
    for n in range(SHARDS):
        table.create(
            Lease(
                f"shardId-{n:012}",
                f"shardId-{n:012}",
                ExtendedSequenceNumber("TRIM_HORIZON"),
                owner=f"host-{n % WORKERS}",
                hash_range=(whole * n // SHARDS, whole * (n + 1) // SHARDS - 1),
                throughput_kbps=float(n % 97),
            )
        )
    page = serve_table(table, streams, lambda: NOTHING_REPORTED, port=0, interval=interval)
    return stack.enter_context(page).url


def measure(browser: Browser, url: str) -> tuple[float, float, float]:
    """Return seconds to the first paint of all parts, of an update's drawing, and between looks."""
    browser.leave_for("about:blank")  # the same address again would load nothing
    began = time.monotonic()
    browser.open(url)
    browser.until(lambda: len(browser.table("shard-table")) > 5 and len(browser.boxes()) == SHARDS)
    painted = time.monotonic() - began
    # From the new data of the table to the frame in which they are drawn.
    browser.run(
        """
        window.drawn = []
        window.looked = []
        const source = Bokeh.documents[0].get_model_by_name("shards")
        source.properties.data.change.connect(() => {
          const began = performance.now()
          window.looked.push(began)
          const note = () => window.drawn.push(performance.now() - began)
          requestAnimationFrame(() => setTimeout(note))
        })
        """
    )
    browser.until(lambda: browser.run("return window.drawn.length") >= 10)
    drawn = sorted(browser.run("return window.drawn"))
    looked = browser.run("return window.looked")
    between = (looked[-1] - looked[0]) / (len(looked) - 1) / 1000
    return painted, drawn[len(drawn) // 2] / 1000, between


def main() -> None:
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")
    with ExitStack() as stack:
        url = thousand(stack)
        browser = Browser()
        stack.callback(browser.close)
        for _ in range(3):
            painted, drawn, between = measure(browser, url)
            print(f"{SHARDS} shards: painted after {painted:.2f} s")
            print(f"an update drawn in {drawn:.3f} s; {between:.2f} s between updates")
        if len(sys.argv) > 1:
            browser.save(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
