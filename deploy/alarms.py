"""Alarms of CloudWatch on what the service itself measures of a queue: ``cloudwatch/*.json``.

Each is the input of ``aws cloudwatch put-metric-alarm --cli-input-json file://NAME.json``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Alarm:
    """An alarm on a metric of one queue. Replace REGION, ACCOUNT, TOPIC, QUEUE and QUEUE-ID."""

    name: str
    """The name of its file, and the end of the alarm's."""
    metric: str
    about: str
    more_than: int
    minutes: int = 1
    """For how many minutes in a row."""


ALARMS = (
    Alarm(
        "dead-letters",
        "VisibleDeadLetterQueueRecords",
        "A queue has dead letters. They vanish when the stream's retention ends: look at them, "
        "mend what fails, and restore them before that.",
        more_than=0,
    ),
)


def document(alarm: Alarm) -> str:
    """Return an alarm as PutMetricAlarm takes it."""
    found = {
        "AlarmName": f"QUEUE-{alarm.name}",
        "AlarmDescription": alarm.about,
        "AlarmActions": ["arn:aws:sns:REGION:ACCOUNT:TOPIC"],
        "Namespace": "AWS/Kinesis",
        "MetricName": alarm.metric,
        "Dimensions": [
            {"Name": "QueueId", "Value": "QUEUE-ID"},
            {"Name": "QueueName", "Value": "QUEUE"},
        ],
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": alarm.minutes,
        "Threshold": alarm.more_than,
        "ComparisonOperator": "GreaterThanThreshold",
        # The service stops to publish for a queue that has long had no records to receive. Its dead
        # letters are still there.
        "TreatMissingData": "ignore",
    }
    return json.dumps(found, indent=2) + "\n"
