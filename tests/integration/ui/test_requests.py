"""Who may see the page, and who may move the application on it."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from deploy.iam import POLICIES
from sparkinesis.application import Application
from sparkinesis.errors import OptionError
from sparkinesis.local import LocalServer
from sparkinesis.ui.serving import LivePage
from sparkinesis.worker.lifecycle.worker import Worker
from tests.command import call, failure, place_of
from tests.deploy.calls import only
from tests.integration.ui.conftest import Serve
from tests.journal import Journal
from tests.pace import eventually, seconds

Start = Callable[[Application], Worker]
Make = Callable[..., Application]
FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


@pytest.fixture
def worker(application: Make, start: Start, journal: Journal) -> Worker:
    """A worker that holds both shards."""
    running = start(application(worker_id="w"))
    journal.wait(lambda: len(journal.calls("initialize")) == 2)
    return running


@pytest.fixture
def page(worker: Worker, serve: Serve) -> LivePage:
    return serve()


def port_of(page: LivePage) -> int:
    return urlsplit(page.url).port or 0


def ask(
    page: LivePage, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(page), timeout=seconds(60))
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace"), answer.headers
    finally:
        connection.close()


def order(page: LivePage, path: str, what: object, **headers: str) -> tuple[int, Any]:
    """Posts an order as the page does; a header may be replaced."""
    given = {
        "Origin": f"http://127.0.0.1:{port_of(page)}",
        "Content_Type": "application/json",
        "X_Sparkinesis_Token": urlsplit(page.url).fragment,
        **headers,
    }
    status, text, _ = ask(page, path, "POST", json.dumps(what), **given)
    return status, json.loads(text)


def rows(dynamodb: Any, table: str) -> dict[str, Any]:
    items = dynamodb.scan(TableName=table, ConsistentRead=True)["Items"]
    return {item["leaseKey"]["S"]: item for item in items}


def checkpoints(dynamodb: Any, table: str) -> dict[str, str]:
    return {key: row["checkpoint"]["S"] for key, row in rows(dynamodb, table).items()}


def test_a_foreign_name_gets_nothing(page: LivePage) -> None:
    """As a web page has whose name was made to point to this machine."""
    hosts = ("evil.example", "127.0.0.1.evil.example:80", "")
    paths = ("/", "/ws", "/static/js/bokeh.min.js", "/plan", "/confirm", "/autoload.js")
    for host, path, method in itertools.product(hosts, paths, ("GET", "POST")):
        status, text, _ = ask(page, path, method, Host=host)
        assert status in {400, 403}, (host, path, method)
        assert "lease" not in text


def test_a_forwarded_port_is_this_machine(page: LivePage) -> None:
    for host in ("127.0.0.1:7777", "localhost:7777"):
        assert ask(page, "/", Host=host)[0] == 200


def test_updates_are_for_the_page_itself(page: LivePage) -> None:
    """Any web page may open a websocket to this machine; its browser says whose it is."""
    for origin in ("", "null", "http://127.0.0.1:3000", "http://evil.example"):
        status, text, _ = ask(
            page, "/ws", Upgrade="websocket", Connection="Upgrade", Origin=origin,
            Sec_WebSocket_Key="x" * 22 + "==", Sec_WebSocket_Version="13",
        )  # fmt: skip
        assert (status, text) == (403, "Updates are for the page itself."), origin


def test_the_page_names_no_other_host(page: LivePage) -> None:
    """And its browser is told to ask none."""
    status, text, headers = ask(page, "/")
    assert status == 200
    assert urlsplit(page.url).fragment not in text, "the token is in the printed address only"
    links = re.findall(r"""(?:src|href|action)=["']?([^"'>\s]+)""", text)
    assert [link for link in links if link.startswith("/static/")], "Bokeh's scripts"
    assert all(link.startswith(("/static/", "data:,", "#")) for link in links), links
    policy = headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert not re.search(r"https?:|\*", policy)


def test_every_answer_has_the_policy(page: LivePage) -> None:
    for path in ("/", "/static/js/bokeh.min.js", "/nothing", "/plan"):
        headers = ask(page, path)[2]
        assert headers["Content-Security-Policy"].startswith("default-src 'none'"), path
        assert headers["X-Frame-Options"] == "DENY", path
        assert headers["Referrer-Policy"] == "no-referrer", path


def test_bokehs_settings_ask_no_other_host(
    worker: Worker, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOKEH_RESOURCES", "cdn")
    monkeypatch.setenv("BOKEH_ALLOW_WS_ORIGIN", "evil.example")
    assert "cdn" not in ask(serve(), "/")[1]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")
def test_it_listens_on_loopback_only(page: LivePage) -> None:
    wanted = f":{port_of(page):04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {line[1] for line in lines if line[1].endswith(wanted) and line[3] == "0A"}
    assert listening == {f"0100007F{wanted}"}
    six = Path("/proc/net/tcp6")
    assert not six.exists() or f"{wanted} 0000" not in six.read_text()


def test_orders_of_others_are_refused(page: LivePage, dynamodb: Any, stream: str) -> None:
    plan = order(page, "/plan", {"reset": "latest"})[1]["plan"]
    before = checkpoints(dynamodb, stream)
    for headers in (
        {"X_Sparkinesis_Token": ""},
        {"X_Sparkinesis_Token": "wrong"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": "http://evil.example"},
        {"Content_Type": "text/plain"},
    ):
        for path, what in (("/plan", {"reset": "latest"}), ("/confirm", {"plan": plan})):
            status, answer = order(page, path, what, **headers)
            assert status == 403, headers
            assert set(answer) == {"error"}
    assert checkpoints(dynamodb, stream) == before
    assert order(page, "/confirm", {"plan": plan})[0] == 200, "the refused ones used up nothing"


def test_only_a_post_is_an_order(page: LivePage) -> None:
    token = urlsplit(page.url).fragment
    origin = f"http://127.0.0.1:{port_of(page)}"
    methods = ("GET", "PUT", "DELETE", "HEAD", "OPTIONS")
    for path, method in itertools.product(("/plan", "/confirm"), methods):
        status = ask(page, path, method, X_Sparkinesis_Token=token, Origin=origin)[0]
        assert status == 405, (path, method)


def test_what_is_no_order(page: LivePage) -> None:
    cases: list[tuple[Any, int, str]] = [
        ({}, 409, "either a reset or the release"),
        ({"reset": "latest", "release": FIRST}, 409, "either a reset or the release"),
        ({"reset": "yesterday"}, 409, "'yesterday'"),
        ({"release": "no-such-lease"}, 409, "no lease 'no-such-lease'"),
        ({"reset": 1}, 400, "no order"),
        ({"drop": "all"}, 400, "no order"),
        ([], 400, "no order"),
    ]
    for what, status, why in cases:
        found, answer = order(page, "/plan", what)
        assert (found, why in answer["error"]) == (status, True), answer
    with pytest.raises((ConnectionError, http.client.HTTPException, json.JSONDecodeError)):
        order(page, "/plan", {"reset": "x" * 100_000})
    assert order(page, "/plan", {"reset": "latest"})[0] == 200, "it still serves"


def test_a_reset_is_planned_shown_and_confirmed(
    page: LivePage, dynamodb: Any, stream: str, kinesis: Any, journal: Journal
) -> None:
    kinesis.put_record(StreamName=stream, Data=b"x", PartitionKey="k", ExplicitHashKey="0")
    journal.wait_for_data(b"x")
    status, plan = order(page, "/plan", {"reset": "latest"})
    assert status == 200
    assert [row[0] for row in plan["rows"]] == [FIRST, SECOND]
    assert "as of" in plan["rows"][0][2], "the last record before now"
    assert f"Move 2 leases of {stream}" in plan["question"]
    assert checkpoints(dynamodb, stream) == {FIRST: "TRIM_HORIZON", SECOND: "TRIM_HORIZON"}
    assert order(page, "/confirm", {"plan": plan["plan"]}) == (
        200,
        {"done": f"Moved 2 leases of {stream}."},
    )
    assert checkpoints(dynamodb, stream)[FIRST].isdigit()
    status, answer = order(page, "/confirm", {"plan": plan["plan"]})
    assert (status, "once" in answer["error"]) == (409, True)


def test_it_looks_with_the_policy_monitor_and_moves_with_operator(
    page: LivePage, worker: Worker, server: LocalServer
) -> None:
    worker.shutdown(seconds(20))
    allowed = {policy.name: policy.actions for policy in POLICIES}
    with only(server, allowed["monitor"]):
        assert order(page, "/plan", {"reset": "latest"})[0] == 200
        plan = order(page, "/plan", {"reset": "trim_horizon"})[1]["plan"]
        status, answer = order(page, "/confirm", {"plan": plan})
        assert (status, "Not allowed" in answer["error"]) == (409, True), answer
    with only(server, allowed["operator"]):
        plan = order(page, "/plan", {"reset": "trim_horizon"})[1]["plan"]
        assert order(page, "/confirm", {"plan": plan})[0] == 200


def test_a_release_is_planned_shown_and_confirmed(
    page: LivePage, dynamodb: Any, stream: str, journal: Journal
) -> None:
    status, plan = order(page, "/plan", {"release": SECOND})
    assert status == 200
    assert plan["question"] == f"Take {SECOND} from w?"
    assert rows(dynamodb, stream)[SECOND]["leaseOwner"]["S"] == "w"
    assert order(page, "/confirm", {"plan": plan["plan"]})[0] == 200
    journal.wait(lambda: (SECOND, "lease_lost") in journal.calls())
    # The only worker takes it again.
    journal.wait(lambda: journal.calls("initialize").count((SECOND, "initialize")) == 2)
    eventually(lambda: rows(dynamodb, stream)[SECOND].get("leaseOwner") == {"S": "w"})
    assert journal.calls("initialize").count((FIRST, "initialize")) == 1


def test_a_lease_that_nobody_holds_is_not_released(
    page: LivePage, worker: Worker, dynamodb: Any, stream: str
) -> None:
    plan = order(page, "/plan", {"release": FIRST})[1]["plan"]
    worker.shutdown(seconds(20))
    before = rows(dynamodb, stream)
    for path, what in (("/plan", {"release": FIRST}), ("/confirm", {"plan": plan})):
        status, answer = order(page, path, what)
        assert (status, "No worker holds" in answer["error"]) == (409, True)
    assert rows(dynamodb, stream) == before


def test_a_port_that_is_taken(page: LivePage, serve: Serve) -> None:
    with pytest.raises(OptionError, match=f"on port {port_of(page)}: .* Choose another one"):
        serve(port=port_of(page))


def test_a_page_that_was_closed_serves_nothing(page: LivePage, serve: Serve) -> None:
    page.close()
    with pytest.raises(ConnectionRefusedError):
        ask(page, "/")
    assert ask(serve(port=port_of(page)), "/")[0] == 200, "another page can have its port"


def test_the_token_is_not_shown_by_accident(page: LivePage) -> None:
    assert urlsplit(page.url).fragment not in repr(page)
    assert len(urlsplit(page.url).fragment) >= 32


def test_without_its_package_the_command_says_what_to_install(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bokeh.server.server", None)
    assert "pip install 'sparkinesis[ui]'" in failure(call("ui", "app", *place_of(server)))
