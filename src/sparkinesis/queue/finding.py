"""Finds a queue by its ARN or name, or makes it, and waits until it is ACTIVE."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import botocore
import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import (
    ConsumerLimitError,
    OptionError,
    QueueNotFoundError,
    ServiceError,
    SparkinesisError,
    check_all,
    listed,
    printable,
)
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.public import public_queue
from sparkinesis.queue.address import (
    LONGEST_VISIBILITY,
    QueueAddress,
    check_queue_name,
    check_whole,
    queue_address,
)
from sparkinesis.queue.client import (
    QueueClient,
    QueueDescription,
    QueueSummary,
    decode_description,
    explain_queue,
    queue_attributes,
)
from sparkinesis.stream.address import (
    FOUND_BY_BOTO,
    CredentialSource,
    check_place,
    place_of,
    stream_address,
)
from sparkinesis.stream.calls.answers.guards import pages
from sparkinesis.stream.calls.caller import Caller, CallError
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff, error_code, is_retryable
from sparkinesis.stream.fan_out.registered_consumers import MOST_CONSUMERS
from sparkinesis.stream.position import InitialPosition, position_option, starting_position

MOST_BEING_MADE = 5
"""The queues of an account and region that may be CREATING or DELETING. It only explains the
service's refusal."""
_PAGE = 1_000
"""The queues that an answer of ListQueues is asked for."""
_ONCE = Backoff(give_up_after=0.0)

_log = logging.getLogger(__name__)


@public_queue
@dataclass(frozen=True, slots=True)
class NewQueue:
    """How a queue is made if there is none of its name.

    stream: the name or ARN of an on-demand stream.
    starting_position: ``"latest"``, ``"trim_horizon"`` or an instant, from which the queue delivers
        records. It cannot be changed later, nor can the stream.
    visibility_timeout: the seconds for which a received record is hidden from other receives.
    max_receive_count: the receives without an acknowledgement after which a record is a dead
        letter; None: it is received again until it is acknowledged or expires.
    stream_endpoint: the URL for calls on the stream, if it is not that of queues.
    """

    stream: str
    starting_position: str | datetime = "latest"
    visibility_timeout: int = 30
    max_receive_count: int | None = 6
    tags: Mapping[str, str] = field(default_factory=dict)
    stream_endpoint: str | None = None

    def check(self) -> None:
        """Raise `OptionError` for values that no queue can have."""
        seconds, count = self.visibility_timeout, self.max_receive_count
        count, also = 1 if count is None else count, ", or None for a queue without dead letters"
        check_all(
            [
                (("stream",), lambda: stream_address(self.stream)),
                (("starting_position",), lambda: self.start),
                ((), lambda: check_whole("visibility_timeout", seconds, 0, LONGEST_VISIBILITY)),
                ((), lambda: check_whole("max_receive_count", count, 1, 1_000, also)),
            ]
        )

    @property
    def start(self) -> InitialPosition:
        """The position that the queue starts at. Raises `OptionError`."""
        return position_option("starting_position", self.starting_position)


class _Page(msgspec.Struct, frozen=True, rename="pascal"):
    queue_summaries: list[QueueSummary]
    next_token: str | None = None


_PAGES = msgspec.json.Decoder(_Page)


