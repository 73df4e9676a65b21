"""One error tells all that is wrong with the options of a query, as soon as Spark gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest
from pyspark.sql.types import StructType

from sparkinesis.errors import OptionError
from sparkinesis.source.datasource import KinesisDataSource

WRONG = {
    "region": "mars",
    "initialPosition": "yesterday",
    "maxRecordsPerTrigger": "many",
    "maxTriggerDelay": "5 minutes",
    "consumerMode": "efo",
    "ordered": "true",
}
TOLD = {
    "The option ordered is for write and writeStream, not for readStream",
    "The option region is 'mars'",
    "The option initialPosition is 'yesterday'",
    "The option maxRecordsPerTrigger is 'many'",
    "The option maxTriggerDelay has no effect without the option minRowsPerTrigger",
    "The option consumerMode=efo needs the option consumerName",
}


def errors_of(call: Callable[[], object]) -> list[str]:
    """Return the errors that one error tells."""
    with pytest.raises(OptionError) as caught:
        call()
    first, *errors = str(caught.value).split("\n- ")
    if not errors:
        return [first]
    assert first == f"The options have {len(errors)} errors:"
    return errors


def read_stream(options: Mapping[str, str]) -> object:
    """Do what Spark does for readStream...load() and start()."""
    source = KinesisDataSource(dict(options))
    source.schema()
    return source.streamReader(StructType())


def read(options: Mapping[str, str]) -> object:
    source = KinesisDataSource(dict(options))
    source.schema()
    return source.reader(StructType())


def write(options: Mapping[str, str]) -> object:
    return KinesisDataSource(dict(options)).streamWriter(StructType(), overwrite=False)


def test_all_that_is_wrong_is_told_at_once() -> None:
    errors = errors_of(lambda: KinesisDataSource({"streamName": "flights", **WRONG}))
    assert {next(told for told in TOLD if error.startswith(told)) for error in errors} == TOLD
    assert len(errors) == len(TOLD)


@pytest.mark.parametrize("missing", WRONG)
def test_each_error_stands_by_itself(missing: str) -> None:
    """No error comes of another one: mending one leaves the others as they are."""
    given = {"streamName": "flights", **WRONG}
    every = set(errors_of(lambda: read_stream(given)))
    del given[missing]
    left = set(errors_of(lambda: read_stream(given)))
    assert len(left) == len(every) - 1
    assert left < every or missing == "ordered"  # which had the list of all options


def test_unknown_names_are_told_with_the_rest_and_the_list_of_options_once() -> None:
    given = {"streamname": "flights", "initialpositon": "latest", "zzz": "1", "region": "mars"}
    errors = errors_of(lambda: read_stream(given))
    assert len(errors) == 3
    assert errors[0] == (
        "The kinesis source has no option 'initialpositon'. Did you mean initialPosition?"
    )
    assert errors[1].startswith("The kinesis source has no option 'zzz'. For read")
    assert errors[2].startswith("The option region is 'mars'")


@pytest.mark.parametrize(
    "given",
    [
        {"streamnam": "flights"},
        {"streamname": "flights", "consumermode": "efo", "consumernam": "board"},
        {"streamname": "flights", "minrowspertriger": "10", "maxtriggerdelay": "1s"},
    ],
)
def test_what_a_misspelled_name_is_meant_to_be_is_not_missed_as_well(given: dict[str, str]) -> None:
    (error,) = errors_of(lambda: read_stream(given))
    assert "Did you mean" in error


def test_options_of_other_uses_are_told_together() -> None:
    given = {"streamName": "a,b", "ordered": "maybe", "aggregationMaxSize": "64"}
    assert len(errors_of(lambda: write({**given, "consumerMode": "polling"}))) == 4
    given = {"streamName": "a", "startingPosition": "soon", "endingPosition": '{"b": {"s": "1"}}'}
    assert len(errors_of(lambda: read({**given, "maxTriggerDelay": "x"}))) == 3
    given = {"streamName": "a", "startingPosition": '{"c": {}}', "endingPosition": '{"b": {}}'}
    assert len(errors_of(lambda: read(given))) == 2


def test_a_query_without_a_stream_tells_what_else_is_wrong() -> None:
    errors = errors_of(lambda: write({"ordered": "maybe", "maxRecordSize": "1"}))
    assert len(errors) == 3
    assert re.match("The stream to use is not clear", errors[-1])


def test_which_use_is_meant_is_seen_by_most_of_the_options() -> None:
    given = {"streamName": "a", "region": "mars", "initialPosition": "latest"}
    errors = errors_of(lambda: KinesisDataSource({**given, "ordered": "true", "aggregation": "1"}))
    assert errors[0].startswith("The option initialPosition is for readStream, not for write")
    # Without another error the use itself tells it.
    KinesisDataSource({**given, "region": "eu-west-1", "ordered": "true"})


def test_an_option_that_several_checks_ask_for_is_told_once() -> None:
    given = {"streamName": "a", "roleArn": "reader", "roleExternalId": "id", "profile": " "}
    errors = errors_of(lambda: read_stream(given))
    assert [error.split(" is ")[0] for error in errors] == [
        "The option profile",
        "The option roleArn",
    ]
