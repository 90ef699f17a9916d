"""A broker's engine under test: a connection, a channel, and time in the test's hands."""

from typing import Any

import pytest

from redrive import wire
from redrive.embedded.engine import PROFILES, Channel, Deliver, Effect, Engine, GetOk

START_MS = 1_700_000_000_000


every_profile = pytest.mark.parametrize("profile", PROFILES)
every_kind = pytest.mark.parametrize("kind", ["classic", "quorum"])


class Rig:
    """One engine with one client. `publish`, `get` and `received` speak in bodies, which tests give as short words."""

    def __init__(self, profile: str = "4.3") -> None:
        self.engine = Engine(PROFILES[profile], START_MS)
        self.connection = self.engine.connect("/", "guest")
        self._numbers = 0
        self.channel = self.open_channel()

    def open_channel(self) -> Channel:
        self._numbers += 1
        return self.connection.open_channel(self._numbers)

    def queue(self, name: str, kind: str = "classic", **arguments: Any) -> None:
        table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.channel.declare_queue(name, durable=True, arguments={"x-queue-type": kind, **table})

    def publish(self, queue: str, body: str, *, exchange: str = "", **properties: Any) -> None:
        header = wire.Properties.of(**properties).raw
        self.channel.publish(exchange, queue, header, body.encode())

    def pass_time(self, seconds: float) -> None:
        self.engine.advance_to(self.engine.now_ms + round(seconds * 1000))

    def got(self, queue: str, *, no_ack: bool = False) -> GetOk | None:
        self.engine.take_effects()
        if not self.channel.get(queue, no_ack=no_ack):
            return None
        (got,) = [effect for effect in self.engine.take_effects() if isinstance(effect, GetOk)]
        return got

    def get(self, queue: str) -> str | None:
        """The body of the next message, taken for good."""
        got = self.got(queue, no_ack=True)
        return None if got is None else got.message.body.decode()

    def drain(self, queue: str) -> list[str]:
        """All that is ready."""
        found = []
        while (body := self.get(queue)) is not None:
            found.append(body)
        return found

    def deaths(self, queue: str) -> list[tuple[str, str, int]]:
        """x-death of the next message, taken for good: queue, reason, count."""
        got = self.got(queue, no_ack=True)
        assert got is not None
        entries = wire.Properties(got.header).headers.get("x-death", [])
        return [(entry["queue"], entry["reason"], entry["count"]) for entry in entries]

    def effects(self) -> list[Effect]:
        return self.engine.take_effects()

    def delivered(self) -> list[tuple[str, str]]:
        """Consumer tags and bodies of what was delivered since the last look."""
        return [
            (effect.consumer_tag, effect.message.body.decode())
            for effect in self.engine.take_effects()
            if isinstance(effect, Deliver)
        ]


def taken(rig: Rig, queue: str) -> GetOk:
    """The next message, unacked."""
    got = rig.got(queue)
    assert got is not None, f"nothing in {queue}"
    return got


def headers_of(got: GetOk) -> dict[str, Any]:
    return wire.Properties(got.header).headers


def reject(rig: Rig, queue: str, *, requeue: bool = False) -> None:
    rig.channel.reject(taken(rig, queue).delivery_tag, requeue=requeue)


def bind(rig: Rig, exchange: str, kind: str, **keys: str) -> None:
    """An exchange, and for each key a classic queue bound with it."""
    rig.channel.declare_exchange(exchange, kind)
    for queue, key in keys.items():
        rig.queue(queue)
        rig.channel.bind_queue(queue, exchange, key, {})
