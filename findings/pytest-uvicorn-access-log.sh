#!/usr/bin/env bash
# Within pytest 9.1 and later, a uvicorn server that is started with access_log=False logs each request after all.
#
# pytest 9.2.0 with uvicorn 0.54.0, seen on 2026-11-30: uvicorn silences its access log by taking the logger's handlers and
# its propagation, and each connection asks whether the logger has a handler. pytest 9.1 and 9.2 add their own handlers to all
# loggers that do not propagate (pytest-dev/pytest#14375): with a server that a fixture has started, `caplog` captures a
# line of "uvicorn.access" for each request at INFO. Within pytest 9.0.2 it captures none.
# Hurt: tests that compare what was logged while a local server answers.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > test_requests.py <<'PY'
import logging
import threading
import time
import urllib.request

import pytest
import uvicorn


async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"there"})


@pytest.fixture
def port():
    config = uvicorn.Config(app, port=0, http="h11", lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def test_a_request(caplog, port):
    caplog.set_level(logging.INFO)
    assert urllib.request.urlopen(f"http://127.0.0.1:{port}/").read() == b"there"
    print("lines of uvicorn.access:", [record.name for record in caplog.records].count("uvicorn.access"))
PY
for pinned in 9.0.2 9.2.0; do
    python3 -m venv "$pinned"
    "$pinned/bin/pip" install --quiet --disable-pip-version-check "pytest==$pinned" uvicorn==0.54.0
    "$pinned/bin/python" -m pytest -q -s -p no:cacheprovider test_requests.py > "$pinned.txt"
    echo "pytest $pinned: $(grep -o 'lines of .*' "$pinned.txt")"
done
grep -q 'uvicorn.access: 0' 9.0.2.txt
grep -q 'uvicorn.access: 1' 9.2.0.txt
