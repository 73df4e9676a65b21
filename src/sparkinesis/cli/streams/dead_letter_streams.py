"""The streams that dead letters come from, and the streams that they are put back into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkinesis.errors import OptionError, SparkinesisError, listed
from sparkinesis.monitor.chosen_streams import ChosenStreams, StreamSelector, shown_names
from sparkinesis.stream.address import StreamIdentifier

if TYPE_CHECKING:
    from sparkinesis.stream.address import StreamAddress
    from sparkinesis.worker.dead_letters.stored import Contents, Letter


@dataclass(frozen=True)
class Delivery:
    """Letters to put into one stream."""

    address: StreamAddress
    letters: Sequence[Letter]
    needs_keys: bool
    """True if the stream refuses records without a partition key."""


def identifier_of(letter: Letter) -> StreamIdentifier | None:
    """Return the stream of a letter; None if the file does not say it: of a single stream."""
    try:
        return StreamIdentifier.parse(letter.about.stream_id or "")
    except ValueError:
        return None


def names_of(letters: Iterable[Letter]) -> dict[str, str]:
    """Return the name of each letter's stream, by file; its identifier if two have the name."""
    every = {letter.file: (letter.about.stream, identifier_of(letter)) for letter in letters}
    shown = shown_names(one for _, one in every.values() if one is not None)
    return {
        file: name if identifier is None else shown[identifier]
        for file, (name, identifier) in every.items()
    }


def only_from(contents: Contents, sources: Sequence[str], place: str) -> Contents:
    """Return only the letters from these streams; without any, all letters.

    Raises `OptionError` for a name that is none, or that no letter comes from.
    """
    selectors = [StreamSelector.parse(text) for text in sources]
    if not selectors:
        return contents
    for one in selectors:
        if not any(_is_from(letter, one) for letter in contents.letters):
            names = listed(dict.fromkeys(names_of(contents.letters).values()))
            raise OptionError(
                f"No dead letter in {place} is from the stream {one.text!r}. There are letters "
                f"from {names or 'no stream at all'}."
            )
    kept = [each for each in contents.letters if any(_is_from(each, one) for one in selectors)]
    return replace(contents, letters=kept)


def _is_from(letter: Letter, selector: StreamSelector) -> bool:
    identifier = identifier_of(letter)
    if identifier is not None:
        return selector.selects(identifier)
    return selector.name == letter.about.stream and selector.account is None


def deliveries_of(
    letters: Sequence[Letter], options: ChosenStreams, *, is_chosen: bool
) -> tuple[list[Delivery], dict[str, str]]:
    """Return the deliveries into the stream that ``--stream`` names, or else into their own.

    Also returns the letters that cannot go there, by file, with the reason. ``is_chosen``: the
    operator has named the streams that they come from. Raises `OptionError` and service errors.
    """
    address = options.only()
    if address is None:
        return _into_their_own(letters, options)
    return [_into_one(letters, address, is_chosen=is_chosen)], {}


def _into_one(letters: Sequence[Letter], address: StreamAddress, *, is_chosen: bool) -> Delivery:
    """Raises `OptionError` for letters from several streams, unless they were named."""
    from sparkinesis.stream.calls.client import StreamClient  # noqa: PLC0415 - slow to import

    summary = StreamClient(address).describe()  # A misspelled stream fails before the question.
    names = sorted(set(names_of(letters).values()))
    if len(names) > 1 and not is_chosen:
        raise OptionError(
            f"The dead letters are from {len(names)} streams: {listed(names)}. Leave --stream out "
            "to put each back into its own, or name the streams whose letters go into "
            f"{address.name!r} by --from."
        )
    return Delivery(address, letters, not summary.distributes_records)


def _into_their_own(
    letters: Sequence[Letter], options: ChosenStreams
) -> tuple[list[Delivery], dict[str, str]]:
    """Raises `OptionError` if a file does not say which stream it is from."""
    homes: dict[StreamIdentifier, list[Letter]] = {}
    for letter in letters:
        identifier = identifier_of(letter)
        if identifier is None:
            raise OptionError(
                "--put-back needs --stream, the stream to put the records into: "
                f"{letter.file} has the name of its stream, but neither account nor creation time, "
                "as an application of a single stream writes it."
            )
        homes.setdefault(identifier, []).append(letter)
    deliveries: list[Delivery] = []
    left: dict[str, str] = {}
    for stream, (client, found) in options.identified(homes).items():
        if isinstance(found, SparkinesisError):
            raise found
        if found.identifier == stream:
            needs_keys = not client.describe().distributes_records
            deliveries.append(Delivery(options.address_of(stream), homes[stream], needs_keys))
        else:
            why = (
                f"its stream was deleted, and made anew as {found.identifier}. Name a stream for "
                "the records by --stream, and theirs by --from"
            )
            left.update({letter.file: why for letter in homes[stream]})
    return deliveries, left
