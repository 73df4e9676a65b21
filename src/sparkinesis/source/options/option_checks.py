"""The checks of a query's options, also of several together: one error tells all that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from sparkinesis.errors import Check, OptionError, check_all
from sparkinesis.source.options.option_table import OPTIONS, Options, Use
from sparkinesis.stream.position import FromApplication

STREAM_OPTIONS = ("streamName", "streamARN", "region", "endpoint")
"""The options by which the streams are found."""


def check_options(options: Options, *uses: Use, more: Iterable[Check] = ()) -> None:
    """Raise one `OptionError` for all that is wrong with options, for one use or any of several.

    more: checks of the use that come last.
    """
    together = [*_checks_together(options), *more]
    if uses == (Use.WRITE,):
        together.append((STREAM_OPTIONS, partial(_check_one_stream, options)))
    meant = options.meant(uses)
    rest = (check for check in together if meant.isdisjoint(check[0]))
    check_all([*options.checks(uses), *rest])


def check_options_of_some_use(options: Options) -> None:
    """Raise one `OptionError` if options are wrong in every use: which it is, is not known yet.

    The error also tells which options do not apply to the use that most of the options are for.
    """
    try:
        check_options(options, *Use)
    except OptionError:
        given = {use: sum(use in OPTIONS[name].uses for name in options.given) for use in Use}
        check_options(options, *(use for use in Use if given[use] == max(given.values())))
        raise


def _checks_together(options: Options) -> Iterator[Check]:
    def check(function: Callable[[Options], object], *names: str) -> Check:
        return names, partial(function, options)

    yield check(Options.addresses, *STREAM_OPTIONS)
    for name in ("roleExternalId", "roleSessionName", "stsEndpoint"):
        yield (name, "roleArn"), partial(_check_role, options, name)
    yield check(_check_min_rows, "minRowsPerTrigger", "maxRecordsPerTrigger")
    yield check(_check_trigger_delay, "maxTriggerDelay", "minRowsPerTrigger")
    yield check(_check_dynamodb_endpoint, "dynamodbEndpoint", "initialPosition")
    yield check(_check_consumer_name, "consumerName", "consumerMode")
    for name in ("consumerName", "requireConsumerDeregistration"):
        yield (name, "consumerMode"), partial(_check_is_for_efo, options, name)
    yield check(_check_aggregation, "aggregationMaxSize", "aggregation")


def _check_role(options: Options, name: str) -> None:
    if name in options.given and "roleArn" not in options.given:
        raise OptionError(
            f"The option {name} has no effect without a role to assume: set the option roleArn too."
        )


def _check_min_rows(options: Options) -> None:
    least: int = options["minRowsPerTrigger"]
    if least > options["maxRecordsPerTrigger"]:
        raise OptionError(
            f"The option minRowsPerTrigger is {least}, which is more than "
            f"maxRecordsPerTrigger ({options['maxRecordsPerTrigger']:.0f}) "
            "allows. Lower the one or raise the other."
        )


def _check_trigger_delay(options: Options) -> None:
    if "maxTriggerDelay" in options.given and not options["minRowsPerTrigger"]:
        raise OptionError(
            "The option maxTriggerDelay has no effect without the option "
            "minRowsPerTrigger, whose rows it waits for."
        )


def _check_dynamodb_endpoint(options: Options) -> None:
    is_given = "dynamodbEndpoint" in options.given
    if is_given and not isinstance(options["initialPosition"], FromApplication):
        raise OptionError(
            "The option dynamodbEndpoint is the URL of the lease table of a "
            "KCL application, and applies to initialPosition=application:NAME only. Leave it out."
        )


def _check_consumer_name(options: Options) -> None:
    if options["consumerMode"] == "efo" and options["consumerName"] is None:
        raise OptionError(
            "The option consumerMode=efo needs the option consumerName, the name by which the "
            "query is registered with its streams. Give each query a name of its own, and keep "
            "the name over restarts: two queries of one name interrupt each other's "
            "subscriptions."
        )


def _check_is_for_efo(options: Options, name: str) -> None:
    if name in options.given and options["consumerMode"] != "efo":
        raise OptionError(
            f"The option {name} applies to enhanced fan-out only. Leave it "
            "out, or set the option consumerMode to efo."
        )


def _check_aggregation(options: Options) -> None:
    if "aggregationMaxSize" in options.given and not options["aggregation"]:
        raise OptionError("The option aggregationMaxSize needs the option aggregation=true.")


def _check_one_stream(options: Options) -> None:
    addresses = options.addresses()
    if len(addresses) > 1:
        given = "streamName" if "streamName" in options.given else "streamARN"
        names = ", ".join(address.name for address in addresses)
        raise OptionError(
            f"The option {given} names {len(addresses)} streams ({names}), but a query writes to "
            "one stream. Write once for each stream."
        )
