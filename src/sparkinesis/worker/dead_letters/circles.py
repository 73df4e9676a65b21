"""Dead letters that would come back: an application that reads the stream that it puts them into.

A dead-letter stream may be a stream of the application if its own failures go elsewhere, as where
it is read to try again what failed before.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkinesis.errors import OptionError
from sparkinesis.stream.address import StreamAddress, is_loopback
from sparkinesis.worker.dead_letters.targets import DeadLetterStream
from sparkinesis.worker.on_error import DeadLetter, OnError, last_resort


def require_no_circle(policies: Mapping[StreamAddress, OnError]) -> None:
    """Raise `OptionError` if a dead letter would be read by the application for ever.

    policies: what becomes of the failures of each stream that the application reads. The targets
    that are functions are not known.
    """
    follows = {one: _next(policy, policies) for one, policy in policies.items()}
    for first in policies:
        path, at = [first], follows[first]
        while at is not None and at not in path:
            path.append(at)
            at = follows[at]
        if at is None:
            continue
        names = " to ".join(repr(one.arn or one.name) for one in (*path[path.index(at) :], at))
        raise OptionError(
            "The application reads the stream that it puts dead letters into: a record that fails "
            f"again would go from {names} for ever. Take the dead-letter stream out of the streams "
            "to read, or give its StreamConfig another on_error."
        )


def _next(policy: OnError, streams: Mapping[StreamAddress, OnError]) -> StreamAddress | None:
    """Return the stream of the application that takes the dead letters; None: no such stream."""
    action = last_resort(policy)
    if not isinstance(action, DeadLetter) or not isinstance(action.target, DeadLetterStream):
        return None
    target = action.target.address()
    return next((one for one in streams if _is_same(one, target)), None)


def _is_same(one: StreamAddress, other: StreamAddress) -> bool:
    """Return True if both are one stream, as far as can be known without a call.

    The account of a stream without an ARN is that of its credentials. With one ARN, and the same
    credentials, it is taken for the ARN's: two streams of one name need two ARNs.
    """
    if one.name != other.name or one.endpoint != other.endpoint:
        return False
    if one.arn is not None and other.arn is not None:
        return one.arn == other.arn
    return one.credentials == other.credentials and _region(one) == _region(other)


def _region(address: StreamAddress) -> str | None:
    from sparkinesis.stream.calls.default_region import default_region  # noqa: PLC0415 - slow to import

    if address.region is not None:
        return address.region
    is_local = is_loopback(address.endpoint)
    return default_region(address.credentials.profile, is_local=is_local)[0]
