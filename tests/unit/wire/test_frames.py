"""The splitter finds the same frames however the stream is cut, and keeps no more than one incomplete frame."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import wire

frames = st.builds(wire.Frame, st.sampled_from([1, 2, 3, 8]), st.integers(0, 65535), st.binary(max_size=80))


def _feed(splitter: wire.FrameSplitter, data: bytes) -> list[wire.Frame]:
    splitter.feed(data)
    found = []
    while (frame := splitter.next_frame()) is not None:
        found.append(frame)
    return found


@given(st.lists(frames, max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_any_chunking_gives_the_same_frames(sent: list[wire.Frame], sizes: list[int]) -> None:
    stream = b"".join(wire.encode_frame(*frame) for frame in sent)
    splitter = wire.FrameSplitter(4096)
    received: list[wire.Frame] = []
    turn = 0
    while stream:
        size = sizes[turn % len(sizes)]
        received += _feed(splitter, stream[:size])
        stream, turn = stream[size:], turn + 1
    assert received == sent


def test_a_frame_as_large_as_frame_max_passes_and_one_octet_more_is_a_frame_error() -> None:
    splitter = wire.FrameSplitter(4096)
    assert _feed(splitter, wire.encode_frame(3, 1, bytes(4088))) == [wire.Frame(3, 1, bytes(4088))]
    splitter.feed(wire.encode_frame(3, 1, bytes(4089))[:7])
    with pytest.raises(wire.RemoteProtocolError, match="4097 octets") as caught:
        splitter.next_frame()
    assert caught.value.reply_code == wire.ReplyCode.FRAME_ERROR


@pytest.mark.parametrize("data", [b"\x04\x00\x00\x00\x00\x00\x00\xce", b"\x01\x00\x00\x00\x00\x00\x01xx", b"GET / HT"])
def test_a_wrong_type_or_end_octet_is_a_frame_error(data: bytes) -> None:
    splitter = wire.FrameSplitter(4096)
    splitter.feed(data)
    with pytest.raises(wire.RemoteProtocolError) as caught:
        splitter.next_frame()
    assert caught.value.reply_code == wire.ReplyCode.FRAME_ERROR


@pytest.mark.slow
def test_a_large_frame_in_single_octets_is_looked_at_once_it_is_whole() -> None:
    splitter = wire.FrameSplitter(131_072)
    stream = wire.encode_frame(3, 1, bytes(100_000))
    received = []
    for octet in stream:
        received += _feed(splitter, bytes((octet,)))
    assert [len(frame.payload) for frame in received] == [100_000]


@given(st.binary(max_size=300))
def test_random_bytes_end_in_frames_or_a_refusal(data: bytes) -> None:
    with suppress(wire.RemoteProtocolError):
        _feed(wire.FrameSplitter(4096), data)
