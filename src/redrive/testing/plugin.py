"""The `broker` fixture: an embedded broker in a thread of its own, and what a test may ask of it."""

import asyncio
import inspect
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from redrive.core import did_you_mean, parse_duration_ms
from redrive.embedded import EmbeddedBroker, Faults, Hop, MessageLocation
from redrive.wiring import declare_on, load_topology

_Result = TypeVar("_Result")
_CALL_S_MAX = 30.0
MARK = "rabbitmq(profile=…, time=…, definitions=…, faults=…): which embedded broker the `broker` fixture gives a test"


class ThreadedBroker:
    """An embedded broker for a test. Everything here may be called from any thread."""

    def __init__(
        self,
        *,
        profile: str = "4.3",
        time: str = "manual",
        definitions: str | Path | None = None,
        faults: Faults | None = None,
    ) -> None:
        made = EmbeddedBroker(profile, time=time, faults=faults)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="redrive broker", daemon=True)
        self._thread.start()
        self._broker = self._call(self._start(made, definitions))

    @property
    def url(self) -> str:
        """Where any AMQP client connects to."""
        return self._broker.url

    @property
    def profile(self) -> str:
        """The version it plays."""
        return self._broker.profile

    def advance(self, duration: float | str) -> None:
        """Lets virtual time pass, seconds or text like "35m30s"; clients react to each deadline before the next."""
        seconds = parse_duration_ms(duration) / 1000 if isinstance(duration, str) else duration
        self._call(self._broker.advance(seconds))

    def whereabouts(self, message_id: str) -> list[MessageLocation]:
        """Where the copies of a message are now."""
        return self._call(self._get(lambda: self._broker.whereabouts(message_id)))

    def depths(self) -> dict[str, int]:
        """Every queue of the vhost `/`, and how many messages are in it: ready, unacked, delayed or held."""
        return self._call(self._get(lambda: self._broker.depths()))

    def life(self, message_id: str) -> list[Hop]:
        """Every hop of a message, with the rule that fired; `print(*broker.life(id), sep="\\\\n")` reads well."""
        return self._call(self._get(lambda: self._broker.life(message_id)))

    def restart(self) -> None:
        """Cuts everybody off and forgets what is not durable."""
        self._call(self._broker.restart())

    @property
    def faults(self) -> Faults:
        """What is to go wrong; arm a fault before the client does what it waits for."""
        return self._broker.faults

    def stop(self) -> None:
        """Ends the broker and its thread."""
        self._call(self._broker.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_S_MAX)
        self._loop.close()

    async def _start(self, broker: EmbeddedBroker, definitions: str | Path | None) -> EmbeddedBroker:
        await broker.start()
        if definitions is not None:
            await declare_on(broker, load_topology(str(definitions)))
        return broker

    @staticmethod
    async def _get(ask: Any) -> Any:
        return ask()

    def _call(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_CALL_S_MAX)


def pytest_configure(config: pytest.Config) -> None:
    """pytest: make the mark known."""
    config.addinivalue_line("markers", MARK)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[ThreadedBroker]:
    """An embedded broker for this test alone; time stands still until `advance`, unless the mark says otherwise."""
    mark = request.node.get_closest_marker("rabbitmq")
    options = {} if mark is None else mark.kwargs
    known = inspect.signature(ThreadedBroker).parameters
    for unknown in (name for name in options if name not in known):
        pytest.fail(f"@pytest.mark.rabbitmq has no option {unknown}; {did_you_mean(unknown, known)}", pytrace=False)
    started = ThreadedBroker(**options)
    try:
        yield started
    finally:
        started.stop()
