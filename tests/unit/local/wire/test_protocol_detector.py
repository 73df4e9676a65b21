"""GOAWAY frames are removed from a client's bytes; all other bytes are unchanged."""

from __future__ import annotations

import pytest

from sparkinesis.local.wire.protocol_detector import PREFACE, GoawayFilter


def frame(kind: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, 0, 0, 0, 0, 1]) + payload


SETTINGS, DATA, EMPTY = frame(4, b""), frame(0, b"\x07" * 300), frame(0, b"")
GOAWAY, LONG_GOAWAY = frame(7, b"\0" * 8), frame(7, b"\0" * 8 + DATA)
SENT = PREFACE + SETTINGS + GOAWAY + DATA + EMPTY + LONG_GOAWAY + GOAWAY + DATA + SETTINGS
KEPT = PREFACE + SETTINGS + DATA + EMPTY + DATA + SETTINGS


@pytest.mark.parametrize("size", [1, 2, 7, 9, 10, 24, 100, len(SENT)])
def test_whatever_the_cut(size: int) -> None:
    filter_ = GoawayFilter()
    parts = [SENT[at : at + size] for at in range(0, len(SENT), size)]
    assert b"".join(map(filter_.feed, parts)) == KEPT


def test_a_byte_is_passed_on_as_soon_as_its_frame_is_known() -> None:
    filter_ = GoawayFilter()
    assert filter_.feed(PREFACE[:5]) == PREFACE[:5]
    assert filter_.feed(PREFACE[5:] + DATA[:8]) == PREFACE[5:]
    assert filter_.feed(DATA[8:50]) == DATA[:50]
