"""django-logpipe: messages of a serializer, each with the key of its field."""

import json
import os
import sys

import django
from django.conf import settings

os.environ["AWS_ENDPOINT_URL"] = os.environ["ENDPOINT"]
settings.configure(
    INSTALLED_APPS=["logpipe"],
    LOGPIPE={
        "OFFSET_BACKEND": "logpipe.backend.kinesis.ModelOffsetStore",
        "CONSUMER_BACKEND": "logpipe.backend.kinesis.Consumer",
        "PRODUCER_BACKEND": "logpipe.backend.kinesis.Producer",
        "KINESIS_REGION": os.environ["AWS_REGION"],
    },
)
django.setup()

from logpipe import Producer  # noqa: E402 - only once Django is set up
from rest_framework import serializers  # noqa: E402


class Flight(serializers.Serializer):  # type: ignore[misc]
    MESSAGE_TYPE = "flight"
    VERSION = 1
    KEY_FIELD = "key"
    key = serializers.CharField()
    data = serializers.CharField()


producer = Producer(os.environ["STREAM"], Flight)
for line in sys.stdin:
    producer.send(json.loads(line))
