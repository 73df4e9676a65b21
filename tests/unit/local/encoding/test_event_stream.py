"""botocore's decoder reads the event stream messages."""

from __future__ import annotations

import pytest
from botocore.eventstream import EventStreamBuffer

from sparkinesis.local.encoding import event_stream


@pytest.mark.parametrize("payload", [b"", b"{}", bytes(range(256)) * 5000])
def test_messages_are_read_as_they_were_written(payload: bytes) -> None:
    sent = event_stream.event("Ev", "application/json", payload)
    sent += event_stream.exception("Ex", "application/json", payload)
    buffer = EventStreamBuffer()
    buffer.add_data(sent)
    first, second = buffer
    assert first.headers == {
        ":event-type": "Ev",
        ":content-type": "application/json",
        ":message-type": "event",
    }
    assert second.headers == {
        ":exception-type": "Ex",
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    assert first.payload == second.payload == payload


def test_lengths_are_bytes() -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(event_stream.message({"näme": "wért"}, b""))
    (message,) = buffer
    assert message.headers == {"näme": "wért"}
