"""A local Kinesis for development and tests; the same endpoint also serves DynamoDB and STS.

    with LocalServer() as server:
        kinesis = server.client("kinesis")

`LocalServer` needs the extra: pip install 'sparkinesis[local]'.
"""

# In this folder: `kinesis` is the service without I/O, of `model` (its state), `operations` (the
# API) and `encoding`; `wire` serves it and moto by HTTP, `admission` bounds requests. `faults` and
# `clock` are a test's, `service_errors` the service's. `command` and `__main__` are `sparkinesis
# local`; `java` is for Spark. `lease_tables` is DynamoDB for the testing kit, without moto.

from sparkinesis.errors import LocalServerError
from sparkinesis.local.clock import Clock, ManualClock, system_clock
from sparkinesis.local.faults import Call, CallLog, CallRecord, Fault, FaultPlan
from sparkinesis.local.java import use_java, use_this_python
from sparkinesis.local.kinesis import LocalKinesis
from sparkinesis.local.model.limits import Limits
from sparkinesis.local.service_errors import ConnectionDroppedError, KinesisError
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