class Queues(Caller):
    """The queues of an account and region. For any thread.

    Raises `AccessDeniedError`, and `ServiceError` for all other failures of calls, and at once for
    a botocore that is too old.
    """

    def __init__(
        self,
        region: str | None = None,
        endpoint: str | None = None,
        credentials: CredentialSource = FOUND_BY_BOTO,
        retry: Backoff | None = None,
        metrics: Metrics = OFF,
    ) -> None:
        _require_botocore(botocore.__version__)
        self.region, self.endpoint, self.credentials = region, endpoint, credentials
        super().__init__(self, "queue/", retry or Backoff(), metrics)

    def __str__(self) -> str:
        return f"queues in {place_of(self.region, self.endpoint, self.credentials.profile)}"

    def explained(self, error: CallError, operation: str, *about: Any) -> SparkinesisError:
        del about
        return explain_queue(error, operation, f"the {self}", self)

    def all(self) -> list[QueueSummary]:
        """Call ListQueues for all pages."""

        def ask(token: str | None) -> Mapping[str, Any]:
            request = {"MaxResults": _PAGE, **({"NextToken": token} if token else {})}
            page = self.call(
                "ListQueues", lambda client: _PAGES.decode(client.list_queues(**request)["Body"])
            )
            return {"Queues": page.queue_summaries, "NextToken": page.next_token}

        answers = pages(f"ListQueues of {self}", "NextToken", ask)
        return [one for answer in answers for one in answer["Queues"]]

    def find(
        self, queue: str, create: NewQueue | None = None
    ) -> tuple[QueueAddress, QueueDescription]:
        """Return a queue and its description, once it is no longer CREATING.

        create: as in `locate`. A queue that is there stays as it is: a warning says where it
        differs. Raises what `locate` and `QueueClient.describe_created` raise, and `OptionError`
        for a queue of another stream.
        """
        address = self.locate(queue, create)
        found = QueueClient(address, self._retry, self.metrics).describe_created()
        if create is not None:
            _compare(address, found, create)
        return msgspec.structs.replace(address, name=found.name), found

    def locate(self, queue: str, create: NewQueue | None = None) -> QueueAddress:
        """Return the address of a queue by its name or ARN; an ARN is not looked up.

        create: how the queue is made if there is none of its name; it is CREATING then. Raises
        `OptionError`, `QueueNotFoundError`, and what `create` raises.
        """
        check_place(self.region, self.endpoint)
        if create is not None:
            create.check()
        if queue.startswith("arn:"):
            if create is not None:
                raise OptionError(
                    f"{queue} is an ARN, which the service generates: a queue is made by its name. "
                    "Give the name, or leave create out."
                )
            return queue_address(queue, self.region, self.endpoint, self.credentials)
        check_queue_name(queue)
        others = self.all()
        found = self._named(queue, others)
        if found is not None:
            return found
        if create is not None:
            return self.create(queue, create)
        near = difflib.get_close_matches(queue, {one.name for one in others}, n=3, cutoff=0.6)
        there = f"Did you mean {' or '.join(map(repr, near))}?"
        if not near:
            there = f"There are {listed(sorted(one.name for one in others)) or 'none'}."
        raise QueueNotFoundError(
            printable(
                f"There is no queue {queue!r} among the {self}. {there} Check the spelling, the "
                "region, and that the credentials belong to the queue's account: one of another "
                "account is given by its ARN. To make it, give create a NewQueue(stream=...), or "
                "run: sparkinesis queues create."
            )
        )

    def create(self, name: str, new: NewQueue) -> QueueAddress:
        """Make a queue (CreateQueue), or take the one that another process has just made.

        It is CREATING. Raises `OptionError` for a provisioned stream, `ConsumerLimitError` if the
        stream has no room for a queue, and the errors of `StreamClient` for the stream.
        """
        retry = self._retry
        endpoint = new.stream_endpoint or self.endpoint
        stream = StreamClient(
            stream_address(new.stream, self.region, endpoint, self.credentials), retry
        )
        start = starting_position(new.start, inclusive=False)
        request = {
            "QueueName": name,
            "StreamConfigurationList": [
                {"StreamARN": _arn_of(stream), "StartingPosition": start},
            ],
            "QueueAttributes": queue_attributes(new.visibility_timeout, new.max_receive_count),
            **({"Tags": dict(new.tags)} if new.tags else {}),
        }
        give_up, attempt = retry.clock() + retry.give_up_after, 0
        while True:
            try:
                made = self.call_once(
                    "CreateQueue",
                    lambda client: decode_description(client.create_queue(**request)["Body"]),
                )
                return self._address(made.arn, name)
            except (ClientError, BotoCoreError) as error:
                code, failed = error_code(error), error
            is_taken = code == "ResourceInUseException"
            if is_taken and (other := self._named(name, self.all())) is not None:
                return other
            if code == "LimitExceededException" and attempt:
                # The first refusal may be throttling: many processes may start in one second.
                self._require_room(name, stream)
            pause = 0.5 + retry.pause(attempt)
            if not (is_taken or is_retryable(failed)) or retry.clock() + pause > give_up:
                subject = f"queue {name!r} of {stream.address}"
                raise explain_queue(failed, "CreateQueue", subject, self) from None
            self.wait(pause)
            attempt += 1

    def _address(self, arn: str, name: str) -> QueueAddress:
        return QueueAddress(arn, name, self.region, self.endpoint, self.credentials)

    def _named(self, name: str, queues: list[QueueSummary]) -> QueueAddress | None:
        # One that is being deleted may still be listed beside one that was made anew.
        found = sorted(queues, key=lambda one: (one.name != name, one.status == "DELETING"))
        return self._address(found[0].arn, name) if found and found[0].name == name else None

    def _require_room(self, name: str, stream: StreamClient) -> None:
        """Raise `ConsumerLimitError` if that is why the service refuses another queue."""
        being_made, consumers = 0, 0
        with suppress(SparkinesisError):  # the refusal is no clearer by an error of these calls
            being_made = sum(one.status in {"CREATING", "DELETING"} for one in self.all())
            consumers = stream.describe(_ONCE).consumers
        if consumers >= MOST_CONSUMERS and being_made < MOST_BEING_MADE:
            raise ConsumerLimitError(
                f"Cannot make the queue {name!r}: {stream.address} has {consumers} queues and "
                "registered consumers, which is its limit. Delete a queue (sparkinesis queues "
                "delete) or deregister a consumer that is no longer needed."
            )


