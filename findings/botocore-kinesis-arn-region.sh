#!/usr/bin/env bash
# botocore sends a call on a Kinesis queue's ARN to the client's region, whatever region the ARN names.
#
# botocore 1.44.8, seen on 2026-11-29: the host is made of the queue's id and the client's region, without a word. An
# ARN of S3 whose region is not the client's is refused: "region from ARN `eu-west-1` does not match client region".
# Hurt: whoever gives a queue by its ARN while AWS_REGION or the profile names another region. The queue is "not found"
# there, or its host has no address.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check botocore==1.44.8
"$work/venv/bin/python" - <<'PY'
import botocore.session
from botocore.config import Config


class Sent(Exception):
    """A request would be sent now."""


def sent(request, **_):
    raise Sent(request.url.split("/")[2])


def outcome(service, call):
    session = botocore.session.Session()
    session.set_credentials("a", "b")
    config = Config(s3={"use_arn_region": False})
    client = session.create_client(service, region_name="us-east-1", config=config)
    client.meta.events.register("before-send", sent)
    try:
        call(client)
    except Exception as error:
        return f"{error}"


queue = "arn:aws:kinesis:eu-west-1:123456789012:queue/q-1"
host = outcome("kinesis", lambda kinesis: kinesis.receive_queue_records(QueueARN=queue))
print("a queue of eu-west-1, by a client of us-east-1, is asked for at", host)
assert host == "q-1.data-kinesis-queues.us-east-1.amazonaws.com"

access_point = "arn:aws:s3:eu-west-1:123456789012:accesspoint/a"
refusal = outcome("s3", lambda s3: s3.get_object(Bucket=access_point, Key="k"))
print("an access point of S3:", refusal)
assert "does not match client region" in refusal
PY
