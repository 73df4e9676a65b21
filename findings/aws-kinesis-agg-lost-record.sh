#!/usr/bin/env bash
# aws-kinesis-agg (PyPI) drops a user record that is a few bytes smaller than the limit, without an error.
#
# aws-kinesis-agg 1.2.3, seen on 2026-11-29: a user record that is too large for an aggregate of its own is refused with
# a ValueError. The check leaves out the 20 bytes around an aggregate, the one that follows counts them: a record of
# which the packed size is 1 to 20 bytes below the limit is neither refused nor kept. The callback gets the records
# before it, or an aggregate without any.
# Hurt: whoever packs records of up to 1 MiB. 20 sizes of record are lost.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check aws-kinesis-agg==1.2.3 protobuf==6.33.0 six==1.17.0
"$work/venv/bin/python" - <<'PY'
from aws_kinesis_agg.aggregator import RecordAggregator


def put(size):
    """What becomes of one user record of this size, of which 12 bytes go for its key and lengths."""
    given = []
    aggregator = RecordAggregator()
    aggregator.on_record_complete(lambda record: given.append(record), execute_on_new_thread=False)
    try:
        aggregator.add_user_record("key", b"x" * size)
    except ValueError:
        return "refused"
    given.append(aggregator.clear_and_get())
    kept = sum(record.get_num_user_records() for record in given if record)
    return "kept" if kept else "lost"


outcomes = {}
for size in range(2**20 - 60, 2**20 + 1):
    outcomes.setdefault(put(size), []).append(size)
for outcome, sizes in outcomes.items():
    print(f"{outcome}: {len(sizes)} sizes, {sizes[0]:,} to {sizes[-1]:,} bytes")
assert len(outcomes["lost"]) == 20, outcomes
PY
