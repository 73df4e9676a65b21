"""The signature of a request: who signed it, for which region and service. It is not verified."""

from __future__ import annotations

import re
from typing import NamedTuple

from sparkinesis.local.kinesis import DEFAULT_REGION

_CREDENTIAL = re.compile(rb"Credential=([^/,\s]+)/\d{8}/([a-z0-9-]+)/(?:([a-z0-9-]+)/)?")


class Signer(NamedTuple):
    """The scope of a signature. key: the access key's id. service: None if there is none."""

    region: str
    key: str | None
    service: str | None


def signer(authorization: bytes) -> Signer:
    found = _CREDENTIAL.search(authorization)
    if found is None:
        return Signer(DEFAULT_REGION, None, None)
    return Signer(found[2].decode(), found[1].decode(), found[3].decode() if found[3] else None)
