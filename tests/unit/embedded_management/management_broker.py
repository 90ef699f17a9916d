"""An embedded broker with its management API, for the length of a test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from redrive.embedded import EmbeddedBroker
from redrive.embedded.management import ManagementServer
from tests.unit.embedded_management.http_client import ApiClient


@asynccontextmanager
async def running(profile: str = "4.3", *, time: str = "manual") -> AsyncIterator[tuple[EmbeddedBroker, ApiClient]]:
    async with EmbeddedBroker(profile, time=time) as broker, ManagementServer(broker) as management:
        api = ApiClient(management.url)
        try:
            yield broker, api
        finally:
            await api.close()


def run(test: Callable[[EmbeddedBroker, ApiClient], Awaitable[None]], profile: str = "4.3") -> None:
    """Run a test's steps in a loop of their own."""

    async def steps() -> None:
        async with running(profile) as (broker, api):
            await test(broker, api)

    asyncio.run(steps())
