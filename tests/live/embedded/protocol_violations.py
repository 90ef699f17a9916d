"""Frames that violate the protocol, drawn from a seed: the same for every broker that they are sent to.

A `Violation` is some valid frames and then one that is wrong, on a connection of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from redrive import wire
from redrive.wire import methods
from tests.live.embedded.raw_client import RawClient, header, method, publish, start_ok

HEARD_S = 0.7
"""How long to wait for an answer that may not come."""
HUNG_UP_S = 8.0
"""The same where the broker says nothing and hangs up after three seconds."""


@dataclass(frozen=True, slots=True)
class Violation:
    """`stage` is when it is said: for the header, for start-ok, for tune-ok, or once channel 1 is open."""

    name: str
    said: bytes
    frame_max: int = 131_072
    stage: str = "open"

    def play(self, url: str) -> list[Any]:
        with RawClient(url) as client:
            match self.stage:
                case "header":
                    client.say(self.said)
                case "start":
                    client.greet()
                    client.say(self.said)
                case "tune":
                    client.greet()
                    client.call(start_ok(), "connection.tune")
                    client.say(self.said)
                case _:
                    client.open(frame_max=self.frame_max)
                    client.say(self.said)
            return client.end(HEARD_S if self.stage == "open" else HUNG_UP_S)


def make_violation(seed: int, profile: str) -> Violation:
    """The violation of that seed; the kinds take turns, so that a few dozen seeds have them all."""
    random = Random(f"{profile}:{seed}")
    kinds = [*_OPEN, *_HANDSHAKE]
    kind = kinds[seed % len(kinds)]
    if kind in _HANDSHAKE:
        stage, made = _HANDSHAKE[kind]
        return Violation(kind, made(random, profile), stage=stage)
    frame_max = random.choice([8192, 16_384, 131_072])
    proper = b"".join(random.choice(_PROPER) for _ in range(random.randint(0, 3)))
    if kind == "unknown method":
        proper = b""  # a real broker's reader dies of it, whether its channels have answered or not
    wrong = _OPEN[kind](random, frame_max)
    # What follows is not heard, or shows that the connection goes on. Nonsense only where framing is lost already: a
    # real broker's reader may come to it before a channel has complained; and another channel may still answer.
    more = [b"", wire.encode_frame(8, 0, b"")]
    more += [method(1, methods.TxSelect())] * 5 if kind.startswith("frame about") else []
    more += [b"z" * 3000] * 3 if kind.startswith(("wrong end", "frame of")) else []
    return Violation(kind, proper + wrong + random.choice(more), frame_max=frame_max)


_PROPER = (
    wire.encode_frame(8, 0, b""),
    method(1, methods.QueueDeclare(queue="", exclusive=True)),
    method(1, methods.BasicQos(prefetch_count=3)),
    publish() + header(3) + wire.encode_frame(3, 1, b"abc"),
    publish() + header(3) + wire.encode_frame(3, 1, b"") + wire.encode_frame(3, 1, b"abc"),
)
_QOS = method(1, methods.BasicQos(prefetch_count=1))


def _octets(random: Random, most: int = 30) -> bytes:
    if random.random() < 0.5:
        return "".join(random.choice("abcxyz") for _ in range(random.randint(1, most))).encode()
    return bytes([0, *(random.randrange(10) for _ in range(random.randint(0, min(most, 12))))])


def _large_frame(random: Random, frame_max: int) -> bytes:
    size = frame_max - 8 + random.choice([-1, 0, 1, 7, 8, 9, 10, 100])
    return publish() + header(size) + wire.encode_frame(3, 1, b"b" * size)


_OPEN: dict[str, Callable[[Random, int], bytes]] = {
    "heartbeat on a channel": lambda random, _: wire.encode_frame(8, random.randint(1, 9), b""),
    "heartbeat with a payload": lambda random, _: wire.encode_frame(8, random.randint(0, 2), _octets(random)),
    "unknown frame type": lambda random, _: wire.encode_frame(
        random.choice([0, 4, 7, 9, 255]), random.randint(0, 2), _octets(random)
    ),
    "wrong end octet": lambda random, _: _QOS[:-1] + bytes([random.randrange(0xCE)]),
    "wrong end octet of a long frame": lambda random, _: (
        wire.encode_frame(3, 1, b"x" * random.randint(17, 300))[:-1] + b"A"
    ),
    "frame about as large as allowed": _large_frame,
    "frame of 4 GB": lambda random, _: b"\x03\x00\x01\xff\xff\xff\xff",
    "body without a method": lambda random, _: wire.encode_frame(3, random.randint(1, 3), _octets(random)),
    "header without a method": lambda random, _: header(3, channel=random.randint(1, 3)),
    "method for a header": lambda random, _: publish() + _QOS,
    "method for a body": lambda random, _: publish() + header(9) + wire.encode_frame(3, 1, b"abc") + _QOS,
    "body for a header": lambda random, _: publish() + wire.encode_frame(3, 1, _octets(random)),
    "two headers": lambda random, _: publish() + header(9) + header(9),
    "header of another class": lambda random, _: publish() + header(3, class_id=random.choice([10, 50, 61])),
    "header with a weight": lambda random, _: publish() + header(3, weight=random.randint(1, 9)),
    "unknown method": lambda random, _: wire.encode_frame(1, random.randint(0, 2), b"\x00\x3c\x03\xe7"),
    "method cut short": lambda random, _: wire.encode_frame(
        1, random.randint(0, 2), _QOS[7 : 7 + random.randint(0, 3)]
    ),
    "arguments cut short": lambda random, _: wire.encode_frame(1, 1, _QOS[7 : -1 - random.randint(1, 6)]),
    "octets after arguments": lambda random, _: wire.encode_frame(1, 1, _QOS[7:-1] + b"\0"),
    "method on a channel never opened": lambda random, _: method(7, methods.TxSelect()),
    "content on channel 0": lambda random, _: wire.encode_frame(3, 0, _octets(random)),
    "publish on channel 0": lambda random, _: publish(channel=0),
    "channel opened twice": lambda random, _: method(1, methods.ChannelOpen()),
    "connection opened twice": lambda random, _: method(0, methods.ConnectionOpen()),
    "server's method": lambda random, _: method(1, methods.QueueDeclareOk()),
    "start-ok again": lambda random, _: start_ok(),
}


def _tune_ok(random: Random, profile: str) -> bytes:
    least = 8192 if profile == "4.3" else 4096
    channel_max, frame_max = random.choice(
        [(0, 8192), (2048, 8192), (65_535, 8192), (10, 0), (10, 131_073), (10, least - 1), (10, 1)]
    )
    return method(0, methods.ConnectionTuneOk(channel_max=channel_max, frame_max=frame_max, heartbeat_s=0))


def _start_ok_size(random: Random, profile: str) -> bytes:
    least = 8192 if profile == "4.3" else 4096
    return start_ok(size=least + 8 + random.choice([1, 2, 100, 5000, 200_000]))


_HANDSHAKE: dict[str, tuple[str, Callable[[Random, str], bytes]]] = {
    "wrong protocol header": (
        "header",
        lambda random, _: random.choice([b"GET / HTTP/1.1\r\n", b"AMQP\x00\x00\x00\x09", b"AMQP\x01\x01\x08\x00"]),
    ),
    "start-ok too large": ("start", _start_ok_size),
    "unknown mechanism": ("start", lambda random, _: start_ok(mechanism="NOPE")),
    "wrong password": ("start", lambda random, _: start_ok(password="wrong")),
    "open for start-ok": ("start", lambda random, _: method(0, methods.ConnectionOpen())),
    "channel.open for start-ok": ("start", lambda random, _: method(1, methods.ChannelOpen())),
    "wrong end octet for start-ok": ("start", lambda random, _: start_ok()[:-1] + b"x"),
    "bad tune-ok": ("tune", _tune_ok),
    "open for tune-ok": ("tune", lambda random, _: method(0, methods.ConnectionOpen())),
    "channel.open for open": (
        "tune",
        lambda random, _: (
            method(0, methods.ConnectionTuneOk(channel_max=10, frame_max=8192, heartbeat_s=0))
            + method(1, methods.ChannelOpen())
        ),
    ),
}
KINDS = len(_OPEN) + len(_HANDSHAKE)
