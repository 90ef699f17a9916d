"""Opening an envelope gives the message inside, with the envelope's headers about its failure."""

import pytest

from redrive.wire import ENVELOPE_CONTENT_TYPE, Int8, Properties, open_envelope, wrap_in_envelope

OWN = Properties.of(
    headers={
        "mine": Int8(3),
        "large": "x" * 2000,
        "x-redrive-id": "own",
        "x-redriven-id": "d" * 26,
        "x-final-error": "of another life",
        "x-redrive-history": [{"error": "stale"}],
        "x-delivery-count": 4,
        "x-original-queue": "inside",
        "x-redrive-envelope": 1,
    },
    content_type="text/plain",
    correlation_id="c",
)
OUTER = Properties.of(
    headers={
        "x-redrive-envelope": 1,
        "mine": Int8(3),
        "x-redrive-id": "the envelope's",
        "x-redriven-id": "e" * 26,
        "x-redrive-reason": "oversized",
        "x-original-queue": "outside",
        "x-redrive-digest": "of the envelope",
    },
    content_type=ENVELOPE_CONTENT_TYPE,
    correlation_id="another",
)


def test_the_message_keeps_its_headers_and_id_and_takes_its_failure_from_the_envelope() -> None:
    opened = open_envelope(OUTER.raw, wrap_in_envelope(OWN, b"body"))
    assert opened is not None
    properties, body = opened
    assert (body, properties.content_type, properties.correlation_id) == (b"body", "text/plain", "c")
    assert properties.headers == {
        "mine": 3,
        "large": "x" * 2000,
        "x-redrive-id": "own",
        "x-redriven-id": "d" * 26,
        "x-redrive-reason": "oversized",
        "x-original-queue": "outside",
        "x-redrive-digest": "of the envelope",
    }
    assert properties.raw_header("mine") == OWN.raw_header("mine")


def test_an_envelope_in_an_envelope_is_opened_once() -> None:
    """Also of an envelope in an envelope: what was sent to our consumer is the message, whatever it looks like."""
    inner_body = wrap_in_envelope(OWN, b"body")
    opened = open_envelope(OUTER.raw, wrap_in_envelope(OUTER, inner_body))
    assert opened is not None
    assert opened[1] == inner_body
    assert open_envelope(opened[0].raw, opened[1]) is None


@pytest.mark.parametrize(
    ("outer", "body"),
    [
        (OUTER, b""),
        (OUTER, b"body"),
        (OUTER, wrap_in_envelope(OWN, b"")[:-1]),
        (OUTER, b"redrive envelope 1\n"),
        (OUTER, b"redrive envelope 1\n\xff\xff\xff\xff" + bytes(100)),
        (OUTER, wrap_in_envelope(Properties(b""), b"body")),
        (OUTER, wrap_in_envelope(Properties(b"\xff\xff"), b"body")),
        (OUTER, wrap_in_envelope(Properties(OWN.raw + b"more"), b"body")),
        (OUTER, wrap_in_envelope(Properties(OWN.raw[:-40]), b"body")),
        (OUTER, wrap_in_envelope(Properties(b"\x20\x00\x00\x00\x00\x05\xffabcd"), b"body")),
        (OUTER, wrap_in_envelope(Properties.of(headers={"large": "x" * (1 << 20)}), b"body")),
        (OUTER.edit(content_type=None), wrap_in_envelope(OWN, b"body")),
        (OUTER.edit(headers={"x-redrive-envelope": True}), wrap_in_envelope(OWN, b"body")),
        (OUTER.edit(headers={"x-redrive-envelope": 2}), wrap_in_envelope(OWN, b"body")),
        (OUTER.edit(headers={"x-redrive-envelope": [1]}), wrap_in_envelope(OWN, b"body")),
        (OUTER.edit(drop=("x-redrive-envelope",)), wrap_in_envelope(OWN, b"body")),
        (Properties(OUTER.raw[:-3]), wrap_in_envelope(OWN, b"body")),
    ],
)
def test_an_incomplete_envelope_is_not_opened(outer: Properties, body: bytes) -> None:
    assert open_envelope(outer.raw, body) is None
