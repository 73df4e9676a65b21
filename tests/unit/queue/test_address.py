"""The address of a queue, and what a user may write in it."""

from __future__ import annotations

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.queue.address import QueueAddress, check_queue_name, queue_address
from sparkinesis.stream.address import CredentialSource

ARN = "arn:aws:kinesis:eu-west-1:123456789012:queue/4rx-07"


def test_the_region_is_that_of_the_arn() -> None:
    credentials = CredentialSource("me")
    address = queue_address(ARN, None, "http://127.0.0.1:1", credentials)
    assert address == QueueAddress(ARN, None, "eu-west-1", "http://127.0.0.1:1", credentials)
    assert queue_address(ARN, "eu-west-1").region == "eu-west-1"
    assert address.queue_id == "4rx-07"


def test_a_region_that_contradicts_the_arn_is_refused() -> None:
    """botocore would send the calls to the given region, where this queue is not."""
    with pytest.raises(OptionError, match=r"region is 'us-east-1', but .* names 'eu-west-1'"):
        queue_address(ARN, "us-east-1")


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:kinesis:eu-west-1:123456789012:stream/s",
        "arn:aws:kinesis:eu-west-1:123456789012:queue/",
        "arn:aws:kinesis:eu-west-1:12345678901:queue/4rx",
        "arn:aws:sqs:eu-west-1:123456789012:queue/4rx",
        "arn:aws:kinesis:eu-west-1:123456789012:queue/4rx\n",
        "orders",
    ],
)
def test_what_is_no_arn_of_a_queue_is_refused(arn: str) -> None:
    with pytest.raises(OptionError, match=r"queue is .*looks like arn:aws:kinesis:<region>"):
        queue_address(arn)


@pytest.mark.parametrize(("region", "endpoint"), [("there", None), (None, "ftp://a")])
def test_another_place_is_refused(region: str | None, endpoint: str | None) -> None:
    with pytest.raises(OptionError):
        queue_address(ARN, region, endpoint)


def test_a_name_has_128_characters_of_some() -> None:
    check_queue_name("a_B.9-" + "x" * 122)
    for name in ("", "a b", "x" * 129, "a/b", "a\n"):
        with pytest.raises(OptionError, match="a queue's name has 1 to 128"):
            check_queue_name(name)


def test_texts_name_the_queue_and_its_place_and_no_secret() -> None:
    address = QueueAddress(ARN, "orders", "eu-west-1", "https://me:secret@own.test/?token=secret")
    assert str(address) == "queue 'orders' (4rx-07) in eu-west-1 at https://own.test/"
    assert "secret" not in repr(address)
    assert str(queue_address(ARN)) == "queue 4rx-07 in eu-west-1"
    assert (address.label, queue_address(ARN).label) == ("queue/orders", "queue/4rx-07")
