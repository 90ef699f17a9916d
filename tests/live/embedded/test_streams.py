"""Streams on both brokers side by side, by a seed: declared, published to, read from any offset, settled in any way.

REDRIVE_STREAM_SEQUENCES and REDRIVE_STREAM_SEED choose how many sequences and which. Not compared: what a passive
declare counts, which lags by seconds on a real broker. Messages are published one by one, each confirmed before the
next: those that arrive together share a chunk on a real broker, and `last` or a time begins at a chunk.
"""

import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker
from rig.brokers import Vhost

from tests.live.embedded.relaxations import masked
from tests.unit.embedded.threaded import broker_in_a_thread

logging.getLogger("pika").setLevel(logging.CRITICAL)  # refusals are what is looked for here

SEQUENCES = int(os.environ.get("REDRIVE_STREAM_SEQUENCES", "24"))
FIRST_SEED = int(os.environ.get("REDRIVE_STREAM_SEED", "1"))
LINGER_S = 0.35
OFFSETS = ("first", "last", "next", 0, 1, 3, 9, -1, "1h", "3m", "past", "future", "0s", "nope", "7", "", True)
ARGUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"x-max-age": "1h"},
    {"x-max-age": "7D", "x-max-length-bytes": 1_000_000},
    {"x-stream-max-segment-size-bytes": 1_000_000},
    {"x-initial-cluster-size": 1},
    {"x-queue-leader-locator": "balanced"},
    {"x-unknown": 1},
)
WRONG_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"x-max-age": "1x"},
    {"x-max-age": 5},
    {"x-max-age": ""},
    {"x-message-ttl": 5},
    {"x-expires": 5000},
    {"x-max-length": 5},
    {"x-overflow": "drop-head"},
    {"x-dead-letter-exchange": "d"},
    {"x-single-active-consumer": True},
    {"x-delivery-limit": 3},
    {"x-queue-mode": "lazy"},
    {"x-initial-cluster-size": 0},
    {"x-stream-filter-size-bytes": 300},
)


def attempt(step: Any) -> Any:
    """What a step gives, or how it is refused."""
    try:
        return step()
    except ChannelClosedByBroker as closed:
        return "channel", closed.reply_code, closed.reply_text
    except ConnectionClosedByBroker as closed:
        return "connection", closed.reply_code, closed.reply_text


