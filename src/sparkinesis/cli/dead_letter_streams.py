"""The streams that dead letters come from, and the streams that they are put back into."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkinesis.errors import OptionError, SparkinesisError
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.monitor.streams import StreamSelector, listed, shown_names
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


def only_from(look: Contents, sources: Sequence[str], place: str) -> Contents:
    """Return only the letters from these streams; without any, all letters.

    Raises `OptionError` for a name that is none, or that no letter comes from.
    """
    selectors = [StreamSelector.parse(text) for text in sources]
    if not selectors:
        return look
    for one in selectors:
        if not any(_is_from(letter, one) for letter in look.letters):
            names = listed(dict.fromkeys(names_of(look.letters).values()))
            raise OptionError(
                f"No dead letter in {place} is from the stream {one.text!r}. There are letters "
                f"from {names or 'no stream at all'}."
            )
    kept = [each for each in look.letters if any(_is_from(each, one) for one in selectors)]
    return replace(look, letters=kept)


def _is_from(letter: Letter, selector: StreamSelector) -> bool:
    identifier = identifier_of(letter)
    if identifier is not None:
        return selector.selects(identifier)
    return selector.name == letter.about.stream and selector.account is None


def into_one(letters: Sequence[Letter], options: ChosenStreams, *, is_chosen: bool) -> Delivery:
    """Return the delivery of all letters into the stream that ``--stream`` names.

    ``is_chosen``: the operator has named the streams that they come from. Raises `OptionError` for
    letters from several streams otherwise, and service errors.
    """
    from sparkinesis.stream.calls.client import StreamClient  # noqa: PLC0415 - slow to import

    address = options.only()
    assert address is not None
    summary = StreamClient(address).describe()  # A misspelled stream fails before the question.
    names = sorted(set(names_of(letters).values()))
    if len(names) > 1 and not is_chosen:
        raise OptionError(
            f"The dead letters are from {len(names)} streams: {listed(names)}. Leave --stream out "
            "to put each back into its own, or name the streams whose letters go into "
            f"{address.name!r} by --from."
        )
    return Delivery(address, letters, not summary.distributes_records)


def into_their_own(
    letters: Sequence[Letter], options: ChosenStreams
) -> tuple[list[Delivery], dict[str, str]]:
    """Return the deliveries of letters into the streams that they come from.

    Also returns the letters that cannot go there, by file, with the reason. Raises `OptionError` if
    a file does not say which stream it is from, and the error of a stream that cannot be found.
    """
    from sparkinesis.stream.calls.client import StreamClient  # noqa: PLC0415 - slow to import
    from sparkinesis.stream.calls.stream_identity import identify  # noqa: PLC0415

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
    addresses = {identifier: options.address_of(identifier) for identifier in homes}
    clients = {address: StreamClient(address) for address in addresses.values()}
    found = identify(clients, clients.__getitem__, time.monotonic, time.sleep)
    deliveries: list[Delivery] = []
    left: dict[str, str] = {}
    for identifier, its in homes.items():
        address = addresses[identifier]
        identity = found[address]
        if isinstance(identity, SparkinesisError):
            raise identity
        if identity.identifier != identifier:
            left.update(_made_anew(its, identity.identifier))
        else:
            needs_keys = not clients[address].describe().distributes_records
            deliveries.append(Delivery(address, its, needs_keys))
    return deliveries, left


def _made_anew(letters: Iterable[Letter], newer: StreamIdentifier) -> Mapping[str, str]:
    why = (
        f"its stream was deleted, and made anew as {newer}. Name a stream for the records by "
        "--stream, and theirs by --from"
    )
    return {letter.file: why for letter in letters}
