#!/usr/bin/env bash
# kcpy stores the sequence number of its second page as a rounded float, and cannot start from it.
#
# kcpy 0.1.7, seen on 2026-11-29. Expected: after each page, its checkpoint (SQLite) is the 56 digits of the last record.
# Seen: the first page is stored so; each later one is written by an UPDATE in which the number has no quotes, so SQLite
# makes a float of it: "4.95...e+55", with the shard's first 15 digits. The next start fails with a ValueError.
# Hurt: whoever stops a consumer with checkpoint=True after its second page. It starts again only without its checkpoint.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check kcpy==0.1.7 boto3==1.44.8
"$work/venv/bin/python" - "$work/checkpoints" <<'PY'
import os
import sys

import boto3
from kcpy.checkpoint import Checkpoint
from kcpy.core import ShardConsumer

PAGES = [f"4965723401728346512345678901234567890123456789012345{page:04}" for page in (1, 2, 3)]
calls = []


class Service:  # in place of the network
    def get_shard_iterator(self, **request):
        calls.append(request)
        return {"ShardIterator": "0"}

    def get_records(self, ShardIterator):
        page = int(ShardIterator)
        return {
            "Records": [{"SequenceNumber": PAGES[page], "Data": b"x"}],
            "NextShardIterator": str(page + 1),
        }


def consumer():
    checkpoint = Checkpoint(sys.argv[1], "kcpy", "application", "s", "shardId-000000000000")
    boto3.client = lambda *_, **__: Service()
    one = ShardConsumer("s", "shardId-000000000000", {}, checkpoint)
    one.sleep_time = 0
    return one, checkpoint


sys.stdout = open(os.devnull, "w")  # it prints each position
stored = []
one, checkpoint = consumer()
for page, _ in zip(PAGES, one):
    stored.append(checkpoint.get())
sys.stdout = sys.__stdout__
for page, before in zip(PAGES, stored):
    print("before the page of", page, "stored:", before)
sys.stdout = open(os.devnull, "w")
try:
    next(iter(consumer()[0]))
    outcome = "started"
except ValueError as error:
    outcome = f"{type(error).__name__}: {error}"
sys.stdout = sys.__stdout__
print("the next start:", outcome)
assert stored == [None, PAGES[0], "4.96572340172835e+55"], stored
assert outcome.startswith("ValueError") and len(calls) == 1
PY