class StreamPlayer:
    """One sequence on one broker. A refusal ends its channel or its connection: the next step has a new one."""

    def __init__(self, url: str, vhost: str, seed: int) -> None:
        self._parameters = pika.URLParameters(url)
        self._parameters.heartbeat = 0
        self._vhost = vhost
        self._random = Random(seed)
        self._name = f"stream {seed}"
        self._connection = pika.BlockingConnection(self._parameters)
        self._number = 0
        self._got: list[Any] = []
        self.log: list[Any] = []

    def play(self) -> list[Any]:
        random = self._random
        try:
            self._note("declare", lambda: self._declare(random.choice(ARGUMENTS)))
            self._publish(random.randint(0, 4))
            self._publish_dead(random)
            for _ in range(random.randint(2, 4)):
                getattr(self, f"_on_{random.choice(_VERBS)}")(random)
            self._read(random, "first", prefetch=100)
            return self.log
        finally:
            self._clean()

    def _note(self, what: str, step: Any) -> Any:
        seen = attempt(step)
        if isinstance(seen, tuple):
            seen = (*seen[:2], seen[2].replace(f"vhost '{self._vhost}'", "vhost"))
        self.log.append((what, seen))
        return seen

    def _channel(self) -> Any:
        if not self._connection.is_open:
            self._connection = pika.BlockingConnection(self._parameters)
        return self._connection.channel()

    def _declare(self, arguments: dict[str, Any], name: str | None = None) -> str:
        table = {"x-queue-type": "stream", **arguments}
        self._channel().queue_declare(self._name if name is None else name, durable=True, arguments=table)
        return "declared"

    def _publish(self, count: int, queue: str | None = None, **properties: Any) -> None:
        channel = self._channel()
        channel.confirm_delivery()
        for _ in range(count):
            self._number += 1
            content = pika.BasicProperties(**properties)
            channel.basic_publish("", self._name if queue is None else queue, f"m{self._number}".encode(), content)
        channel.close()

    def _publish_dead(self, random: Random) -> None:
        """A message that dies into the stream: by expiry or overflow, at most once or at least once."""
        table: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self._name}
        match random.choice(["classic", "quorum", "at least once", "none"]):
            case "none":
                return
            case "at least once":
                table |= {"x-queue-type": "quorum", "x-overflow": "reject-publish"}
                table |= {"x-dead-letter-strategy": "at-least-once", "x-message-ttl": 10}
            case kind:
                table |= {"x-queue-type": kind}
                table |= random.choice([{"x-message-ttl": 10}, {"x-max-length": 0}])
        source = f"{self._name} source"
        channel = self._channel()
        channel.queue_declare(source, durable=True, arguments=table)
        channel.close()
        self._publish(1, source, headers={"k": "v"})
        time.sleep(LINGER_S)

    def _on_publish(self, random: Random) -> None:
        headers = {"z": 1, "a": random.randint(0, 9), "t": {"k": 1}, "l": ["x"]}
        self._publish(random.randint(1, 3), headers=headers, priority=3, message_id="id")

    def _on_read(self, random: Random) -> None:
        self._read(random, random.choice(OFFSETS), prefetch=random.choice([0, 1, 2, 100]))

    def _on_refused(self, random: Random) -> None:
        name = self._name
        steps = {
            "get": lambda: self._channel().basic_get(name),
            "purge": lambda: self._channel().queue_purge(name),
            "wrong argument": lambda: self._declare(random.choice(WRONG_ARGUMENTS), f"{name} wrong"),
            "other arguments": lambda: self._declare(random.choice(ARGUMENTS)),
            "as classic": lambda: bool(self._channel().queue_declare(name, durable=True)),
            "without acks": lambda: self._consume(self._channel(), "first", 10, no_ack=True),
            "with a priority": lambda: self._consume(self._channel(), "first", 10, more={"x-priority": 3}),
        }
        what = random.choice(sorted(steps))
        self._note(what, steps[what])

    def _consume(
        self, channel: Any, offset: Any, prefetch: int, *, no_ack: bool = False, more: dict[str, Any] | None = None
    ) -> str:
        if offset in ("past", "future"):
            offset = datetime.now(UTC) + timedelta(hours=1 if offset == "future" else -1)
        channel.basic_qos(prefetch_count=prefetch)

        def take(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
            shown = (body.decode(), method.redelivered, properties.delivery_mode, properties.priority)
            self._got.append((method.delivery_tag, *shown, masked(properties.headers), list(properties.headers)))

        arguments = {"x-stream-offset": offset, **(more or {})}
        channel.basic_consume(self._name, take, auto_ack=no_ack, arguments=arguments, consumer_tag="t")
        return "consuming"

    def _read(self, random: Random, offset: Any, *, prefetch: int) -> None:
        """Read, settle some of it in some way, read on."""
        self._got = []
        channel = self._channel()
        if self._note(f"consume from {offset!r}", lambda: self._consume(channel, offset, prefetch)) != "consuming":
            return
        self._note("listen", self._listen)
        how = random.choice(["ack", "multiple", "nack", "reject", "recover"])
        if self._got and self._connection.is_open:
            tag = random.randint(1, len(self._got))

            def settle() -> None:
                match how:
                    case "ack" | "multiple":
                        channel.basic_ack(tag, multiple=how == "multiple")
                    case "recover":
                        channel.basic_recover(requeue=True)
                    case _:
                        getattr(channel, f"basic_{how}")(tag, requeue=random.random() < 0.5)
                self._listen()

            self._note(f"{how} {tag}", settle)
        self.log.append(("read", [(*one[:5], one[6]) for one in self._got], [one[5] for one in self._got]))
        if channel.is_open:
            channel.close()

    def _listen(self) -> None:
        until = time.monotonic() + LINGER_S
        while time.monotonic() < until:
            self._connection.process_data_events(time_limit=0.05)

    def _clean(self) -> None:
        try:
            for name in (self._name, f"{self._name} source", f"{self._name} wrong"):
                self._channel().queue_delete(name)
            self._connection.close()
        except AMQPError:
            pass


_VERBS = ("publish", "read", "read", "read", "refused", "refused")


@pytest.mark.live
def test_streams_look_the_same_on_both(vhost: Vhost) -> None:
    with broker_in_a_thread(vhost.profile) as (broker, _), ThreadPoolExecutor(8) as threads:

        def play(seed: int) -> str | None:
            for _ in range(2):  # a slow machine may have been taken for a stream with nothing to read
                real = StreamPlayer(vhost.amqp_url, vhost.name, seed).play()
                embedded = StreamPlayer(broker.url, "/", seed).play()
                if real == embedded:
                    return None
            pairs = [(one, other) for one, other in zip(real, embedded, strict=False) if one != other]
            return f"seed {seed}: " + "\n".join(f"  real     {one}\n  embedded {other}" for one, other in pairs[:1])

        seeds = range(FIRST_SEED, FIRST_SEED + SEQUENCES)
        different = [text for text in threads.map(play, seeds) if text is not None]
    assert not different, f"{len(different)} of {SEQUENCES} differ on {vhost.profile}\n" + "\n".join(different)
