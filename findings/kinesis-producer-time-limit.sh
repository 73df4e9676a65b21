#!/usr/bin/env bash
# kinesis-producer's time limit begins anew with each record, so a steady trickle is held back for longer than the limit.
#
# kinesis-producer 0.2.1, seen on 2026-11-29: buffer_time_limit is documented as the time limit of an aggregation.
# Its clock is set back by each record: with a limit of 0.3 s and a record every 0.1 s, nothing is ready after 1.2 s. A
# pause of 0.3 s makes it ready.
# Hurt: whoever reads the stream by arrival time. A record may be much older than its ApproximateArrivalTimestamp
# says.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check kinesis-producer==0.2.1 six==1.17.0 boto3==1.44.8
"$work/venv/bin/python" - <<'PY'
from unittest.mock import patch

from kinesis_producer.accumulator import RecordAccumulator
from kinesis_producer.buffer import RawBuffer

config = {"buffer_time_limit": 0.3, "buffer_size_limit": 100_000, "record_delimiter": b"\n"}
with patch("kinesis_producer.accumulator.time.time") as clock:
    clock.return_value = 1_000.0
    accumulator = RecordAccumulator(RawBuffer, config)
    ready = []
    for _ in range(12):
        accumulator.try_append(b"a record")
        clock.return_value += 0.1
        ready.append(accumulator.is_ready())
    print("ready, while a record comes every 0.1 s for 1.2 s:", any(ready))
    clock.return_value += 0.3
    print("ready after a pause of 0.3 s:", accumulator.is_ready())
    assert not any(ready) and accumulator.is_ready()
PY
