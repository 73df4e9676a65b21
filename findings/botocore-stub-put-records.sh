#!/usr/bin/env bash
# botocore's Stubber refuses the answer of a PutRecords call that succeeds.
#
# botocore 1.44.8, seen on 2026-11-29: its model bounds FailedRecordCount by a least value of 1, so that a stub of
# the service's usual answer, FailedRecordCount 0, raises ParamValidationError. An answer of the service itself is not
# validated.
# Hurt: whoever tests a producer with botocore's Stubber. The usual answer can only be stubbed without the count.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check botocore==1.44.8
"$work/venv/bin/python" - <<'PY'
import botocore.session
from botocore.exceptions import ParamValidationError
from botocore.stub import Stubber

session = botocore.session.Session()
session.set_credentials("a", "b")
kinesis = session.create_client("kinesis", region_name="us-east-1")
stubber = Stubber(kinesis)
records = [{"SequenceNumber": "1", "ShardId": "shardId-000000000000"}]
try:
    stubber.add_response("put_records", {"FailedRecordCount": 0, "Records": records})
except ParamValidationError as error:
    print(error)
    assert "FailedRecordCount" in str(error) and "min value: 1" in str(error)
else:
    raise SystemExit("FailedRecordCount 0 is taken now")
stubber.add_response("put_records", {"Records": records})
print("without FailedRecordCount: taken")
PY
