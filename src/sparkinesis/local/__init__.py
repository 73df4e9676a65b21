"""A local Kinesis for development and tests; the same endpoint also serves DynamoDB and STS.

    with LocalServer() as server:
        kinesis = server.client("kinesis")

`LocalServer` needs the extra: pip install 'sparkinesis[local]'.
"""

from sparkinesis.errors import LocalServerError
from sparkinesis.local.clock import Clock, ManualClock, system_clock
from sparkinesis.local.errors import ConnectionDroppedError, KinesisError
from sparkinesis.local.faults import Call, CallLog, CallRecord, Fault, FaultPlan
from sparkinesis.local.java import use_java
from sparkinesis.local.kinesis import LocalKinesis
from sparkinesis.local.model.limits import Limits
from sparkinesis.local.python import use_this_python
from sparkinesis.local.wire.server import LocalServer

__all__ = [
    "Call",
    "CallLog",
    "CallRecord",
    "Clock",
    "ConnectionDroppedError",
    "Fault",
    "FaultPlan",
    "KinesisError",
    "Limits",
    "LocalKinesis",
    "LocalServer",
    "LocalServerError",
    "ManualClock",
    "system_clock",
    "use_java",
    "use_this_python",
]
