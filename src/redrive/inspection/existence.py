"""Whether queues and exchanges exist, and what a queue holds now: passive declares.

A passive declare is answered at once. It counts ready messages only, not those that consumers hold.
"""

import asyncio

from redrive.client import AccessRefused, Channel, Client, ClientError, NotFound, QueueState

ANSWER_S_MAX = 30.0


class Inspector:
    """Asks about one object after another. A refusal closes the channel, so the next question opens another."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._channel: Channel | None = None

    async def channel(self) -> Channel:
        """An open channel."""
        if self._channel is None or not self._channel.is_open:
            self._channel = await self._client.channel()
        return self._channel

    async def queue_state(self, name: str) -> QueueState | None:
        """The state of a queue; None if there is no such queue. Raises ClientError."""
        channel = await self.channel()
        try:
            return await channel.declare_queue(name, passive=True)
        except NotFound:
            return None

    async def has_exchange(self, name: str, type: str = "direct") -> bool:
        """Whether there is such an exchange. Raises ClientError."""
        channel = await self.channel()
        try:
            await channel.declare_exchange(name, type, passive=True)
        except NotFound:
            return False
        return True

    async def close(self) -> None:
        """Closes the channel."""
        if self._channel is not None and self._channel.is_open:
            await self._channel.close()


async def queue_state(client: Client, name: str) -> QueueState | None:
    """The state of a queue; None if there is no such queue. Raises ClientError, TimeoutError."""
    async with asyncio.timeout(ANSWER_S_MAX):
        inspector = Inspector(client)
        state = await inspector.queue_state(name)
        await inspector.close()
        return state


async def exchange_exists(client: Client, name: str) -> bool:
    """Whether there is such an exchange; one that this user may not look at counts as there.

    Raises ClientError, TimeoutError.
    """
    if not name:
        return True
    async with asyncio.timeout(ANSWER_S_MAX):
        inspector = Inspector(client)
        try:
            exists = await inspector.has_exchange(name)
        except AccessRefused:
            return True
        await inspector.close()
        return exists


async def is_queue_deleted(client: Client, queue: str) -> bool:
    """Whether the broker knows no such queue any more; False if it does not say, or the queue's node is down."""
    try:
        channel = await client.channel()
        await channel.declare_queue(queue, passive=True)
        await channel.close()
    except NotFound as error:
        return not error.is_out_of_reach
    except ClientError:
        return False
    return False
