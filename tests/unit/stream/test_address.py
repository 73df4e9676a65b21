"""What an error shows of an endpoint."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from sparkinesis import Application
from sparkinesis.errors import OptionError
from sparkinesis.lease.table.client import TableAddress
from sparkinesis.stream.address import (
    CredentialSource,
    StreamAddress,
    StreamIdentifier,
    address_of,
    check_endpoint,
    place_of,
    repr_without_secrets,
    stream_address,
    without_secrets,
)
from sparkinesis.stream.calls.explain import words

SECRET = "https://host:4566/path?X-Signature=hunter2&b=1#hunter2"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://host/path?token=hunter2", "https://host/path"),
        ("https://host#hunter2", "https://host"),
        ("HTTP://user:hunter2@host:1/", "HTTP://host:1/"),
        ("https://hunter2@host", "https://host"),
        ("https://user:p@hunter2@host/a?b", "https://host/a"),
        ('no "http://a/?x=hunter2" nor http://b?hunter2, why?', 'no "http://a/" nor http://b why?'),
        ("why? ask me@host: see http://host:80/a", "why? ask me@host: see http://host:80/a"),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_the_places_of_streams_and_tables_show_no_query() -> None:
    place = "eu-west-1 at https://host:4566/path"
    assert place_of("eu-west-1", SECRET) == place
    assert str(stream_address("s", "eu-west-1", SECRET)) == f"stream 's' in {place}"
    assert str(TableAddress("app", "eu-west-1", SECRET)) == f"lease table 'app' in {place}"


def test_the_words_of_botocore_and_of_the_service_show_no_query() -> None:
    assert words(EndpointConnectionError(endpoint_url=SECRET)) == (
        'Could not connect to the endpoint URL: "https://host:4566/path"'
    )
    answer = {"Error": {"Code": "NotFound", "Message": f"nothing at {SECRET} here"}}
    error = ClientError(answer, "ListShards")
    assert words(error) == "NotFound: nothing at https://host:4566/path here"


@pytest.mark.parametrize(
    "endpoint",
    [
        "htp://host?hunter2",
        "host:1#hunter2",
        "https://host/?a= hunter2",
        "https://host/?a='hunter2",
        "https://u:hunter2@host",
    ],
)
def test_an_endpoint_that_is_refused_shows_no_secret(endpoint: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_endpoint("The option endpoint", endpoint)
    assert "hunter2" not in str(caught.value)
    assert "The option endpoint" in str(caught.value)


def test_a_stream_that_a_lease_names_has_an_arn_of_the_region() -> None:
    stream = StreamIdentifier("123456789012", "web", 1)
    at = address_of(stream, "eu-west-1", "http://127.0.0.1:1", CredentialSource("me"))
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/web"
    assert at == StreamAddress(
        "web", arn, "eu-west-1", "http://127.0.0.1:1", CredentialSource("me")
    )
    assert address_of(stream, "cn-north-1").arn == arn.replace("aws:", "aws-cn:").replace(
        "eu-west-1", "cn-north-1"
    )


@dataclass(frozen=True)
class Place:
    url: str
    key: str = field(default="hunter2", repr=False)
    more: tuple[str, ...] = ()


def test_the_text_of_a_value_is_that_of_its_dataclass_without_secrets() -> None:
    plain = Place("https://h/x", more=("http://[::1]:1/",))
    assert repr_without_secrets(plain) == repr(plain)
    secret = Place("https://me:hunter2@h/x?k=hunter2", more=("http://h?hunter2", "a?b"))
    assert repr_without_secrets(secret) == "Place(url='https://h/x', more=('http://h', 'a?b'))"


@pytest.mark.parametrize("region", [None, "eu-west-1", "us-east-1"])
def test_a_region_that_contradicts_the_arn_is_refused(
    region: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "ap-south-1")  # a default, which an ARN goes before
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/web"
    if region != "us-east-1":
        assert stream_address(arn, region).region == "eu-west-1"
        assert Application("app", arn, print, region=region).address().region == "eu-west-1"
        return
    both = "region is 'us-east-1', but the stream's ARN names 'eu-west-1'"
    with pytest.raises(OptionError, match=both):
        stream_address(arn, region)
    with pytest.raises(OptionError, match=both):
        Application("app", arn, print, region=region)
