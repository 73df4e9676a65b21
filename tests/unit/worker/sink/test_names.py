"""The names of files: as ever for one stream; those of several streams are never the same."""

from __future__ import annotations

import itertools

import pytest

from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.worker.sink.names import shortened, stream_label


def test_one_stream_is_told_by_its_name() -> None:
    assert stream_label("flights", None) == "flights"


def test_one_of_several_streams_is_told_by_account_and_creation_too() -> None:
    label = stream_label("flights", "123456789012:flights:1763700000")
    assert label == "flights@123456789012.1763700000"


def test_labels_of_different_streams_differ_from_each_other_and_from_all_names() -> None:
    streams = [
        StreamIdentifier(account, name, epoch)
        for account, name, epoch in itertools.product(
            ("123456789012", "999999999999"),
            ("a", "a-1", "a.1", "123456789012-a", "a-123456789012.1"),
            (1, 11, 1763700000),
        )
    ]
    labels = [stream_label(one.name, str(one)) for one in streams]
    assert len(set(labels)) == len(streams)
    assert all("@" in label for label in labels), "which no stream's name has"


def test_a_label_has_no_character_that_a_file_system_refuses() -> None:
    label = StreamIdentifier("123456789012", "a_b.c-D", 1).file_label
    assert not set(label) & set(':/\\?*"<>|%= ')


@pytest.mark.parametrize("name", ["x", "x" * 160, "@" + "x" * 199])
def test_a_name_that_fits_is_kept(name: str) -> None:
    assert shortened(name) == name


def test_long_names_are_cut_and_still_differ() -> None:
    names = ["x" * 200, "x" * 200 + "y", "x" * 199 + "y", "x" * 150 + "ü" * 30]
    cut = [shortened(name) for name in names]
    assert len(set(cut)) == len(names)
    assert all(len(name.encode()) <= 160 for name in cut)
    assert [shortened(name) for name in names] == cut


def test_the_name_of_one_of_several_streams_may_be_longer() -> None:
    cut = shortened("@" + "x" * 200)
    assert len(cut) == 200
    assert cut != shortened("@" + "x" * 201)