def _require_botocore(version: str) -> None:
    """Raise `ServiceError` for a botocore that does not know queues.

    Some calls would succeed, without its help; whether all do depends on a user's settings.
    """
    numbers = [int(part) for part in re.findall("[0-9]+", version)[:3]]
    if numbers < [1, 44, 5]:
        raise ServiceError(
            f"Queues need boto3 1.44.5 or newer, and botocore {version} is installed, which does "
            "not know them. Run: pip install 'boto3>=1.44.5'. All else works with the older one."
        )


def _arn_of(stream: StreamClient) -> str:
    """Return a stream's ARN. Raises `OptionError` if the stream cannot have queues."""
    mode = ""
    if stream.address.arn is None:
        mode = stream.describe_created().mode
    else:
        # Only for a clear error: the endpoint may be that of queues, and a permission be missing.
        with suppress(SparkinesisError):
            mode = stream.describe(_ONCE).mode
    if mode == "PROVISIONED":
        raise OptionError(
            f"{stream.address} is PROVISIONED, and only on-demand streams have queues. Name "
            "another stream, or switch this one, which changes what it costs: aws kinesis "
            f"update-stream-mode --stream-mode-details StreamMode=ON_DEMAND --stream-arn "
            f"{stream.stream_arn()}"
        )
    return stream.stream_arn()


def _compare(address: QueueAddress, found: QueueDescription, wanted: NewQueue) -> None:
    """Raise `OptionError` for a queue of another stream; log a warning for other differences."""
    stream = wanted.stream
    if stream not in {found.stream_arn, found.stream_arn.rpartition(":stream/")[2]}:
        raise OptionError(
            f"{address} is a queue of {found.stream_arn}, not of {stream}. Give the queue of "
            f"{stream} another name, which is unique in an account and region."
        )
    for name in ("visibility_timeout", "max_receive_count"):
        there, given = getattr(found, name), getattr(wanted, name)
        if there != given:
            _log.warning(
                "%s is there already: its %s is %s, and stays so. %s was given; sparkinesis queues "
                "update changes it.",
                *(address, name, there, given),
            )
